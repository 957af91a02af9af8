"""Hypothesis strategies for merge configs whose names and literals are as hostile as they may be."""

from __future__ import annotations

from hypothesis import strategies as st

from airflow_delta_merge.config import (
    GUARDED_COUNTS,
    ClauseKind,
    CreateTable,
    MergeClause,
    MergeConfig,
    MergeGuards,
    MergeSource,
    MergeTarget,
    SourceExpectations,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_by_source_update,
    when_not_matched_insert,
    when_not_matched_insert_all,
)
from airflow_delta_merge.identifiers import quote_multipart

# Any character but halves of surrogate pairs; often the ones that mean something to SQL.
_ODD = st.sampled_from("`.'\"\\-/* ;,()=%{}\n\tabßü数😀")
NAME_PARTS = st.text(_ODD | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)
NAMES = st.lists(NAME_PARTS, min_size=1, max_size=3).map(lambda parts: quote_multipart(tuple(parts)))
COLUMNS = NAME_PARTS.map(lambda part: quote_multipart((part,)))


def _string_literal(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return f"'{text}'"


LITERALS = st.one_of(
    NAME_PARTS.map(_string_literal),
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(["NULL", "true", "1.5D", "DATE'2024-02-29'", "X'00FF'", "'-- no comment'", "'/* nor this'"]),
)
CONDITIONS = st.tuples(COLUMNS, st.sampled_from(["=", "<=>", "<", "<>"]), LITERALS).map(" ".join)
MAYBE = st.none() | CONDITIONS
ASSIGNMENTS = st.dictionaries(COLUMNS, LITERALS, min_size=1, max_size=3)

TARGETS = NAMES.map(lambda name: MergeTarget(table=name)) | NAME_PARTS.map(lambda path: MergeTarget(path=path))
SOURCES = st.one_of(
    NAMES.map(lambda name: MergeSource(table=name)),
    LITERALS.map(lambda literal: MergeSource(query=f"SELECT {literal} AS `id`")),
    st.builds(
        MergeSource.of_path,
        st.lists(NAME_PARTS, min_size=1, max_size=2),
        format=st.none() | st.sampled_from(["csv", "parquet"]),
        options=st.none() | st.dictionaries(NAME_PARTS, st.booleans() | NAME_PARTS, max_size=2),
    ),
)
CLAUSES = {
    ClauseKind.MATCHED: st.one_of(
        st.builds(when_matched_update, set=ASSIGNMENTS, condition=MAYBE),
        st.builds(when_matched_update_all, condition=MAYBE),
        st.builds(when_matched_delete, condition=MAYBE),
    ),
    ClauseKind.NOT_MATCHED: st.one_of(
        st.builds(when_not_matched_insert, values=ASSIGNMENTS, condition=MAYBE),
        st.builds(when_not_matched_insert_all, condition=MAYBE),
    ),
    ClauseKind.NOT_MATCHED_BY_SOURCE: st.one_of(
        st.builds(when_not_matched_by_source_update, set=ASSIGNMENTS, condition=MAYBE),
        st.builds(when_not_matched_by_source_delete, condition=MAYBE),
    ),
}


CREATE_TABLES = st.builds(
    CreateTable,
    columns=st.none() | NAME_PARTS,
    cluster_by=st.lists(COLUMNS, max_size=2).map(tuple),
    properties=st.dictionaries(NAME_PARTS, NAME_PARTS, max_size=2),
)
AT_MOST_1 = ("updated_fraction", "deleted_fraction")
BOUNDLESS = [name for name in GUARDED_COUNTS if name not in AT_MOST_1]
GUARDS = st.builds(
    MergeGuards,
    fail_if=st.lists(CONDITIONS, max_size=2).map(tuple)
    | st.dictionaries(st.sampled_from(BOUNDLESS), st.floats(0, 1e9) | st.integers(0, 10**9), max_size=2)
    | st.dictionaries(st.sampled_from(AT_MOST_1), st.floats(0, 1) | st.integers(0, 1), max_size=2),
    on_empty_source=st.sampled_from(["merge", "skip", "fail"]),
    expect_source=st.none()
    | st.builds(
        SourceExpectations,
        unique=st.lists(COLUMNS, min_size=1, max_size=2, unique_by=str.lower),
        not_null=st.lists(COLUMNS, max_size=1),
        columns=st.dictionaries(COLUMNS, NAME_PARTS, max_size=1),
        sample=st.sampled_from(["keys", "rows", "none"]),
    ),
)


@st.composite
def _clause_lists(draw: st.DrawFn) -> tuple[MergeClause, ...]:
    """One or more clauses in any order of kinds, each but the last of its kind with a condition."""
    clauses: list[MergeClause] = []
    for kind in draw(st.permutations(list(ClauseKind))):
        of_kind = draw(st.lists(CLAUSES[kind], max_size=2))
        clauses += [clause for clause in of_kind[:-1] if clause.condition is not None] + of_kind[-1:]
    return tuple(clauses) or (when_matched_delete(),)


@st.composite
def _configs(draw: st.DrawFn) -> MergeConfig:
    keys = st.lists(COLUMNS, min_size=1, max_size=2, unique=True)
    on = draw(CONDITIONS | keys)
    aliases = draw(st.lists(NAME_PARTS, min_size=2, max_size=2, unique_by=str.lower))
    return MergeConfig(
        target=draw(TARGETS),
        source=draw(SOURCES),
        on=on,  # type: ignore[arg-type]
        clauses=draw(_clause_lists()),
        null_safe=not isinstance(on, str) and draw(st.booleans()),
        target_alias=aliases[0],
        source_alias=aliases[1],
        with_schema_evolution=draw(st.booleans()),
        create_table=draw(st.none() | CREATE_TABLES),
        guards=draw(GUARDS),
    )


CONFIGS = _configs()
