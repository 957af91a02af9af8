"""Join hints of the source's query: the source is kept, and joined as they want it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.heard_executions import LISTENER, Heard, heard_executions
from tests.differential.session_settings import session_settings
from tests.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_TWO_PHASES = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.shortcuts.enabled": "false"}
# What neither engine would broadcast without a hint, however small.
NO_BROADCAST = {"spark.deltaMerge.broadcastBytes": "0", "spark.sql.autoBroadcastJoinThreshold": "-1"}
DELETE, UPSERT = "WHEN MATCHED THEN DELETE", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(scope="module", autouse=True)
def listener(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with java_classes(spark, LISTENER, jar=tmp_path_factory.mktemp("listener") / "listener.jar"):
        yield


def joins(heard: list[Heard]) -> set[str]:
    """The kinds of the joins in the physical plans, as they were at the end."""
    plans = [str(each.execution.executedPlan()).split("== Initial Plan ==")[0] for each in heard]
    return {kind for plan in plans for kind in re.findall(r"\w*Join(?= \[)|CartesianProduct", plan)}


@pytest.mark.parametrize(
    ("hint", "clauses", "settings", "kinds"),
    [
        ("BROADCAST", DELETE, IN_TWO_PHASES | NO_BROADCAST, {"BroadcastHashJoin"}),
        ("MERGE", DELETE, IN_TWO_PHASES, {"SortMergeJoin"}),
        ("SHUFFLE_HASH", DELETE, IN_TWO_PHASES, {"ShuffledHashJoin"}),
        ("BROADCAST", DELETE, NO_BROADCAST, {"BroadcastHashJoin"}),
        ("MERGE", UPSERT, {}, {"SortMergeJoin"}),
        ("MERGE(s), COALESCE(1)", DELETE, {}, {"SortMergeJoin"}),
    ],
    ids=["broadcast", "merge", "shuffle hash", "broadcast, small", "merge, small, outer join", "one of two hints"],
)
def test_a_join_hint_of_the_source_decides_on_the_join_as_in_the_built_in(
    spark: SparkSession, tmp_path: Path, hint: str, clauses: str, settings: dict[str, str], kinds: set[str]
) -> None:
    spark.range(0, 100, 2, 1).write.format("delta").save(str(tmp_path / "source"))
    hint = hint if "(" in hint else f"{hint}(s)"
    source = f"(SELECT /*+ {hint} */ id FROM delta.`{tmp_path}/source` s)"
    found = {}
    with session_settings(spark, settings):
        for engine in ("builtin", "ours"):
            table = f"delta.`{tmp_path / engine}`"
            spark.range(50).write.format("delta").save(str(tmp_path / engine))
            statement = f"MERGE INTO {table} t USING {source} s ON t.id = s.id {clauses}"
            with heard_executions(spark) as heard:
                spark.sql(statement) if engine == "builtin" else merge_sql(spark, statement)
            found[engine] = joins(heard)
    assert found == {"builtin": kinds, "ours": kinds}


def test_a_hint_for_a_join_within_the_source_is_none_for_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    """The source's own join is sorted; the merge's is not, for either engine."""
    spark.range(50).write.format("delta").save(str(tmp_path / "t"))
    source = "(SELECT /*+ MERGE(a) */ a.id FROM range(9) a JOIN range(9) b ON a.id = b.id)"
    with heard_executions(spark) as heard:
        merge_sql(spark, f"MERGE INTO delta.`{tmp_path}/t` t USING {source} s ON t.id = s.id {DELETE}")
    assert joins(heard) == {"SortMergeJoin", "ShuffledHashJoin"}
