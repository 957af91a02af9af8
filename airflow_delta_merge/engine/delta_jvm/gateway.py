"""One session's JVM: Scala values ⇄ Python values, plans ⇄ DataFrames, expressions ⇄ Columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
except ImportError:  # before Spark 4 all classes were classic
    ClassicColumn, ClassicDataFrame = Column, DataFrame  # type: ignore[misc,assignment]

from airflow_delta_merge.engine.delta_jvm.calls import answer_promptly, remembering
from airflow_delta_merge.engine.delta_jvm.versions import Versions
from airflow_delta_merge.engine.progress import Progress
from airflow_delta_merge.exceptions import MergeConfigError

JavaObject = Any

#: Classes and singletons by name, for each JVM. Looking them up again would cost a small merge a few percent.
_found_in: WeakKeyDictionary[JavaObject, tuple[dict[str, JavaObject], dict[str, JavaObject]]] = WeakKeyDictionary()

#: Classes that PySpark looks up under these names at each step of a plan.
_ASKED_BY_PYSPARK = {
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
}


#: Bits of a Bloom filter per key, for 3 % false positives.
_BITS_FOR_KEY = 8


class Gateway:
    """The JVM behind a session.

    :param spark: a classic session (not Spark Connect) with Delta's extension and catalog.
    :param progress: records the merge's current step.
    :ivar session: the JVM's session.
    :raises MergeConfigError: when the engine cannot use the session.
    """

    def __init__(self, spark: SparkSession, progress: Progress | None = None) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise MergeConfigError(
                "The merge engine needs a classic Spark session: Spark Connect gives no access to Delta's classes. "
                "Run the merge as an application on the cluster instead."
            )
        jvm: JavaObject = spark._jvm
        is_new = jvm not in _found_in
        if is_new and type(jvm.org.apache.spark.sql.delta.DeltaLog).__name__ == "JavaPackage":
            raise MergeConfigError(
                "Delta's jars are not in this Spark session. Start it with spark.jars set to what "
                "`airflow-delta-merge jars` prints, or through DeltaMergeHook."
            )
        self.spark = spark
        self.progress = progress or Progress()
        self.session: JavaObject = spark._jsparkSession
        self.jvm = jvm
        self._classes, self._modules = _found_in.setdefault(jvm, ({}, {}))
        if is_new:
            for asked_as, name in _ASKED_BY_PYSPARK.items():
                setattr(jvm, asked_as, self.java_class(name))
        answer_promptly(spark)
        # Delta reads its settings from the thread's active session, which may be a different one.
        self.java_class(self.classic("SparkSession")).setActiveSession(self.session)

    def java_class(self, name: str) -> JavaObject:
        """A class by its full name, to construct it or call its static methods.

        Unlike ``jvm.org.apache…``, it asks the JVM once, not for each part of the name.
        """
        if name not in self._classes:
            self._classes[name] = remembering(getattr(self.jvm, name))
        return self._classes[name]

    def module(self, class_name: str) -> JavaObject:
        """The singleton of a Scala ``object``, by the object's name."""
        if class_name not in self._modules:
            self._modules[class_name] = getattr(self.java_class(class_name + "$"), "MODULE$")
        return self._modules[class_name]

    def delta(self, name: str) -> JavaObject:
        """The singleton of a Scala ``object`` in Delta's package."""
        return self.module(f"org.apache.spark.sql.delta.{name}")

    def seq(self, items: Iterable[JavaObject]) -> JavaObject:
        """A Scala sequence of the items."""
        return self._scala_seq(list(items))

    def _scala_seq(self, listed: JavaObject) -> JavaObject:
        """A Scala sequence of the items in a Java list, or in a Python list, which py4j converts to one."""
        return self.java_class("org.apache.spark.api.python.PythonUtils").toSeq(listed)

    def concat(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """Concatenate two Scala sequences."""
        return getattr(second.toList(), "$colon$colon$colon")(first.toList())  # ``concat`` is only in Scala 2.13

    def attribute_set(self, expressions: JavaObject) -> JavaObject:
        """The attributes that a Scala sequence of expressions uses, in one call."""
        return self.module("org.apache.spark.sql.catalyst.expressions.AttributeSet").apply(expressions)

    def some(self, value: JavaObject) -> JavaObject:
        return self.java_class("scala.Some")(value)

    @cached_property
    def versions(self) -> Versions:
        """The session's versions of Spark and Delta."""
        return Versions(spark=str(self.spark.version), delta=str(self.module("io.delta.package").VERSION()))

    @property
    def none(self) -> JavaObject:
        return self.module("scala.None")

    # Spark 4 has two kinds of sessions, frames and columns; the classic ones have their own packages.

    @property
    def _is_spark_3(self) -> bool:
        return self.versions.spark_minor < (4, 0)

    def classic(self, name: str) -> str:
        """The full name of a class for classic sessions."""
        return f"org.apache.spark.sql.{'' if self._is_spark_3 else 'classic.'}{name}"

    def column(self, expression: JavaObject) -> Column:
        """A resolved expression as a Column."""
        if self._is_spark_3:
            return ClassicColumn(self.java_class("org.apache.spark.sql.Column")(expression))
        return ClassicColumn(self.module(self.classic("ExpressionUtils")).column(expression))

    def _expression(self, java_column: JavaObject) -> JavaObject:
        """The expression behind a JVM column."""
        if self._is_spark_3:
            return java_column.expr()
        return self.module(self.classic("ExpressionUtils")).expression(java_column)

    def data_frame(self, plan: JavaObject) -> DataFrame:
        """An analysed logical plan as a DataFrame with the plan's attributes."""
        return self.wrap(self.module(self.classic("Dataset")).ofRows(self.session, plan))

    def wrap(self, frame: JavaObject) -> DataFrame:
        """A JVM DataFrame as PySpark's."""
        return ClassicDataFrame(frame, self.spark)

    def _local_checkpoint(self, frame: JavaObject, storage_level: str) -> JavaObject:
        """Compute a JVM frame and keep its rows. Spark 3.5 ignores the storage level and uses memory and disk."""
        if self._is_spark_3:
            return frame.localCheckpoint(True)
        level = self.java_class("org.apache.spark.storage.StorageLevel").fromString(storage_level)
        return frame.localCheckpoint(True, level)

    def _scalar_subquery(self, frame: JavaObject) -> JavaObject:
        """The single value of a JVM frame as an expression; Spark 3.5 has no method for it."""
        if not self._is_spark_3:
            return self._expression(frame.scalar())
        expressions = "org.apache.spark.sql.catalyst.expressions"
        plan, nothing = frame.queryExecution().analyzed(), self.seq([])
        number = self.module(f"{expressions}.NamedExpression").newExprId()
        arguments = (plan, nothing, number, nothing, self.none, self.none)
        return self.java_class(f"{expressions}.ScalarSubquery")(*arguments)

    # JSON

    def as_json(self, value: JavaObject) -> Any:
        """A JVM value converted through JSON, in one call regardless of its size."""
        return json.loads(self.delta("util.JsonUtils").mapper().writeValueAsString(value))

    def seq_from_json(self, elements: Iterable[str], class_name: str) -> JavaObject:
        """A Scala sequence of a class's values from JSON, in one call regardless of their number."""
        mapper = self.delta("util.JsonUtils").mapper()
        of_class = mapper.getTypeFactory().constructCollectionType(
            self.java_class("java.util.ArrayList")._java_lang_class, self.java_class(class_name)._java_lang_class
        )
        return self._scala_seq(mapper.readValue(f"[{','.join(elements)}]", of_class))

    # Session

    def conf(self, key: str) -> str:
        """A setting of the session, including Spark's and Delta's defaults."""
        return str(self.session.conf().get(key))

    def session_with(self, settings: Mapping[str, str]) -> JavaObject:
        """A clone of the JVM's session with other settings. On the session itself, other threads would see them."""
        clone = self.session.cloneSession()
        for key, value in settings.items():
            clone.conf().set(key, value)
        return clone

    def flag(self, key: str) -> bool:
        return self.conf(key).lower() == "true"

    def conf_if_set(self, key: str) -> str | None:
        """A setting of the session if it is set explicitly, without its default."""
        return self.conf(key) if self.sql_conf.contains(key) else None

    @cached_property
    def sql_conf(self) -> JavaObject:
        """The session's ``SQLConf``, which has Spark's own settings by name and type."""
        return self.session.sessionState().conf()

    @cached_property
    def default_parallelism(self) -> int:
        """Number of cores that run tasks, as Spark counts them at the first call."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def temporary_folder(self) -> str:
        """Spark's folder for temporary files, deleted when the session ends."""
        utils = self.java_class("org.apache.spark.util.Utils")
        return str(utils.getLocalDir(self.session.sparkContext().conf()))

    @contextmanager
    def step(self, step: str) -> Iterator[None]:
        """Name what is done inside, as a verb with its object: in error messages, and by its jobs in the Spark UI."""
        self.progress.step = step
        context = self.spark.sparkContext
        before = context.getLocalProperty("spark.job.description")
        context.setJobDescription(f"MERGE operation - {step}")
        try:
            yield
        finally:
            context._jsc.setLocalProperty("spark.job.description", before)  # takes None, unlike PySpark's own

    # DataFrames

    def checkpoint(
        self, frame: DataFrame, storage_level: str, observed: Sequence[Column]
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Compute a DataFrame once, cut its lineage and aggregate it in the same pass.

        :param frame: the DataFrame; the result keeps its attributes, so resolved expressions still bind.
        :param storage_level: Spark's storage level for its rows; always on disk too.
        :param observed: named aggregates, at least one.
        :return: the checkpointed DataFrame and the aggregates by name.
        """
        observation = Observation()
        kept = self._local_checkpoint(jdf(frame.observe(observation, *observed)), storage_level)
        return self.wrap(kept), observation.get

    def checkpoint_rdd(self, frame: DataFrame) -> JavaObject:
        """The RDD behind :meth:`checkpoint`, to get its size and to release it."""
        return analysed_plan(frame).collectLeaves().head().rdd()

    def stored_bytes(self, rdd: JavaObject) -> int:
        """Memory and disk that a persisted RDD takes."""
        for info in self.spark.sparkContext._jsc.sc().getRDDStorageInfo():
            if info.id() == rdd.id():
                return int(info.memSize()) + int(info.diskSize())
        return 0

    def explained(self, frame: DataFrame) -> str:
        """Spark's physical plan for a DataFrame, in its formatted form."""
        mode = self.java_class("org.apache.spark.sql.execution.ExplainMode").fromString("formatted")
        return str(jdf(frame).queryExecution().explainString(mode))

    def distinct_count(self, numbers: Column) -> Column:
        """Exact number of distinct values of a long column without NULLs, by Delta's bitmap aggregate.

        It keeps one compressed bitmap per group, so counting millions of row indexes costs kilobytes.
        """
        portable = self.delta("deletionvectors.RoaringBitmapArrayFormat").Portable()
        expression = self._expression(jc(numbers))
        aggregator = self.java_class("org.apache.spark.sql.catalyst.expressions.aggregation.BitmapAggregator")
        bitmap = aggregator(expression, portable)
        return self.column(bitmap.toAggregateExpression(False, self.none)).getField("cardinality")

    def might_be_among(self, keys: DataFrame, of_keys: Column, num_keys: int, value: Column) -> Column:
        """Whether a value may be among those of another DataFrame, according to a Bloom filter.

        :param keys: the DataFrame; the filter is built when the predicate is first evaluated.
        :param of_keys: hashes of its rows (long).
        :param num_keys: number of its rows.
        :param value: the hash to look for (long).
        """
        numbers = (self._expression(jc(F.lit(n).cast("bigint"))) for n in (num_keys, num_keys * _BITS_FOR_KEY))
        aggregates = "org.apache.spark.sql.catalyst.expressions.aggregate"
        bloom_filter = self.java_class(f"{aggregates}.BloomFilterAggregate")
        made = bloom_filter(self._expression(jc(of_keys)), *numbers, 0, 0)
        found = keys.agg(self.column(made.toAggregateExpression(False, self.none)))
        might_contain = self.java_class("org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain")
        subquery = self._scalar_subquery(jdf(found))
        return self.column(might_contain(subquery, self._expression(jc(value))))

    def resolve_predicate(self, frame: DataFrame, predicate: Column) -> JavaObject:
        """A predicate in the form that ``filterFiles`` needs: resolved over ``frame``, constant-folded and simplified.

        Data skipping cannot use ``false OR …``, for example.
        """
        plan = analysed_plan(frame.filter(predicate))
        for rule in ("ConstantFolding", "BooleanSimplification"):
            plan = self.module(f"org.apache.spark.sql.catalyst.optimizer.{rule}").apply(plan)
        return plan.condition()


def class_name_of(value: JavaObject) -> str:
    """The name of a JVM object's class, without its package."""
    return str(value.getClass().getSimpleName())


def scala_list(sequence: JavaObject) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def scala_option(option: JavaObject) -> Any | None:
    """The value of a Scala option; None without one."""
    return option.get() if option.isDefined() else None


def scala_texts(sequence: JavaObject) -> list[str]:
    """The elements of a Scala sequence as texts, in one call regardless of their number; none may contain a NUL."""
    text = str(sequence.mkString("\0"))
    return text.split("\0") if text else []


def jdf(frame: DataFrame) -> JavaObject:
    """PySpark's DataFrame as the JVM's."""
    return frame._jdf


def analysed_plan(frame: DataFrame) -> JavaObject:
    """A DataFrame's analysed logical plan."""
    return jdf(frame).queryExecution().analyzed()


def jc(column: Column) -> JavaObject:
    """PySpark's Column as the JVM's."""
    return column._jc
