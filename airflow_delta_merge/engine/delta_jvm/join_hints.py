"""The join hints of a source's query, which are lost when the source's lineage is cut."""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, analysed_plan, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge


def with_join_hints(gateway: Gateway, statement: ResolvedMerge, frame: DataFrame) -> tuple[DataFrame, str | None]:
    """A frame with the hints of the source's query for the source as a whole, not for a join within the query.

    :param frame: the source's rows.
    :return: the frame, and the join strategy that the hints ask for, as Spark names it (``broadcast``, ``merge``,
        ``shuffle_hash``, ``shuffle_replicate_nl``); None if they ask for none.
    """
    rule = gateway.module("org.apache.spark.sql.catalyst.optimizer.EliminateResolvedHint")
    infos = scala_list(rule.extractHintsFromPlan(statement.command.source())._2())  # outermost first; the first wins
    if not infos:
        return frame, None
    plan = analysed_plan(frame)
    for info in reversed(infos):
        plan = gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.ResolvedHint")(plan, info)
    strategies = (scala_option(info.strategy()) for info in infos)
    strategy = next((str(each.toString()) for each in strategies if each is not None), None)
    return gateway.data_frame(plan), strategy
