"""A MERGE statement as Delta's analyzer resolves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.conjuncts import Conjuncts
from airflow_delta_merge.engine.delta_jvm.errors import from_throwable, raises_merge_errors
from airflow_delta_merge.engine.delta_jvm.gateway import (
    Gateway,
    JavaObject,
    analysed_plan,
    class_name_of,
    jdf,
    scala_list,
    scala_option,
)
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError

ClauseKind = Literal["matched", "not matched", "not matched by source"]
ClauseAction = Literal["update", "delete", "insert"]
#: The column with the text of a row that the file reader can't parse; no source has a column of this name.
BAD_ROW = "_delta_merge_bad_row_"
# Scripts (BEGIN … END) and EXECUTE IMMEDIATE: Spark would run and commit them while it analyses them.
_RUN_WHILE_ANALYSED = ("CompoundBody", "ExecuteImmediateQuery", "UnresolvedExecuteImmediate")


@dataclass(frozen=True)
class ResolvedClause:
    """A ``WHEN`` clause after Delta's analyzer.

    :param kind: the rows that it applies to.
    :param action: the action on these rows.
    :param condition: its boolean condition over source and target, or None.
    :param values: the new row's columns in the order of the table's final schema; empty for deletes.
    :param changes: for updates, whether each of ``values`` differs from the column that it replaces.
    :param needs_only_the_source: for updates, whether ``values`` use no column of the target.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Column | None
    values: tuple[Column, ...] = ()
    changes: tuple[bool, ...] = ()
    needs_only_the_source: bool = False


class ResolvedMerge:
    """Delta's ``MergeIntoCommand`` for a statement, resolved with Delta's full dialect and never executed.

    It is the optimized command, as Spark would execute it: constants are folded, ``current_timestamp()`` is fixed.
    The plans of source and target inside it are only analysed.

    :param statement: a MERGE statement.
    :raises MergeConfigError: when the statement is not a MERGE.
    :raises MergeExecutionError: when its target is not a Delta table.
    """

    def __init__(self, gateway: Gateway, statement: str) -> None:
        self._gateway = gateway
        self._null_keys: tuple[Column, str] | None = None
        state = gateway.session.sessionState()
        parsed = state.sqlParser().parsePlan(statement)
        if class_name_of(parsed) in _RUN_WHILE_ANALYSED:
            raise _no_merge(parsed)
        skip = gateway.module("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        #: Spark's ``QueryExecution`` of the command.
        self.execution: JavaObject = state.executePlan(parsed, skip)
        plan = self.execution.optimizedPlan()
        command = _find_command(plan)
        if command is None:
            raise _no_delta_merge(plan)
        if command is not plan:
            self.execution = state.executePlan(command, skip)
        # Spark's physical plan holds a copy of the optimized command. Listeners look for the metrics in that copy.
        self.command: JavaObject = self.execution.executedPlan().cmd()

    @cached_property
    def condition(self) -> Column:
        """The ON condition."""
        return self._gateway.column(self.command.condition())

    @cached_property
    def joins_by_python(self) -> bool:
        """Whether the ON condition calls a Python function."""
        patterns = self._gateway.module("org.apache.spark.sql.catalyst.trees.TreePattern")
        return bool(self.command.condition().containsPattern(patterns.PYTHON_UDF()))

    @cached_property
    def conjuncts(self) -> Conjuncts:
        """The conjuncts of its conditions.

        :raises MergeExecutionError: when ON is no boolean. Filters by it would be refused with another error condition,
            as Delta does with an untyped NULL.
        """
        on = self.command.condition()
        if (type_ := str(on.dataType().catalogString())) not in ("boolean", "void"):
            raise MergeExecutionError(
                f"The ON condition {on.sql()} has type {type_}. It must be a boolean.",
                condition="JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE",
            )
        return Conjuncts(self._gateway, self.command)

    @cached_property
    def _copies(self) -> JavaObject:
        """JVM sequence of aliases that copy a target row into the table's final schema."""
        return self.command.postEvolutionTargetExpressions(False)

    @cached_property
    def _copied_target(self) -> JavaObject:
        """JVM plan of the target's rows in the table's final schema."""
        return self._projected(self._copies, self.command.target())

    @cached_property
    def can_copy_rows(self) -> bool:
        """Whether Spark can cast each column of a row that stays to the type that it evolves to."""
        return bool(self._copied_target.resolved())

    @cached_property
    def column_names(self) -> list[str]:
        """The columns of the table's final schema."""
        if not self.can_copy_rows:
            return [str(copied.name()) for copied in scala_list(self._copies)]
        return list(self._gateway.as_json(self._copied_target.schema().fieldNames()))

    @cached_property
    def column_types(self) -> list[str]:
        """Their types, as Spark SQL writes them."""
        return [str(copy.dataType().catalogString()) for copy in scala_list(self._copies)]

    @cached_property
    def copied_columns(self) -> list[Column]:
        """The target row in the final schema: each column unchanged, widened, or NULL if it is new."""
        return [self._gateway.column(copied) for copied in self._copied]

    @cached_property
    def copied_row(self) -> Column:
        """:attr:`copied_columns` as a struct with the names of the final schema, in one call."""
        struct = self._gateway.module("org.apache.spark.sql.catalyst.expressions.CreateStruct")
        return self._gateway.column(struct.apply(self._copies))

    @cached_property
    def _copied(self) -> list[JavaObject]:
        """The expressions behind the aliases, as JVM objects."""
        return [copy.child() for copy in scala_list(self._copies)]

    @cached_property
    def clauses(self) -> list[ResolvedClause]:
        """All clauses in the grammar's order."""
        kinds: tuple[tuple[ClauseKind, JavaObject], ...] = (
            ("matched", self.command.matchedClauses()),
            ("not matched", self.command.notMatchedClauses()),
            ("not matched by source", self.command.notMatchedBySourceClauses()),
        )
        return [self._clause(kind, clause) for kind, clauses in kinds for clause in scala_list(clauses)]

    def _clause(self, kind: ClauseKind, clause: JavaObject) -> ResolvedClause:
        condition = scala_option(clause.condition())
        column = None if condition is None else self._boolean(kind, condition)
        action: ClauseAction = clause.clauseType().lower()
        if action == "delete":
            return ResolvedClause(kind, action, column)
        actions = clause.resolvedActions()
        expressions = [resolved.expr() for resolved in scala_list(actions)]
        values = tuple(self._gateway.column(expression) for expression in expressions)
        if action == "insert":
            return ResolvedClause(kind, action, column, values)
        pairs = zip(expressions, self._copied, strict=True)
        changes = tuple(not expression.semanticEquals(copied) for expression, copied in pairs)
        from_source = bool(self._gateway.attribute_set(actions).subsetOf(self.command.source().outputSet()))
        return ResolvedClause(kind, action, column, values, changes, from_source)

    def _boolean(self, kind: ClauseKind, condition: JavaObject) -> Column:
        type_ = str(condition.dataType().catalogString())
        if type_ == "boolean":
            return self._gateway.column(condition)
        refused_with = self._condition_of_refusal(kind, type_)
        if refused_with is None:
            return F.lit(None).cast("boolean")
        raise MergeExecutionError(
            f"The condition {condition.sql()} of a {kind} clause has type {type_}. It must be a boolean.",
            condition=refused_with,
        )

    def _condition_of_refusal(self, kind: ClauseKind, type_: str) -> str | None:
        """Delta's error condition for a clause's condition that is no boolean; None for an untyped NULL that it takes.

        Delta checks no types. The first plan that can't use the condition fails: one that calls a function with it,
        filters by it, combines it by AND and OR, for which a string is cast, or branches by it.
        """
        matched, inserts = int(self.command.matchedClauses().size()), int(self.command.notMatchedClauses().size())
        by_source = int(self.command.notMatchedBySourceClauses().size())
        is_void = type_ == "void"
        if matched + inserts == 1 and not by_source:
            return "CANNOT_UP_CAST_DATATYPE" if matched and not is_void else "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"
        if is_void and {"matched": matched, "not matched": inserts}.get(kind, by_source) == 1:
            return None
        is_combined = self._marks_rows if by_source or (matched and inserts) else bool(matched)
        is_cast = is_void or type_ == "string"
        return f"DATATYPE_MISMATCH.{'BINARY_OP_DIFF_TYPES' if is_combined and not is_cast else 'UNEXPECTED_INPUT_TYPE'}"

    @property
    def _marks_rows(self) -> bool:
        """Whether Delta would mark rows by deletion vectors in this thread's transaction."""
        transaction = scala_option(self._gateway.delta("OptimisticTransaction").getActive())
        session = self._gateway.session
        return transaction is not None and bool(self.command.shouldWritePersistentDeletionVectors(session, transaction))

    def may_change(self, columns: Sequence[str]) -> bool:
        """Whether an update may change one of these columns to a value that ON does not say to equal the old one.

        :param columns: columns of the table's final schema.
        """
        if not columns:  # most tables have no partitions
            return False
        clauses = [*scala_list(self.command.matchedClauses()), *scala_list(self.command.notMatchedBySourceClauses())]
        updates = [each.resolvedActions() for each in clauses if each.clauseType() == "Update"]
        for position in (position for position, name in enumerate(self.column_names) if name in columns):
            same = self.conjuncts.equal_to(self._copied[position])
            new = [update.apply(position).expr() for update in updates]
            if not all(any(value.semanticEquals(each) for each in same) for value in new):
                return True
        return False

    def sql_metrics(self) -> dict[str, JavaObject]:
        """The command's SQL metrics by Delta's names, as JVM objects."""
        metrics = self.command.metrics()
        names = str(metrics.keys().mkString(" ")).split()
        return {name: metrics.apply(name) for name in names}

    @cached_property
    def materialization(self) -> tuple[bool, JavaObject]:
        """Whether Delta would materialize this source, and its reason for or against (a Scala enumeration's value)."""
        source, insert_only = self.command.source(), bool(self.command.isInsertOnly())
        found = self.command.shouldMaterializeSource(self._gateway.session, source, insert_only)
        return bool(found._1()), found._2()

    def source_lost_error(self) -> MergeExecutionError:
        """Delta's error for a materialized source that was lost in each attempt, for the caller to raise."""
        return from_throwable(self._gateway.delta("DeltaErrors").sourceMaterializationFailedRepeatedlyInMerge())

    def table_name(self) -> str:
        """The target's qualified name, or its path."""
        table = scala_option(self.command.catalogTable())
        return self.location() if table is None else str(table.identifier().unquotedString())

    def location(self) -> str:
        """The target's folder or URI."""
        return str(self.command.targetFileIndex().deltaLog().dataPath().toString())

    # Source and target

    def refuse_null_keys(self, is_null: Column, message: str) -> None:
        """Make :meth:`source_frame` raise an error when a row with a NULL key is read.

        :param is_null: whether a row of the source has such a key.
        :param message: the error's message.
        """
        self._null_keys = is_null, message

    def whole_source_frame(self) -> DataFrame:
        """The source with all its columns."""
        return self._gateway.data_frame(self.command.source())

    def source_frame(self, also: Sequence[Column] = ()) -> DataFrame:
        """The source, narrowed to the columns that the condition and the clauses use.

        :param also: further expressions whose columns are kept.
        """
        used = self._gateway.attribute_set(self.command.expressions())
        if also:
            looked_at = analysed_plan(self.whole_source_frame().select(*also))
            used = getattr(used, "$plus$plus")(looked_at.references())
        source = self.command.source()
        if not source.outputSet().subsetOf(used):
            source = self._projected(source.outputSet().intersect(used).toSeq(), source)
        frame = self._gateway.data_frame(source)
        if self._null_keys is None:
            return frame
        is_null, message = self._null_keys
        return frame.filter(F.assert_true(~is_null, message).isNull())

    def _projected(self, columns: JavaObject, plan: JavaObject) -> JavaObject:
        return self._gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")(columns, plan)

    @cached_property
    def reads_whole_files(self) -> bool:
        """Whether the source is all rows of a table or of files; the size of a database's rows isn't known."""
        plan = self.command.source()
        while (name := class_name_of(plan)) in ("Project", "SubqueryAlias", "View") or (
            name == "Filter" and BAD_ROW in str(plan.condition().toString())  # drops few rows or none
        ):
            plan = plan.child()
        return name == "LogicalRelation" and class_name_of(plan.relation()) != "JDBCRelation"

    @cached_property
    def estimated_source_bytes(self) -> int:
        """Spark's estimate of the size of :meth:`source_frame`; often far too high.

        It makes Spark optimize the source's plan, which chooses the files of Delta tables.
        """
        plan = jdf(self.source_frame()).queryExecution().optimizedPlan()
        return int(str(plan.stats().sizeInBytes()))

    def counting_rows(self, source: DataFrame) -> DataFrame:
        """The source's rows, counted into the command's SQL metric ``numSourceRows`` whenever they are computed.

        Delta's own MERGE counts in this way. Rows of a task that Spark runs again after it finished count twice.
        """
        return source.filter(self._gateway.column(self.command.incrementMetricAndReturnBool("numSourceRows", True)))

    @raises_merge_errors()
    def refuse_streams(self) -> None:
        """Refuse a source that reads a stream, which only a streaming query may read.

        :raises MergeExecutionError: with Spark's message for it, before anything else trips over the stream.
        """
        source = self.command.source()
        if source.isStreaming():
            checker = self._gateway.module("org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
            checker.checkForBatch(source)

    def refuse_void_columns(self) -> None:
        """Refuse to add an untyped column of NULLs if the session drops such columns when it reads.

        :raises MergeExecutionError: with Delta's DELTA_MERGE_ADD_VOID_COLUMN.
        """
        schema = scala_option(self.command.migratedSchema())
        if schema is None or not by_version.refuses_void_columns(self._gateway):
            return
        column = scala_option(self._gateway.delta("schema.SchemaUtils").findNullTypeColumn(schema))
        if column is not None:
            raise from_throwable(self._gateway.delta("DeltaErrors").mergeAddVoidColumn(column))

    def recache_target(self) -> None:
        """Invalidate cached plans that read the target, so that they are computed again."""
        session = self._gateway.session
        session.sharedState().cacheManager().recacheByPlan(session, self.command.target())


def _no_delta_merge(plan: JavaObject) -> MergeConfigError | MergeExecutionError:
    if class_name_of(plan) != "MergeIntoTable":
        return _no_merge(plan)
    return MergeExecutionError(
        f"The target is not a Delta table but {plan.targetTable().nodeName()}. MERGE needs a Delta table, or a view "
        "that is a plain SELECT * of one.",
        condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
        sql_state="0A000",
    )


def _no_merge(plan: JavaObject) -> MergeConfigError:
    return MergeConfigError(f"The statement is not a MERGE; Spark parsed it as {plan.nodeName()}.")


def _find_command(plan: JavaObject) -> JavaObject | None:
    if class_name_of(plan) == "MergeIntoCommand":
        return plan
    for child in scala_list(plan.children()):
        found = _find_command(child)
        if found is not None:
            return found
    return None
