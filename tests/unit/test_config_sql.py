"""The statement that a config becomes, read back by Spark's own parser, is what went in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings

from airflow_delta_merge.config import ClauseAction, MergeClause, MergeConfig
from airflow_delta_merge.identifiers import parse_multipart
from tests.unit.merge_configs import CONFIGS

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_ACTION_NODES = {
    ClauseAction.UPDATE: "UpdateAction",
    ClauseAction.UPDATE_ALL: "UpdateStarAction",
    ClauseAction.DELETE: "DeleteAction",
    ClauseAction.INSERT: "InsertAction",
    ClauseAction.INSERT_ALL: "InsertStarAction",
}


def _list(seq: JavaObject) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]


def _option(option: JavaObject) -> Any:
    return option.get() if option.isDefined() else None


# One Spark session serves all examples, and it is not changed by parsing.
@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(merge=CONFIGS)
def test_spark_reads_back_what_went_in(spark: SparkSession, merge: MergeConfig) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    source_name = "`the view`" if merge.source.needs_view else None
    plan = parser.parsePlan(merge.to_sql(source_relation=source_name))

    assert plan.getClass().getSimpleName() == "MergeIntoTable"
    assert plan.withSchemaEvolution() == merge.with_schema_evolution
    assert plan.targetTable().alias() == merge.target_alias
    assert plan.sourceTable().alias() == merge.source_alias
    assert _relation(plan.targetTable()) == _expected_target(merge)
    if source_name:
        assert _relation(plan.sourceTable()) == ["the view"]
    elif merge.source.table:
        assert _relation(plan.sourceTable()) == list(parse_multipart(merge.source.table))
    elif merge.source.query:
        assert _tree(plan.sourceTable().child()) == _tree(parser.parsePlan(merge.source.query))
    assert plan.mergeCondition().equals(parser.parseExpression(merge.condition_sql))

    actions = [
        *_list(plan.matchedActions()),
        *_list(plan.notMatchedActions()),
        *_list(plan.notMatchedBySourceActions()),
    ]
    assert len(actions) == len(merge.clauses)
    for clause, action in zip(merge.ordered_clauses, actions, strict=True):
        _assert_same_clause(parser, clause, action)


def _tree(plan: JavaObject) -> str:
    """The plan as text, without the numbers that each parse gives anew."""
    return re.sub(r"#\d+L?", "", plan.toString())


def _relation(aliased: JavaObject) -> list[str]:
    return _list(aliased.child().multipartIdentifier())


def _expected_target(merge: MergeConfig) -> list[str]:
    if merge.target.path is not None:
        return ["delta", merge.target.path]
    assert merge.target.table is not None
    return list(parse_multipart(merge.target.table))


def _assert_same_clause(parser: JavaObject, clause: MergeClause, action: JavaObject) -> None:
    assert action.getClass().getSimpleName() == _ACTION_NODES[clause.action]
    condition = _option(action.condition())
    if clause.condition is None:
        assert condition is None
    else:
        assert condition.equals(parser.parseExpression(clause.condition))
    if clause.values:
        assignments = _list(action.assignments())
        names = [tuple(_list(assignment.key().nameParts())) for assignment in assignments]
        assert names == [parse_multipart(column) for column, _ in clause.values]
        for assignment, (_, value) in zip(assignments, clause.values, strict=True):
            assert assignment.value().equals(parser.parseExpression(value)), value
