"""A process that waits for a deferred task's merge in a kept Spark.

The keeper runs it in place of spark-submit. Its standard input is the connection on which the kept Spark has accepted
the merge. It prints the merge's log and writes its outcome where a job of its own Spark would. When it ends early, as
it does with the keeper, the connection closes, and the kept Spark cancels the merge.

It is started as a script without site-packages, and takes the package from the merge's staging folder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: Exit code if the kept Spark ended before the merge did.
SPARK_ENDED = 75
#: Why such a merge was not completed.
WHY_SPARK_ENDED = (
    "Its kept Spark ended during the merge: it was killed, or the machine ran out of memory. Check the machine's "
    "memory and driver_memory. The next try starts another Spark."
)


_POLL_SECONDS = 1.0


def main(py_files: str, result: Path, keeper: int) -> int:
    """Wait for the outcome and write it.

    :param py_files: the package as a zip file.
    :param result: path of the result file.
    :param keeper: the process with which this one ends: its parent.
    :return: the exit code.
    """
    threading.Thread(target=_end_with, args=(keeper,), daemon=True).start()
    sys.path.insert(0, py_files)
    from airflow_delta_merge.contract.frames import receive

    with socket.socket(fileno=sys.stdin.fileno()) as connection, suppress(ConnectionError):
        connection.setblocking(True)  # not so if the task has set a timeout
        while (message := receive(connection)) is not None:
            if "log" in message:
                print(message["log"], flush=True)
            if "outcome" in message:
                temporary = result.with_suffix(".part")
                temporary.touch(0o600)
                temporary.write_text(json.dumps(message["outcome"]), encoding="utf-8")
                temporary.replace(result)
                return 0
    print(WHY_SPARK_ENDED, flush=True)
    return SPARK_ENDED


def _end_with(keeper: int) -> None:
    while os.getppid() == keeper:
        time.sleep(_POLL_SECONDS)
    os._exit(SPARK_ENDED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
