"""The log of a good merge, as docs/first_dag.md shows it: that of the README's DAG, in its first run.

``python -m tests.demo.merge_log`` runs the DAG and writes its log there. A test compares the two.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.demo import airflow_run

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "first_dag.md"
_BLOCK = re.compile(r"(?<=<!-- python -m tests.demo.merge_log -->\n\n```text\n).*?(?=```\n)", re.DOTALL)
_EVENT = re.compile(
    r"^\S+Z \[info *\] (?P<text>.*?) *\[(?P<logger>[\w.]+)\](?: loc=\S+)?$(?=\n\S+Z \[|\n\{|\n\n|\Z|\n(?! ))",
    re.MULTILINE | re.DOTALL,
)
_OF_A_RUN = re.compile(r" +\d+\.\d s(?:  █+)?|local-\d+|\d{4}-\d\d-\d\dT[\d-]+\w+\.log")


def readme_dag(folder: Path) -> Path:
    """A folder of DAGs with the README's, in which only /tmp is another folder."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[:1]
    dags = folder / "dags"
    dags.mkdir()
    (dags / "customers_upsert.py").write_text(code.replace("/tmp/", f"{folder}/"))
    return dags


def first_merge(output: str, folder: Path) -> str:
    """What the task of the first merge has logged, without the command by which Spark is started.

    :param output: what the DAG's runs have printed.
    :param folder: what stands for /tmp in it.
    """
    ours = [event["text"] for event in _EVENT.finditer(output) if "airflow_delta_merge" in event["logger"]]
    log = "\n".join(text for text in ours if not text.startswith("Spark-Submit cmd: "))
    log = log[: re.search(r"^  how .*$", log, re.MULTILINE).end()]  # type: ignore[union-attr]
    log = log.replace(f"{folder}/airflow", "/opt/airflow").replace(f"{folder}/", "/tmp/")
    return "\n".join(line.rstrip() for line in log.splitlines()) + "\n"


def shown() -> str:
    """The log on the page."""
    return _BLOCK.findall(PAGE.read_text(encoding="utf-8"))[0]


def without_what_differs(log: str) -> str:
    """A log without durations, ids and moments."""
    return _OF_A_RUN.sub("…", log)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_report = airflow_run.run(folder / "airflow", readme_dag(folder), "customers_upsert", airflow_run.DATES[0])
        log = first_merge(run_report["output"], folder)
    PAGE.write_text(_BLOCK.sub(lambda _: log, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(log)


if __name__ == "__main__":
    main()
