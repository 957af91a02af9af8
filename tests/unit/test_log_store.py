"""The log store's jar is what its sources make, and travels with the package."""

from __future__ import annotations

from pathlib import Path

from airflow_delta_merge.runtime.log_store import LOG_STORE, log_store_jar
from scripts.log_store import SOURCES, build


def test_the_jar_is_made_from_its_sources(tmp_path: Path) -> None:
    build(tmp_path / "log_store.jar")
    assert (tmp_path / "log_store.jar").read_bytes() == Path(log_store_jar()).read_bytes(), "run: make log-store"


def test_each_class_has_its_source() -> None:
    assert LOG_STORE.rpartition(".")[2] in [source.stem for source in SOURCES]
