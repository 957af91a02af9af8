"""One session's JVM: Scala values ⇄ Python values, plans ⇄ DataFrames, expressions ⇄ Columns."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import pyspark.errors.utils as pyspark_errors
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import versions
from airflow_delta_merge.engine.delta_jvm.errors import Progress
from airflow_delta_merge.engine.delta_jvm.versions import Versions
from airflow_delta_merge.exceptions import MergeConfigError

JavaObject = Any

_log = logging.getLogger(__name__)

#: Classes and singletons by name, of each JVM: to ask for them anew would take a small merge some percent of its time.
_found_in: WeakKeyDictionary[JavaObject, tuple[dict[str, JavaObject], dict[str, JavaObject]]] = WeakKeyDictionary()

#: Classes that PySpark asks for, under these names, at each step of a plan.
_ASKED_BY_PYSPARK = {
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
}


#: Bits of a Bloom filter for each key: three in a hundred others pass it.
_BITS_FOR_KEY = 8


class _RememberingClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class whose static methods are looked up once: py4j asks the JVM for them at each call, before it makes it."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


class Gateway:
    """The JVM behind a session.

    :param spark: a classic session (not Spark Connect) with Delta's extension and catalog.
    :param progress: where the merge says what it is at.
    :ivar session: the JVM's session.
    :raises MergeConfigError: when the session is one the engine cannot use.
    """

    def __init__(self, spark: SparkSession, progress: Progress | None = None) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise MergeConfigError(
                "The merge engine needs a classic Spark session: over Spark Connect Delta's classes cannot be "
                "reached. Run the merge as an application on the cluster instead."
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
        _let_answer_promptly(spark)
        # Delta asks the session that is active on the thread for its settings; of several that need not be this one.
        self.java_class(versions.session_class(self)).setActiveSession(self.session)

    def java_class(self, name: str) -> JavaObject:
        """A class by its full name, to construct it or call its static methods.

        Unlike ``jvm.org.apache…`` it asks the JVM once, not once for each part of the name.
        """
        if name not in self._classes:
            self._classes[name] = _remembering(getattr(self.jvm, name))
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
        return self.scala_seq(self.java_list(items))

    def scala_seq(self, java_list: JavaObject) -> JavaObject:
        """A Java list as a Scala sequence."""
        return self.java_class("org.apache.spark.api.python.PythonUtils").toSeq(java_list)

    def java_list(self, items: Iterable[JavaObject]) -> JavaObject:
        """A Java list of the items."""
        array = self.java_class("java.util.ArrayList")()
        for item in items:
            array.add(item)
        return array

    def concat(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """One Scala sequence of two."""
        return versions.concat(self, first, second)

    def some(self, value: JavaObject) -> JavaObject:
        return self.java_class("scala.Some")(value)

    def some_long(self, number: int) -> JavaObject:
        """A Scala ``Some[Long]``."""
        return versions.some_long(self, number)

    @cached_property
    def versions(self) -> Versions:
        """What Spark and Delta are of the session."""
        return Versions(spark=str(self.spark.version), delta=str(self.module("io.delta.package").VERSION()))

    @property
    def none(self) -> JavaObject:
        return self.module("scala.None")

    def column(self, expression: JavaObject) -> Column:
        """A resolved expression as a Column."""
        return versions.column(self, expression)

    def data_frame(self, plan: JavaObject) -> DataFrame:
        """An analysed logical plan as a DataFrame with the plan's attributes."""
        return versions.data_frame(self, plan)

    def wrap(self, frame: JavaObject) -> DataFrame:
        """A JVM DataFrame as PySpark's."""
        return versions.frame(self, frame)

    def as_json(self, value: JavaObject) -> Any:
        """A JVM value as JSON can tell it, in one call however many parts it has."""
        return json.loads(self.delta("util.JsonUtils").mapper().writeValueAsString(value))

    def seq_from_json(self, elements: Iterable[str], class_name: str) -> JavaObject:
        """A Scala sequence of values of a class that JSON tells, in one call however many there are."""
        mapper = self.delta("util.JsonUtils").mapper()
        of_class = mapper.getTypeFactory().constructCollectionType(
            self.java_class("java.util.ArrayList")._java_lang_class, self.java_class(class_name)._java_lang_class
        )
        return self.scala_seq(mapper.readValue(f"[{','.join(elements)}]", of_class))

    # Session

    def conf(self, key: str) -> str:
        """A setting of the session, Spark's and Delta's defaults included."""
        return str(self.session.conf().get(key))

    def session_with(self, settings: Mapping[str, str]) -> JavaObject:
        """A clone of the JVM's session with other settings: set on the session itself other threads would meet them."""
        clone = self.session.cloneSession()
        for key, value in settings.items():
            clone.conf().set(key, value)
        return clone

    def flag(self, key: str) -> bool:
        return self.conf(key).lower() == "true"

    def conf_if_set(self, key: str) -> str | None:
        """A setting of the session if somebody set it, without its default."""
        return self.conf(key) if self.sql_conf.contains(key) else None

    @cached_property
    def sql_conf(self) -> JavaObject:
        """The session's ``SQLConf``, which has Spark's own settings by name and type."""
        return self.session.sessionState().conf()

    @cached_property
    def default_parallelism(self) -> int:
        """Cores that run tasks, as Spark counts them when a merge first asks."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def temporary_folder(self) -> str:
        """A folder of Spark's for temporary files, deleted when the session ends."""
        utils = self.java_class("org.apache.spark.util.Utils")
        return str(utils.getLocalDir(self.session.sparkContext().conf()))

    @contextmanager
    def describing_jobs(self, description: str) -> Iterator[None]:
        """Let the Spark UI show jobs started inside under a description."""
        context = self.spark.sparkContext
        before = context.getLocalProperty("spark.job.description")
        context.setJobDescription(description)
        try:
            yield
        finally:
            context._jsc.setLocalProperty("spark.job.description", before)  # takes None, unlike PySpark's own

    # DataFrames

    def checkpoint(
        self, frame: DataFrame, storage_level: str, observed: Sequence[Column]
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Compute a DataFrame once, cut its lineage and aggregate it in the same pass.

        :param frame: what to compute; the result keeps its attributes, so resolved expressions still bind.
        :param storage_level: where its rows are kept, as Spark names it; always on disk too.
        :param observed: named aggregates, at least one.
        :return: the checkpointed DataFrame and the aggregates by name, as py4j converts them.
        """
        observing, values = self.observing(frame, observed)
        return self.wrap(versions.checkpoint(self, jdf(observing), storage_level)), values()

    def observing(self, frame: DataFrame, observed: Sequence[Column]) -> tuple[DataFrame, Callable[[], dict[str, Any]]]:
        """A DataFrame that is aggregated when it is next computed.

        :param observed: named aggregates, at least one.
        :return: the DataFrame, and what gives the aggregates by name, as py4j converts them, once it was computed.
        """
        observation = self.java_class("org.apache.spark.sql.Observation")()
        columns = [jc(column) for column in observed]
        observing = jdf(frame).observe(observation, columns[0], self.seq(columns[1:]))

        def values() -> dict[str, Any]:
            found = observation.get()
            return {name: found.apply(name) for name in scala_list(found.keys().toSeq())}

        return self.wrap(observing), values

    def checkpoint_rdd(self, frame: DataFrame) -> JavaObject:
        """The RDD behind :meth:`checkpoint`, to ask for its size and to release it."""
        return jdf(frame).queryExecution().analyzed().collectLeaves().head().rdd()

    def stored_bytes(self, rdd: JavaObject) -> int:
        """Memory and disk that a persisted RDD takes."""
        for info in self.spark.sparkContext._jsc.sc().getRDDStorageInfo():
            if info.id() == rdd.id():
                return int(info.memSize()) + int(info.diskSize())
        return 0

    def estimated_bytes(self, frame: DataFrame) -> int:
        """What Spark takes for the size of a DataFrame before it is computed, often far too much."""
        return int(str(jdf(frame).queryExecution().optimizedPlan().stats().sizeInBytes()))

    def explained(self, frame: DataFrame) -> str:
        """Spark's physical plan for a DataFrame, in its formatted form."""
        mode = self.java_class("org.apache.spark.sql.execution.ExplainMode").fromString("formatted")
        return str(jdf(frame).queryExecution().explainString(mode))

    def distinct_count(self, numbers: Column) -> Column:
        """Exact number of distinct values of a long column, NULLs left out, by Delta's bitmap aggregate.

        One compressed bitmap a group is kept, so counting millions of row indexes costs kilobytes.
        """
        portable = self.delta("deletionvectors.RoaringBitmapArrayFormat").Portable()
        expression = versions.expression(self, jc(numbers))
        aggregator = self.java_class("org.apache.spark.sql.catalyst.expressions.aggregation.BitmapAggregator")
        bitmap = aggregator(expression, portable)
        return self.column(bitmap.toAggregateExpression(False, self.none)).getField("cardinality")

    def might_be_among(self, keys: DataFrame, of_keys: Column, num_keys: int, value: Column) -> Column:
        """Whether a value is, or is by some chance, among those of another DataFrame, by a Bloom filter of them.

        :param keys: the DataFrame; the filter is made when the predicate is first evaluated.
        :param of_keys: hashes of its rows (long).
        :param num_keys: how many rows it has.
        :param value: the hash that is looked for (long).
        """
        numbers = (versions.expression(self, jc(F.lit(n).cast("bigint"))) for n in (num_keys, num_keys * _BITS_FOR_KEY))
        aggregates = "org.apache.spark.sql.catalyst.expressions.aggregate"
        bloom_filter = self.java_class(f"{aggregates}.BloomFilterAggregate")
        made = bloom_filter(versions.expression(self, jc(of_keys)), *numbers, 0, 0)
        found = keys.agg(self.column(made.toAggregateExpression(False, self.none)))
        might_contain = self.java_class("org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain")
        subquery = versions.scalar_subquery(self, jdf(found))
        return self.column(might_contain(subquery, versions.expression(self, jc(value))))

    def resolve_predicate(self, frame: DataFrame, predicate: Column) -> JavaObject:
        """A predicate as ``filterFiles`` wants it: resolved over ``frame``, folded to constants and simplified.

        Data skipping makes nothing of ``false OR …``, for one.
        """
        plan = jdf(frame.filter(predicate)).queryExecution().analyzed()
        for rule in ("ConstantFolding", "BooleanSimplification"):
            plan = self.module(f"org.apache.spark.sql.catalyst.optimizer.{rule}").apply(plan)
        return plan.condition()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Build plans without telling the JVM, at each step, which Python line it came from.

    PySpark does so for error messages about a user's DataFrame code; here the lines are the engine's own, and four
    fifths of a small merge's calls to the JVM were spent on them.
    """
    _call_sites.leave_out()
    try:
        yield
    finally:
        _call_sites.tell_again()


class _CallSites:
    """PySpark's switch, one for all threads: as it was before, once the last of them is done."""

    _setting = "_enable_debugging_cache"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: Any = None

    def leave_out(self) -> None:
        with self._lock:
            if not self._users:
                self._before = getattr(pyspark_errors, self._setting, None)  # Spark 3.5 tells no lines at all
            self._users += 1
            setattr(pyspark_errors, self._setting, False)

    def tell_again(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                setattr(pyspark_errors, self._setting, self._before)


_call_sites = _CallSites()


class _Prompt(threading.local):
    """The JVMs that answer a thread promptly: each thread has a connection of its own."""

    def __init__(self) -> None:
        self.gateways: WeakSet[JavaObject] = WeakSet()


_prompt = _Prompt()


def _let_answer_promptly(spark: SparkSession) -> None:
    """Let the JVM send the end of a long answer at once.

    Py4j sends more than 8 kB in pieces. The last one TCP holds back until Python's side acknowledges those before it,
    which that puts off for 40 ms, as it has nothing to send (Nagle's algorithm and delayed acknowledgements). Py4j has
    no setting for it, so its sockets are told here; where they are not found, long answers take as long as ever.
    """
    gateway: JavaObject = spark.sparkContext._gateway
    if gateway in _prompt.gateways:
        return
    _prompt.gateways.add(gateway)
    server = gateway.java_gateway_server
    try:
        connections = server.getClass().getSuperclass().getDeclaredField("connections")
        connections.setAccessible(True)
        for connection in java_items(connections.get(server)):
            with suppress(Py4JJavaError):  # another thread may just have closed its own
                connection.getSocket().setTcpNoDelay(True)
    except Py4JError:
        _log.debug("The sockets of py4j were not found; long answers of the JVM take 40 ms more.", exc_info=True)


def _remembering(java_class: JavaObject) -> JavaObject:
    """The class as one whose methods are looked up once; what is no class as it is."""
    if type(java_class) is not JavaClass:
        return java_class
    return _RememberingClass(java_class._fqn, java_class._gateway_client)


def java_items(java_list: JavaObject) -> list[Any]:
    """The elements of a Java list. To iterate over it ends in an exception, of which PySpark asks a lot."""
    return [java_list.get(position) for position in range(java_list.size())]


def scala_list(sequence: JavaObject) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def scala_texts(sequence: JavaObject) -> list[str]:
    """The elements of a Scala sequence as texts, in one call however many there are; none may hold a NUL."""
    text = str(sequence.mkString("\0"))
    return text.split("\0") if text else []


def jdf(frame: DataFrame) -> JavaObject:
    """PySpark's DataFrame as the JVM's."""
    return frame._jdf


def jc(column: Column) -> JavaObject:
    """PySpark's Column as the JVM's."""
    return column._jc
