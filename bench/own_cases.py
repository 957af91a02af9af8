"""The cases of our own: which merge runs on which table with which source. This is the place to add one."""

from __future__ import annotations

from dataclasses import replace

from airflow_delta_merge.config import (
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_insert,
    when_not_matched_insert_all,
)
from bench.case import DELETE, INSERT, UPSERT, Case, Regime
from bench.data import Table
from bench.events import (
    CHANGED,
    EVENTS,
    EVENTS_LARGE,
    EVERY_20TH_SAME_BUT_FEW,
    EVERY_400TH,
    MOSTLY_NEW,
    NEW,
    ONE_DAY,
    ONE_FILE,
    SAME,
)

_LITTLE_IN_MUCH = [
    Case(
        name="one_day_of_a_year",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=ONE_DAY,
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="append_mostly_upsert",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=MOSTLY_NEW,
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="insert_only_few_matches",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=MOSTLY_NEW,
        on=("id",),
        clauses=INSERT,
    ),
    Case(
        name="insert_only_many_matches",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=f"SELECT {SAME} FROM {{table}} WHERE id % 20 = 3 "
        f"UNION ALL SELECT {NEW} FROM {{table}} WHERE id % 400 = 3",
        on=("id",),
        clauses=INSERT,
    ),
    Case(
        name="condition_almost_never_true",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=EVERY_20TH_SAME_BUT_FEW,
        on=("id",),
        clauses=(when_matched_update_all(condition="source.amount <> target.amount"),),
    ),
    Case(
        name="condition_almost_never_true_with_insert",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=f"{EVERY_20TH_SAME_BUT_FEW} UNION ALL SELECT {NEW} FROM {{table}} WHERE id % 40000 = 3",
        on=("id",),
        clauses=(
            when_matched_update_all(condition="source.amount <> target.amount"),
            when_not_matched_insert_all(),
        ),
    ),
    Case(
        name="sliding_window_sync",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=f"SELECT {CHANGED} FROM {{table}} WHERE day >= date'2024-12-25' AND id % 50 <> 0 "
        f"UNION ALL SELECT {NEW} FROM {{table}} WHERE day = date'2024-12-25'",
        on=("id",),
        clauses=(*UPSERT, when_not_matched_by_source_delete(condition="target.day >= date'2024-12-25'")),
    ),
    Case(
        name="delete_by_key",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=ONE_FILE,
        on=("id",),
        clauses=DELETE,
    ),
    Case(
        name="scd2",
        regime=Regime.LITTLE_IN_MUCH,
        table=Table(
            name="scd2",
            columns=(
                "id",
                "id as customer",
                "concat('street ', md5(cast(id as string))) as address",
                "true as is_current",
                "date_add(date'2023-01-01', cast(id * 365 div {rows} as int)) as valid_from",
                "cast(null as date) as valid_to",
            ),
        ),
        # One customer in a thousand of a fifth of the table moved; as many are new.
        source="SELECT customer, concat('new ', address) as address, date'2024-06-01' as valid_from FROM {table} "
        "WHERE id < {rows} div 5 AND id % 200 = 0 UNION ALL "
        "SELECT customer + {rows}, address, date'2024-06-01' FROM {table} WHERE id < {rows} div 5 AND id % 2000 = 0",
        # The known pattern: each changed customer comes twice, by its key to end the old row, without to add the new.
        source_query="SELECT s.customer AS merge_key, s.* FROM {source} s UNION ALL "
        "SELECT NULL AS merge_key, s.* FROM {source} s JOIN {target} t ON s.customer = t.customer "
        "WHERE t.is_current AND s.address <> t.address",
        on="target.customer = source.merge_key",
        keys=("customer", "is_current", "address"),
        clauses=(
            when_matched_update(
                set={"is_current": "false", "valid_to": "source.valid_from"},
                condition="target.is_current AND target.address <> source.address",
            ),
            when_not_matched_insert(
                values={
                    "id": "source.customer",
                    "customer": "source.customer",
                    "address": "source.address",
                    "is_current": "true",
                    "valid_from": "source.valid_from",
                    "valid_to": "NULL",
                }
            ),
        ),
        not_in_delta_rs="its source joins the target",
    ),
    Case(
        name="change_feed_with_deletes",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=f"SELECT {CHANGED}, if(id % 10 = 0, 'D', 'U') as operation FROM {{table}} "
        "WHERE id BETWEEN {rows} div 4 AND {rows} div 4 + {rows_per_file} "
        f"UNION ALL SELECT {NEW}, 'I' FROM {{table}} WHERE id % 4000 = 0",
        on=("id",),
        clauses=(
            when_matched_delete(condition="source.operation = 'D'"),
            when_matched_update(set={"amount": "source.amount", "quantity": "source.quantity"}),
            when_not_matched_insert(
                condition="source.operation <> 'D'",
                values={
                    name: f"source.{name}" for name in ("id", "day", "account", "region", "amount", "quantity", "note")
                },
            ),
        ),
    ),
    Case(
        name="string_keys",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=ONE_DAY,
        on=("account",),
        clauses=UPSERT,
    ),
    Case(
        name="composite_keys",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source=ONE_DAY,
        on=("region", "day", "account"),
        clauses=UPSERT,
    ),
    Case(
        name="non_equi_condition",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS,
        source="SELECT id as first, id + 49 as last FROM {table} WHERE id % ({rows} div 20) = 1",
        on="target.id BETWEEN source.first AND source.last",
        keys=("id",),
        clauses=(when_matched_update(set={"amount": "target.amount + 1"}),),
    ),
    Case(
        name="partitioned",
        regime=Regime.LITTLE_IN_MUCH,
        table=replace(
            EVENTS,
            name="partitioned",
            columns=(*EVENTS.columns, "cast(id * 12 div {rows} as int) as month"),
            layout="PARTITIONED BY (month)",
        ),
        source=f"SELECT {CHANGED}, month FROM {{table}} WHERE month = 6 AND id % 20 = 0 "
        f"UNION ALL SELECT {NEW}, 11 as month FROM {{table}} WHERE month = 6 AND id % 200 = 0",
        on=("month", "id"),
        clauses=UPSERT,
    ),
    Case(
        name="clustered",
        regime=Regime.LITTLE_IN_MUCH,
        table=replace(EVENTS, name="clustered", layout="CLUSTER BY (day)"),
        source=ONE_DAY,
        on=("id",),
        clauses=UPSERT,
        not_in_delta_rs="it does not write clustered tables (CommitFailedError: Unsupported table features required)",
    ),
    Case(
        name="wide_table_200_columns",
        regime=Regime.LITTLE_IN_MUCH,
        table=Table(
            name="wide",
            rows=200_000,
            columns=(
                "id",
                *(
                    f"cast(pmod(xxhash64(id, {n}), 1000) as int) as i{n}"
                    if n % 2
                    else f"concat('v', pmod(xxhash64(id, {n}), 1000)) as s{n}"
                    for n in range(1, 200)
                ),
            ),
        ),
        source="SELECT id, i1 + 1 as i1 FROM {table} WHERE id BETWEEN {rows} div 8 AND {rows} div 4 AND id % 20 = 0",
        on=("id",),
        clauses=(when_matched_update(set={"i1": "source.i1"}),),
    ),
    Case(
        name="change_data_feed",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS.with_properties(enableChangeDataFeed="true"),
        source=ONE_DAY,
        on=("id",),
        clauses=UPSERT,
    ),
]

_ALL_ROWS = replace(EVENTS, name="million", rows=1_000_000, files=10)
_UUID = replace(EVENTS, name="uuid", columns=("md5(cast(id as string)) as uuid", *EVENTS.columns[1:]))

_MUCH_TO_CHANGE = [
    Case(
        name="late_data_over_all_files",
        regime=Regime.MUCH_TO_CHANGE,
        table=EVENTS,
        source=EVERY_400TH,
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="delete_spread_thin",
        regime=Regime.MUCH_TO_CHANGE,
        table=EVENTS,
        source="SELECT id FROM {table} WHERE id % 400 = 7",
        on=("id",),
        clauses=DELETE,
    ),
    Case(
        name="uuid_keys",
        regime=Regime.MUCH_TO_CHANGE,
        table=_UUID,
        source="SELECT * EXCEPT (amount), amount + 1 as amount FROM {table} WHERE pmod(xxhash64(uuid), 400) = 7 "
        "UNION ALL SELECT md5(uuid), * EXCEPT (uuid, amount), amount FROM {table} WHERE pmod(xxhash64(uuid), 4000) = 7",
        on=("uuid",),
        clauses=UPSERT,
    ),
    Case(
        name="insert_only_uuid_keys",
        regime=Regime.MUCH_TO_CHANGE,
        table=_UUID,
        source="SELECT * FROM {table} WHERE pmod(xxhash64(uuid), 400) = 7 "
        "UNION ALL SELECT md5(uuid), * EXCEPT (uuid) FROM {table} WHERE pmod(xxhash64(uuid), 5) = 3",
        on=("uuid",),
        clauses=INSERT,
    ),
    Case(
        name="skewed_keys",
        regime=Regime.MUCH_TO_CHANGE,
        table=replace(
            _ALL_ROWS,
            name="skewed",
            columns=(*EVENTS.columns, "if(id % 2 = 0, 0, id) as customer"),
        ),
        source="SELECT DISTINCT customer, 7 as quantity FROM {table} WHERE customer = 0 OR customer % 100 = 1",
        on=("customer",),
        clauses=(when_matched_update(set={"quantity": "source.quantity"}),),
    ),
    Case(
        name="change_data_feed_all_files",
        regime=Regime.MUCH_TO_CHANGE,
        table=EVENTS.with_properties(enableChangeDataFeed="true"),
        source=EVERY_400TH,
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="all_rows_updated",
        regime=Regime.MUCH_TO_CHANGE,
        table=_ALL_ROWS,
        source=f"SELECT {CHANGED} FROM {{table}}",
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="source_larger_than_target",
        regime=Regime.MUCH_TO_CHANGE,
        table=_ALL_ROWS,
        source=f"SELECT {CHANGED} FROM {{table}} WHERE id % 2 = 0 UNION ALL SELECT {NEW} FROM {{table}}",
        on=("id",),
        clauses=UPSERT,
    ),
]

_SMALL = replace(EVENTS, name="small", rows=1_000, files=2, scales=False)

_FIXED_COSTS = [
    Case(
        name="small_table",
        regime=Regime.FIXED_COSTS,
        table=_SMALL,
        source=f"SELECT {CHANGED} FROM {{table}} WHERE id % 100 = 0 "
        f"UNION ALL SELECT {NEW} FROM {{table}} WHERE id % 200 = 0",
        on=("id",),
        clauses=UPSERT,
    ),
    Case(
        name="source_of_one_row",
        regime=Regime.FIXED_COSTS,
        table=EVENTS,
        source=f"SELECT {CHANGED} FROM {{table}} WHERE id = {{rows}} div 2 + 17",
        on=("id",),
        clauses=UPSERT,
    ),
]

#: Tables of one size in more and more files; 40 files are `one_day_of_a_year`.
_FILES = [
    Case(
        name=f"files_{files}",
        regime=Regime.LITTLE_IN_MUCH,
        table=EVENTS if files == EVENTS.files else replace(EVENTS, name=f"files{files}", files=files),
        source=ONE_DAY,
        on=("id",),
        clauses=UPSERT,
        group="files",
        # 40 are in another case already, and to make 10,000 takes over a minute.
        in_default=files in (1, 1_000),
    )
    for files in (1, 40, 1_000, 10_000)
]


#: What grows with the table shows on a table of some size: the same merges where fixed costs are small beside the rest.
_LARGE = ("one_day_of_a_year", "delete_by_key", "late_data_over_all_files_dv", "delete_spread_thin_dv")


def _on_large_table(case: Case) -> Case:
    table = replace(EVENTS_LARGE, properties=case.table.properties)
    return replace(case, name=f"large_{case.name}", table=table, group="large")


#: A table whose rows were all deleted has no files, as a new one.
_EMPTIED = replace(EVENTS, name="events_emptied", then="DELETE FROM {table}")
_FIRST_LOADS = [
    Case(
        name=f"first_load_{what}",
        regime=Regime.MUCH_TO_CHANGE,
        table=_EMPTIED,
        source="SELECT * FROM {table} VERSION AS OF 0",
        on=("id",),
        clauses=clauses,
        group="first_load",
        in_default=False,
    )
    for what, clauses in (("upsert", UPSERT), ("insert_only", INSERT))
]

SCALING_GROUP = "scaling"
#: A table that grows by the file, the same four files touched.
_SCALING = [
    Case(
        name=f"scaling_{files}",
        regime=Regime.LITTLE_IN_MUCH,
        table=replace(EVENTS, name=f"scaling{files}", rows=400 * files, files=files, scales=False),
        source=f"SELECT {CHANGED} FROM {{table}} WHERE id BETWEEN 8010 AND 9590",
        on=("id",),
        clauses=UPSERT,
        group=SCALING_GROUP,
        in_default=False,
    )
    for files in (100, 1_000, 10_000)
]


def _with_deletion_vectors(case: Case) -> Case:
    return replace(
        case,
        name=f"{case.name}_dv",
        table=case.table.with_properties(enableDeletionVectors="true"),
    )


def _with_deletion_vectors_there(case: Case) -> Case:
    """The same on a table of which each file has a deletion vector already."""
    table = replace(case.table.with_properties(enableDeletionVectors="true"), name="events_dv_there")
    return replace(
        _with_deletion_vectors(case),
        name=f"{case.name}_dv_there",
        table=replace(table, then="DELETE FROM {table} WHERE id % 1000 = 1"),
    )


_ALSO_WITH_DELETION_VECTORS = (
    "one_day_of_a_year",
    "condition_almost_never_true",
    "sliding_window_sync",
    "delete_by_key",
    "late_data_over_all_files",
    "delete_spread_thin",
    "change_data_feed_all_files",
    "all_rows_updated",
    "small_table",
)
_ALSO_WITH_DELETION_VECTORS_THERE = ("late_data_over_all_files", "delete_spread_thin")


def own_cases() -> list[Case]:
    """All of them, those with deletion vectors after those without."""
    plain = [*_LITTLE_IN_MUCH, *_MUCH_TO_CHANGE, *_FIXED_COSTS]
    with_vectors = [_with_deletion_vectors(case) for case in plain if case.name in _ALSO_WITH_DELETION_VECTORS]
    return [
        *plain,
        *with_vectors,
        *(_on_large_table(case) for case in (*plain, *with_vectors) if case.name in _LARGE),
        *(_with_deletion_vectors_there(case) for case in plain if case.name in _ALSO_WITH_DELETION_VECTORS_THERE),
        *_FILES,
        *_FIRST_LOADS,
        *_SCALING,
    ]
