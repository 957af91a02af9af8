"""The join hints of a source's query, which are lost when the source's lineage is cut: :class:`JoinHints`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, analysed_plan, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge


@dataclass(frozen=True)
class JoinHints:
    """Hints for the source as a whole, not for a join within its query.

    :param infos: the JVM's ``HintInfo``, outermost first; the first one wins.
    :param strategy: the join strategy that they ask for, as Spark names it (``broadcast``, ``merge``, ``shuffle_hash``,
        ``shuffle_replicate_nl``); None if they ask for none.
    """

    infos: Sequence[JavaObject]
    strategy: str | None

    @classmethod
    def of_source(cls, gateway: Gateway, statement: ResolvedMerge) -> JoinHints:
        """The hints that the source's query carries."""
        rule = gateway.module("org.apache.spark.sql.catalyst.optimizer.EliminateResolvedHint")
        infos = scala_list(rule.extractHintsFromPlan(statement.command.source())._2())
        strategies = (scala_option(info.strategy()) for info in infos)
        strategy = next((str(each.toString()) for each in strategies if each is not None), None)
        return cls(infos, strategy)

    def added_to(self, gateway: Gateway, frame: DataFrame) -> DataFrame:
        """The frame with these hints."""
        if not self.infos:
            return frame
        plan = analysed_plan(frame)
        for info in reversed(self.infos):
            plan = gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.ResolvedHint")(plan, info)
        return gateway.data_frame(plan)
