"""What several modules of differential tests ask for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: ``made_once(folder, make, *arguments)``.
MadeOnce = Callable[..., Path]


@pytest.fixture(scope="session")
def made_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """``made_once(folder, make, *arguments)`` puts into a new folder a copy of what ``make`` makes of the arguments.

    ``make(spark, folder, *arguments)`` is called once in a session. Spark takes half a second to write a small table.
    """

    @cache
    def made(make: Callable[..., Any], *arguments: Any) -> Path:
        folder = tmp_path_factory.mktemp("made") / "t"
        make(spark, folder, *arguments)
        return folder

    def copied(folder: Path, make: Callable[..., Any], *arguments: Any) -> Path:
        return Path(shutil.copytree(made(make, *arguments), folder))

    return copied
