"""The only module that touches py4j: every class, constructor and ``MODULE$`` of Spark's and Delta's lives here.

The rest of the engine sees DataFrames, Columns and plain Python values, and passes the JVM objects it gets from
here (plans, files, transactions) back without looking inside. Facts about them were read from Delta 4.4's and
Spark 4.2's sources; what differs in other versions belongs in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Literal, ParamSpec, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError

JavaObject = Any
ClauseKind = Literal["matched", "not matched", "not matched by source"]
ClauseAction = Literal["update", "delete", "insert"]
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ResolvedClause:
    """A ``WHEN`` clause after Delta's analyzer.

    :param kind: when it applies.
    :param action: what it does.
    :param condition: its boolean condition over source and target, or None.
    :param values: the new row's columns in the order of the table's final schema; empty for deletes.
    :param changes: for updates, whether each of ``values`` differs from the column it replaces.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Column | None
    values: tuple[Column, ...] = ()
    changes: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Equality:
    """``target = source`` or ``target <=> source`` in the ON condition.

    :param target: a column of the target.
    :param source: an expression over the source alone; of the target's type or a wider integer type.
    :param type: the target column's type, as Spark SQL writes it.
    :param null_safe: whether two NULLs are equal.
    """

    target: Column
    source: Column
    type: str
    null_safe: bool


@dataclass(frozen=True)
class TrackingColumn:
    """A column by which a table with row tracking knows its rows.

    :param name: its physical name.
    :param column: its value for a row of the target.
    :param changes_with_row: whether an update makes it void (the commit version) or leaves it (the row id).
    :param metadata: JVM metadata that marks it for the writer.
    """

    name: str
    column: Column
    changes_with_row: bool
    metadata: JavaObject


@dataclass(frozen=True)
class FileSet:
    """Data files of the table, as a JVM sequence of ``AddFile``, with their totals.

    :param files: the JVM sequence.
    :param count: how many files.
    :param num_bytes: their size.
    :param partitions: distinct partition values among them; 0 for an unpartitioned table.
    :param num_rows: their logical rows, None when a file has no statistics.
    """

    files: JavaObject
    count: int
    num_bytes: int
    partitions: int
    num_rows: int | None


class DeltaJvm:
    """Delta's and Spark's JVM classes for one session.

    :param spark: a classic session (not Spark Connect) with Delta's extension and catalog.
    :raises MergeConfigError: when the session is one the engine cannot use.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise MergeConfigError(
                "The merge engine needs a classic Spark session: over Spark Connect Delta's classes cannot be "
                "reached. Run the merge as an application on the cluster instead."
            )
        self.spark = spark
        self.session: JavaObject = spark._jsparkSession
        jvm: JavaObject = spark._jvm
        self.jvm = jvm
        if type(self.jvm.org.apache.spark.sql.delta.DeltaLog).__name__ == "JavaPackage":
            raise MergeConfigError(
                "Delta's jars are not in this Spark session. Start it with spark.jars set to what "
                "`python -m airflow_delta_merge.jars` prints, or through DeltaMergeHook."
            )

    # Scala ⇄ Python

    def module(self, class_name: str) -> JavaObject:
        """The singleton of a Scala ``object``."""
        return getattr(getattr(self.jvm, class_name + "$"), "MODULE$")

    def seq(self, items: Iterable[JavaObject]) -> JavaObject:
        array = self.jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(array)

    def some(self, value: JavaObject) -> JavaObject:
        return self.jvm.scala.Some(value)

    @cached_property
    def none(self) -> JavaObject:
        return self.module("scala.None")

    @cached_property
    def _expression_utils(self) -> JavaObject:
        return self.module("org.apache.spark.sql.classic.ExpressionUtils")

    @cached_property
    def _dataset(self) -> JavaObject:
        return self.module("org.apache.spark.sql.classic.Dataset")

    def column(self, expression: JavaObject) -> Column:
        return ClassicColumn(self._expression_utils.column(expression))

    def data_frame(self, plan: JavaObject) -> DataFrame:
        return ClassicDataFrame(self._dataset.ofRows(self.session, plan), self.spark)

    # Session

    def conf(self, key: str) -> str:
        """A setting of the session, Delta's defaults included."""
        return str(self.session.conf().get(key))

    def flag(self, key: str) -> bool:
        return self.conf(key).lower() == "true"

    def default_parallelism(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    # Parsing

    def require_expression(self, text: str, what: str) -> None:
        """Check that ``text`` is one whole SQL expression, so that it cannot end a clause and begin another."""
        try:
            self.session.sessionState().sqlParser().parseExpression(text)
        except PySparkException as error:
            raise MergeConfigError(f"The {what} is not a SQL expression: {_first_line(error)}") from error

    def require_query(self, text: str) -> None:
        """Check that ``text`` is one whole SQL statement."""
        try:
            self.session.sessionState().sqlParser().parsePlan(text)
        except PySparkException as error:
            raise MergeConfigError(f"The source is not a SQL query: {_first_line(error)}") from error

    def resolve(self, statement: str) -> JavaObject:
        """Delta's resolved ``MergeIntoCommand`` for a MERGE statement; nothing is executed.

        It is the optimized command, as Spark would execute it: constants are folded, ``current_timestamp()`` is
        fixed. The plans of source and target inside it are only analysed.
        """
        state = self.session.sessionState()
        parsed = state.sqlParser().parsePlan(statement)
        skip = self.module("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        plan = state.executePlan(parsed, skip).optimizedPlan()
        command = self._find_command(plan)
        if command is None:
            raise MergeConfigError(f"The statement is no MERGE into a Delta table; it was read as {plan.nodeName()}.")
        return command

    def _find_command(self, plan: JavaObject) -> JavaObject | None:
        if plan.getClass().getSimpleName() == "MergeIntoCommand":
            return plan
        for child in scala_list(plan.children()):
            found = self._find_command(child)
            if found is not None:
                return found
        return None

    # Plans

    def referenced_source(self, command: JavaObject) -> DataFrame:
        """The source, narrowed to the columns that the condition and the clauses use."""
        attribute_set = self.module("org.apache.spark.sql.catalyst.expressions.AttributeSet")
        references = attribute_set.apply(command.expressions())
        source = command.source()
        output = scala_list(source.output())
        used = [attribute for attribute in output if references.contains(attribute)]
        if len(used) < len(output):
            project = self.jvm.org.apache.spark.sql.catalyst.plans.logical.Project
            source = project(self.seq(used), source)
        return self.data_frame(source)

    def checkpoint(
        self, frame: DataFrame, storage_level: StorageLevel, observed: Sequence[Column]
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Compute a DataFrame once, cut its lineage and aggregate it in the same pass.

        :param frame: what to compute; the result keeps its attributes, so resolved expressions still bind.
        :param storage_level: where its rows are kept.
        :param observed: named aggregates, at least one.
        :return: the checkpointed DataFrame and the aggregates by name, as py4j converts them.
        """
        observation = self.jvm.org.apache.spark.sql.Observation()
        columns = [_jc(column) for column in observed]
        observing = _jdf(frame).observe(observation, columns[0], self.seq(columns[1:]))
        level = self.spark.sparkContext._getJavaStorageLevel(storage_level)
        checkpointed = observing.localCheckpoint(True, level)
        values = observation.get()
        names = scala_list(values.keys().toSeq())
        return ClassicDataFrame(checkpointed, self.spark), {name: values.apply(name) for name in names}

    def checkpoint_rdd(self, frame: DataFrame) -> JavaObject:
        """The RDD behind :meth:`checkpoint`, to ask for its size and to release it."""
        return _jdf(frame).queryExecution().analyzed().collectLeaves().head().rdd()

    def stored_bytes(self, rdd: JavaObject) -> int:
        """Memory and disk that a persisted RDD takes."""
        for info in self.spark.sparkContext._jsc.sc().getRDDStorageInfo():
            if info.id() == rdd.id():
                return int(info.memSize()) + int(info.diskSize())
        return 0

    def target_frame(self, command: JavaObject, transaction: JavaObject, files: FileSet) -> DataFrame:
        """The target restricted to ``files``, with the attributes that the command's expressions refer to."""
        index = self._file_index(command, transaction, files)
        utils = self.module("org.apache.spark.sql.delta.DeltaTableUtils")
        return self.data_frame(utils.replaceFileIndex(command.target(), index))

    def target_frame_with_positions(
        self, command: JavaObject, transaction: JavaObject, files: FileSet, *, path: str, row_index: str
    ) -> DataFrame:
        """:meth:`target_frame` plus two columns: the file's path (URI, as Spark encodes it) and the row's index in it.

        Tables without deletion vectors hide the row index, so the relation gets a file format whose protocol
        knows deletion vectors; that only makes the column visible.
        """
        index = self._file_index(command, transaction, files)
        helper = self.module("org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper")
        plan = self._with_row_index_format(command.target())
        frame = helper.createTargetDfForScanningForMatches(self.session, plan, index)
        metadata = self._metadata_attribute(frame.queryExecution().analyzed())
        column = self.column(metadata)
        return ClassicDataFrame(frame, self.spark).select(
            "*", column.getField("file_path").alias(path), column.getField("row_index").alias(row_index)
        )

    def _metadata_attribute(self, plan: JavaObject) -> JavaObject:
        """The relation's own metadata struct: the last attribute, whatever columns users named ``_metadata``."""
        return plan.output().last()

    def _with_row_index_format(self, plan: JavaObject) -> JavaObject:
        name = plan.getClass().getSimpleName()
        if name == "Project":
            project = self.jvm.org.apache.spark.sql.catalyst.plans.logical.Project
            return project(plan.projectList(), self._with_row_index_format(plan.child()))
        if name != "LogicalRelation":  # an alias or a view: names, no attributes of its own
            return self._with_row_index_format(plan.child())
        relation = plan.relation()
        file_format = relation.fileFormat()
        feature = self.module("org.apache.spark.sql.delta.DeletionVectorsTableFeature")
        protocols = self.module("org.apache.spark.sql.delta.actions.Protocol")
        supporting = protocols.forTableFeature(feature)
        visible = file_format.copy(
            file_format.protocol().merge(self.seq([supporting])),
            file_format.metadata(),
            file_format.nullableRowTrackingConstantFields(),
            file_format.nullableRowTrackingGeneratedFields(),
            file_format.optimizationsEnabled(),
            file_format.tablePath(),
            file_format.isCDCRead(),
        )
        with_format = self.jvm.org.apache.spark.sql.execution.datasources.HadoopFsRelation(
            relation.location(),
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            visible,
            relation.options(),
            relation.sparkSession(),
        )
        return plan.copy(
            with_format, plan.output(), plan.catalogTable(), plan.isStreaming(), getattr(plan, "copy$default$5")()
        )

    def _file_index(self, command: JavaObject, transaction: JavaObject, files: FileSet) -> JavaObject:
        log = transaction.deltaLog()
        return self.jvm.org.apache.spark.sql.delta.files.TahoeBatchFileIndex(
            self.session, "batch", files.files, log, command.targetFileIndex().path(), transaction.snapshot(), False
        )

    # Clauses

    def condition(self, command: JavaObject) -> Column:
        return self.column(command.condition())

    def _conjuncts(self, command: JavaObject, expression: JavaObject) -> list[JavaObject]:
        return scala_list(command.splitConjunctivePredicates(expression))

    def target_only_conjuncts(self, command: JavaObject) -> list[Column]:
        """The parts of the ON condition that mention no source column."""
        return self._target_only(command, self._conjuncts(command, command.condition()))

    def target_only_clause_conjuncts(self, command: JavaObject) -> list[list[Column]]:
        """The same parts of each matched clause's condition, clause by clause."""
        conditions = [clause.condition() for clause in scala_list(command.matchedClauses())]
        return [
            self._target_only(command, self._conjuncts(command, condition.get())) if condition.isDefined() else []
            for condition in conditions
        ]

    def _target_only(self, command: JavaObject, expressions: Iterable[JavaObject]) -> list[Column]:
        target = command.target().outputSet()
        return [self.column(each) for each in expressions if each.references().subsetOf(target)]

    def equalities(self, command: JavaObject) -> list[Equality]:
        """The parts of the ON condition that compare a target column with an expression over the source alone."""
        found = []
        for conjunct in self._conjuncts(command, command.condition()):
            name = conjunct.getClass().getSimpleName()
            if name in ("EqualTo", "EqualNullSafe"):
                sides = conjunct.left(), conjunct.right()
                for target, source in (sides, sides[::-1]):
                    column = self._plain_target_column(command, target)
                    if column is not None and self._is_over_source(command, source):
                        found.append(
                            Equality(
                                target=self.column(column),
                                source=self.column(source),
                                type=column.dataType().catalogString(),
                                null_safe=name == "EqualNullSafe",
                            )
                        )
                        break
        return found

    def _is_over_source(self, command: JavaObject, expression: JavaObject) -> bool:
        references = expression.references()
        return not references.isEmpty() and references.subsetOf(command.source().outputSet())

    def _plain_target_column(self, command: JavaObject, expression: JavaObject) -> JavaObject | None:
        """The target's attribute if the expression is one, or widens one from an integer type to another."""
        if expression.getClass().getSimpleName() == "Cast":
            child = expression.child()
            types = child.dataType().catalogString(), expression.dataType().catalogString()
            if not all(each in _INTEGERS for each in types) or _INTEGERS.index(types[0]) > _INTEGERS.index(types[1]):
                return None
            expression = child
        is_attribute = expression.getClass().getSimpleName() == "AttributeReference"
        return expression if is_attribute and command.target().outputSet().contains(expression) else None

    def copied_columns(self, command: JavaObject) -> list[JavaObject]:
        """The expressions that copy a target row into the table's final schema, as JVM ``Alias``es in its order."""
        return scala_list(command.postEvolutionTargetExpressions(False))

    def clauses(self, command: JavaObject, copied: Sequence[JavaObject]) -> list[ResolvedClause]:
        """All clauses in the grammar's order, their values in the order of ``copied``."""
        resolved = []
        kinds: tuple[tuple[ClauseKind, JavaObject], ...] = (
            ("matched", command.matchedClauses()),
            ("not matched", command.notMatchedClauses()),
            ("not matched by source", command.notMatchedBySourceClauses()),
        )
        for kind, clauses in kinds:
            for clause in scala_list(clauses):
                resolved.append(self._clause(kind, clause, copied))
        return resolved

    def _clause(self, kind: ClauseKind, clause: JavaObject, copied: Sequence[JavaObject]) -> ResolvedClause:
        condition = clause.condition()
        column = self.column(condition.get()) if condition.isDefined() else None
        action: ClauseAction = clause.clauseType().lower()
        if action == "delete":
            return ResolvedClause(kind, action, column)
        expressions = [resolved.expr() for resolved in scala_list(clause.resolvedActions())]
        values = tuple(self.column(expression) for expression in expressions)
        changes = tuple(
            not expression.semanticEquals(copy.child()) for expression, copy in zip(expressions, copied, strict=True)
        )
        return ResolvedClause(kind, action, column, values, changes)

    # Transaction and files

    def start_transaction(self, command: JavaObject) -> JavaObject:
        """Start a transaction on the target and make it the thread's active one, which pins what it reads."""
        transaction = command.targetFileIndex().deltaLog().startTransaction(command.catalogTable(), self.none)
        self.module("org.apache.spark.sql.delta.OptimisticTransaction").setActive(transaction)
        return transaction

    def clear_transaction(self) -> None:
        self.module("org.apache.spark.sql.delta.OptimisticTransaction").clearActive()

    def file_set(self, files: JavaObject) -> FileSet:
        """Totals of a JVM sequence of ``AddFile``s."""
        base = self.module("org.apache.spark.sql.delta.commands.MergeIntoCommandBase")
        totals = base.totalBytesAndDistinctPartitionValues(files)
        records = self.module("org.apache.spark.sql.delta.NumRecordsStats").fromActions(files)
        rows = records.numLogicalRecordsAdded()
        return FileSet(
            files=files,
            count=int(files.size()),
            num_bytes=int(totals._1()),
            partitions=int(totals._2()),
            num_rows=int(rows.get()) if rows.isDefined() else None,
        )

    def filter_files(self, transaction: JavaObject, predicates: Iterable[JavaObject]) -> FileSet:
        """The files that may hold rows for which all predicates are true; the transaction notes them as read."""
        return self.file_set(transaction.filterFiles(self.seq(predicates), True))

    def select_files(
        self, command: JavaObject, transaction: JavaObject, candidates: FileSet, paths: Sequence[str]
    ) -> FileSet:
        """Those of ``candidates`` whose encoded paths are given."""
        if len(paths) == candidates.count:
            return candidates
        data_path = transaction.deltaLog().dataPath()
        by_name = command.generateCandidateFileMap(data_path, candidates.files)
        return self.file_set(self.seq(command.getTouchedFile(data_path, path, by_name) for path in paths))

    def resolve_predicate(self, frame: DataFrame, predicate: Column) -> JavaObject:
        """A predicate as ``filterFiles`` wants it: resolved over ``frame`` and folded to constants."""
        plan = _jdf(frame.filter(predicate)).queryExecution().analyzed()
        folding = self.module("org.apache.spark.sql.catalyst.optimizer.ConstantFolding")
        return folding.apply(plan).condition()

    # Aggregates

    def distinct_count(self, numbers: Column) -> Column:
        """Exact number of distinct values of a long column, NULLs left out, by Delta's bitmap aggregate.

        One compressed bitmap a group is kept, so counting millions of row indexes costs kilobytes.
        """
        portable = self.module("org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArrayFormat").Portable()
        bitmap = self.jvm.org.apache.spark.sql.catalyst.expressions.aggregation.BitmapAggregator(
            self._expression_utils.expression(_jc(numbers)), portable
        )
        return self.column(bitmap.toAggregateExpression(False, self.none)).getField("cardinality")

    # Commit

    def has_been_executed(self, command: JavaObject, transaction: JavaObject) -> bool:
        """Whether the table has a commit by the session's ``txnAppId`` with its ``txnVersion`` or a later one."""
        return bool(command.hasBeenExecuted(transaction, self.session, self.none))

    def prepare_transaction(self, command: JavaObject, transaction: JavaObject) -> None:
        """Check that the table is as it was analysed, and let its schema and identity columns move on.

        :raises MergeExecutionError: when the schema, type widening or identity values changed since analysis.
        """
        analysed, metadata = command.target().schema(), transaction.metadata()
        if analysed.size() != metadata.schema().size():
            errors = self.module("org.apache.spark.sql.delta.DeltaErrors")
            raise _from_throwable(errors.schemaChangedSinceAnalysis(analysed, metadata.schema(), False))
        index = command.targetFileIndex()
        self.module("org.apache.spark.sql.delta.TypeWidening").ensureFeatureConsistentlyEnabled(
            index.protocol(),
            index.metadata(),
            transaction.protocol(),
            metadata,
            transaction.tableNameOrPath(),
        )
        if command.canMergeSchema():
            schema = command.migratedSchema()
            command.updateMetadata(
                self.session,
                transaction,
                schema.get() if schema.isDefined() else command.target().schema(),
                metadata.partitionColumns(),
                metadata.configuration(),
                False,
                False,
            )
        command.checkIdentityColumnHighWaterMarks(transaction)
        transaction.setTrackHighWaterMarks(command.trackHighWaterMarks())

    def writes_change_data(self, command: JavaObject, transaction: JavaObject) -> bool:
        """Whether the table has its change data feed on."""
        return bool(command.isCdcEnabled(transaction))

    def writes_deletion_vectors(self, command: JavaObject, transaction: JavaObject) -> bool:
        """Whether rows are marked as deleted instead of files rewritten: the table and the session allow it."""
        return bool(command.shouldWritePersistentDeletionVectors(self.session, transaction))

    def with_row_tracking(self, transaction: JavaObject, frame: DataFrame) -> tuple[DataFrame, list[TrackingColumn]]:
        """Rows of the target with their stable row ids and commit versions, if the table tracks them.

        :return: the frame with up to two further columns, and what they are.
        """
        snapshot = transaction.snapshot()
        tracking = self.module("org.apache.spark.sql.delta.RowTracking")
        if not tracking.isEnabled(snapshot.protocol(), snapshot.metadata()):
            return frame, []
        preserved = tracking.preserveRowTrackingColumns(_jdf(frame), snapshot)
        compat = self.module("org.apache.spark.sql.delta.IcebergCompat")
        field_ids = compat.isGeqEnabled(transaction.metadata(), 3)
        columns = []
        for kind, materialized in (
            ("RowId", "MaterializedRowId"),
            ("RowCommitVersion", "MaterializedRowCommitVersion"),
        ):
            attribute = self.module(f"org.apache.spark.sql.delta.{materialized}").getAttribute(snapshot, preserved)
            if attribute.isDefined():
                name = str(attribute.get().name())
                metadata = self.module(f"org.apache.spark.sql.delta.{kind}").columnMetadata(name, field_ids)
                columns.append(TrackingColumn(name, self.column(attribute.get()), kind == "RowCommitVersion", metadata))
        return ClassicDataFrame(preserved, self.spark), columns

    def tracking_alias(self, value: Column, tracking: TrackingColumn) -> Column:
        """A column under the name and metadata by which Delta knows a row tracking column."""
        return ClassicColumn(getattr(_jc(value), "as")(tracking.name, tracking.metadata))

    def write_files(self, transaction: JavaObject, rows: DataFrame) -> JavaObject:
        return transaction.writeFiles(_jdf(rows))

    def optimizes_write(self, transaction: JavaObject) -> bool:
        """Whether Delta's optimized write will arrange the files."""
        writes = self.module("org.apache.spark.sql.delta.files.TransactionalWrite")
        return bool(writes.shouldOptimizeWrite(transaction.metadata(), self.session.sessionState().conf()))

    def split_change_files(self, actions: JavaObject) -> tuple[FileSet, int, int]:
        """The data files among the actions of a write with change data; count and bytes of the change files."""
        by_class: dict[str, list[JavaObject]] = {"AddFile": [], "AddCDCFile": []}
        for action in scala_list(actions):
            by_class[action.getClass().getSimpleName()].append(action)
        change_files = by_class["AddCDCFile"]
        change_bytes = sum(int(file.size()) for file in change_files)
        return self.file_set(self.seq(by_class["AddFile"])), len(change_files), change_bytes

    def remove_actions(self, files: FileSet) -> JavaObject:
        """Actions that remove the files from the table."""
        return self.seq(file.remove() for file in scala_list(files.files))

    def deletion_vector_actions(
        self,
        command: JavaObject,
        transaction: JavaObject,
        files: FileSet,
        rows: DataFrame,
    ) -> tuple[JavaObject, dict[str, int], FileSet]:
        """Write deletion vectors that mark ``rows`` in ``files``, on top of those the files have.

        :param rows: columns ``path`` (encoded URI) and ``row_index`` (long); a row may appear more than once.
        :return: the file actions, Delta's counts of deletion vectors and removed files, and the files of which no
            row is left.
        """
        generator = self.module("org.apache.spark.sql.delta.commands.DeletionVectorBitmapGenerator")
        helper = self.module("org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper")
        statistics = self.module("org.apache.spark.sql.delta.stats.StatsCollectionUtils")
        literals = self.module("org.apache.spark.sql.catalyst.expressions.Literal")
        marked = generator.buildRowIndexSetsForFilesMatchingCondition(
            self.session,
            transaction,
            True,
            _jdf(rows),
            files.files,
            literals.TrueLiteral(),
            self.some(_jc(F.col("path"))),
            self.some(_jc(F.col("row_index"))),
        )
        by_name = command.generateCandidateFileMap(transaction.deltaLog().dataPath(), files.files)
        touched = helper.findFilesWithMatchingRows(transaction, by_name, marked)
        prefix_length = statistics.getDataSkippingStringPrefixLength(self.session, transaction.metadata())
        done = helper.processUnmodifiedData(self.session, touched, transaction.snapshot(), prefix_length)
        counts = {name: int(done._2().apply(name)) for name in scala_list(done._2().keys().toSeq())}
        emptied = [file.fileLogEntry() for file in scala_list(touched) if file.isFullyReplaced()]
        return done._1(), counts, self.file_set(self.seq(emptied))

    def concat(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """One JVM sequence of two."""
        return first.concat(second)

    def commit_merge(self, command: JavaObject, transaction: JavaObject, actions: JavaObject) -> int | None:
        """Commit as operation MERGE with the command's predicates and metrics, as Delta's own command does.

        :param actions: JVM sequence of file actions.
        :return: the committed version; None when there was nothing to commit.
        """
        predicate = self.module("org.apache.spark.sql.delta.DeltaOperations$MergePredicate")
        by_kind = [
            self.seq(predicate.apply(clause) for clause in scala_list(clauses))
            for clauses in (
                command.matchedClauses(),
                command.notMatchedClauses(),
                command.notMatchedBySourceClauses(),
            )
        ]
        operation = self.module("org.apache.spark.sql.delta.DeltaOperations$Merge").apply(
            self.some(command.condition()), *by_kind
        )
        executed = command.createSetTransaction(self.session, transaction.deltaLog(), self.none)
        actions = executed.toList().concat(actions)
        records = self.module("org.apache.spark.sql.delta.NumRecordsStats").fromActions(actions)
        command.validateNumRecords(actions, records, operation, transaction.deltaLog())
        transaction.registerSQLMetrics(self.session, command.metrics())
        no_tags = self.module("scala.collection.immutable.Map").empty()
        tags = self.module("org.apache.spark.sql.delta.RowTracking").addPreservedRowTrackingTagIfNotSet(
            transaction.snapshot(), no_tags
        )
        version = transaction.commitIfNeeded(actions, operation, tags)
        return int(version.get()) if version.isDefined() else None

    def recache_target(self, command: JavaObject) -> None:
        """Let cached plans that read the target be computed anew."""
        self.session.sharedState().cacheManager().recacheByPlan(self.session, command.target())

    # Facts

    def sql_metrics(self, command: JavaObject) -> dict[str, JavaObject]:
        metrics = command.metrics()
        return {name: metrics.apply(name) for name in scala_list(metrics.keys().toSeq())}

    def version_read(self, transaction: JavaObject) -> int:
        return int(transaction.readVersion())

    def table_size(self, transaction: JavaObject) -> tuple[int, int]:
        """Files and bytes of the table as the transaction reads it."""
        snapshot = transaction.snapshot()
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def partition_columns(self, transaction: JavaObject) -> list[str]:
        return [str(name) for name in scala_list(transaction.metadata().partitionColumns())]

    def table_name(self, command: JavaObject) -> str:
        """The target's qualified name, or its path."""
        table = command.catalogTable()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        return str(command.targetFileIndex().deltaLog().dataPath().toString())

    def multiple_matches_error(self) -> MergeExecutionError:
        errors = self.module("org.apache.spark.sql.delta.DeltaErrors")
        return _from_throwable(errors.multipleSourceRowMatchingTargetRowInMergeException(self.session))


def scala_list(sequence: JavaObject) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def _jdf(frame: DataFrame) -> JavaObject:
    return frame._jdf


def _jc(column: Column) -> JavaObject:
    return column._jc


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]


def raises_merge_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let Spark's and Delta's errors leave ``function`` as :class:`MergeExecutionError` with their condition."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (Py4JJavaError, PySparkException) as error:
            raise _merge_error(error) from error

    return wrapped


def _merge_error(error: Py4JJavaError | PySparkException) -> MergeExecutionError:
    while isinstance(error.__context__, Py4JJavaError):
        # PySpark looks Delta's conditions up in Spark's list, fails, and raises that failure: the cause is before it.
        error = error.__context__
    origin = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if origin is None:
        assert isinstance(error, PySparkException)
        return MergeExecutionError(str(error), condition=error.getCondition(), sql_state=error.getSqlState())
    return _from_throwable(origin)


def _from_throwable(throwable: JavaObject) -> MergeExecutionError:
    causes = [throwable]
    while (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    conditions = [(_call(cause, "getCondition") or _call(cause, "getErrorClass"), cause) for cause in causes]
    told = [(condition, cause) for condition, cause in conditions if condition is not None]
    # A task's failure to write says nothing by itself: the condition is that of its cause.
    telling = [each for each in told if each[0] != "TASK_WRITE_FAILED"] or told
    condition = telling[0][0] if telling else None
    sql_state = _call(telling[0][1], "getSqlState") if telling else None
    messages = [str(cause.getMessage() or cause.getClass().getName()) for cause in causes]
    message = messages[0] if messages[-1] in messages[0] else f"{messages[0]} Caused by: {messages[-1]}"
    return MergeExecutionError(message, condition=condition, sql_state=sql_state)


def _call(throwable: JavaObject, method: str) -> str | None:
    try:
        value = getattr(throwable, method)()
    except Py4JError:  # this throwable has no such method
        return None
    return None if value is None else str(value)
