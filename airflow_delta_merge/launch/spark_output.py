"""Reads the output of spark-submit and the job: which lines the task's log shows, and which explains a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_delta_merge.launch.spark_application import SparkApplication

# Lines of successful runs, and of failures that the job itself reports in a sentence.
_NOISE = re.compile(
    "|".join(
        [
            r"^WARNING: Using incubator modules: ",
            r"^Using Spark's default log4j profile: ",
            r"^Setting (Spark|default) log level to ",
            r"^To adjust logging level use ",
            r"^Calling System\.exit\(\) with exit code ",
            r"^\S+ \S+ INFO SparkContext: (Running Spark version|OS info|Java version) ",
            r"^\S+ \S+ INFO (KerberosConfDriverFeatureStep|KubernetesUtils|SparkKubernetesClientFactory|SslContext): ",
            r"^Files \S+ from \S+ to ",
            r"^\S+ \S+ WARN NativeCodeLoader: ",
            r"^\S+ \S+ WARN Utils: (Your hostname, |Set SPARK_LOCAL_IP )",
            r"^\S+ \S+ WARN SparkStringUtils: Truncated the string representation of a plan",
            r"^\S+ \S+ WARN package: Truncated the string representation of a plan",
            r"^\S+ \S+ WARN MapPartitionsRDD: RDD \d+ was locally checkpointed, ",
            r'^\{"ts": .*"logger": "SQLQueryContextLogger"',
            r"^(Exception in thread \"main\" )?org\.apache\.spark\.SparkUserAppException: User application exited",
        ]
    )
)
# An exception follows this line. If the path is missing, the merge's own error says so.
_NOISE_WITH_EXCEPTION = re.compile(r"^\S+ \S+ WARN FileStreamSink: Assume no metadata directory\.")
_FRAME = re.compile(r"^\s+(at [\w.$/<>@-]+\(|\.{3} \d+ (more|common frames omitted))")
_EXCEPTION = re.compile(
    r"^(?:: |\s+)?(?P<role>Exception in thread \"[^\"]*\" |Caused by: |Suppressed: )?"
    r"(?:[\w$]+\.)*[\w$]*(?:Exception|Error|Throwable)[\w$]*: (?P<message>.+)$"
)
_OF_PROGRESS = re.compile(r"^Merge\b[^:]*: ")
# Lines that follow a JVM's own error message without adding to it.
_EMPTY_WORDS = ("Error: Could not create the Java Virtual Machine.", "Error: A fatal exception has occurred.")


def is_progress(line: str) -> bool:
    """Whether the merge itself has written this line, rather than Spark."""
    return _OF_PROGRESS.match(line) is not None


@dataclass
class SparkOutput:
    """Reads the lines one by one.

    :ivar application: the Spark application; None until Spark reports it.
    """

    application: SparkApplication | None = None
    _exception: str = ""
    _cause: str = ""
    _last_line: str = ""
    _after_noise: bool = False

    @property
    def reason(self) -> str:
        """Why Spark failed, if it did: the message of the exception that ended it, or its last line."""
        if not self._exception or not self._cause or self._cause in self._exception:
            return self._exception or self._last_line
        return f"{self._exception} Caused by: {self._cause}"

    def read(self, line: str) -> bool:
        """Process a line and return whether the task's log should show it.

        :param line: a line with its indentation and with masked secrets.
        """
        text = line.rstrip()
        if not text or _FRAME.match(text):
            return False
        exception = _EXCEPTION.match(text)
        if self._after_noise and exception is not None:
            return False
        self._after_noise = _NOISE_WITH_EXCEPTION.search(text) is not None
        if self._after_noise or _NOISE.search(text):
            return False
        self._note(text.strip(), exception)
        return True

    def _note(self, text: str, exception: re.Match[str] | None) -> None:
        if self.application is None:
            self.application = SparkApplication.from_log_line(text)
        if text.startswith(_EMPTY_WORDS):
            return
        if exception is None:
            self._last_line = text
            if is_progress(text):
                self._exception = self._cause = ""  # Spark recovered from it
        elif exception["role"] == "Caused by: ":
            self._cause = exception["message"].strip()
        elif exception["role"] != "Suppressed: ":
            self._exception, self._cause = exception["message"].strip(), ""

    def to_dict(self) -> dict[str, Any]:
        """The state of reading, in JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SparkOutput:
        """Restore it from :meth:`to_dict`."""
        application = data["application"]
        return cls(**{**data, "application": application and SparkApplication(**application)})
