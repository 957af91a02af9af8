"""Merges into files as large as those of tables that are kept: 28 columns of mixed types, 60 and 250 MB each."""

from __future__ import annotations

from dataclasses import replace

from airflow_delta_merge.config import (
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from bench.case import DELETE, UPSERT, Case, Regime
from bench.data import Table

GROUP = "real_files"


def _number(salt: int, below: int) -> str:
    """A number that seems drawn by chance."""
    return f"pmod(xxhash64(id, {salt}), {below})"


_COLUMNS = (
    "id",
    "date_add(date'2024-01-01', cast(id * 60 div {rows} as int)) as day",
    "md5(concat('order ', cast(id as string))) as order_key",
    f"{_number(1, 50_000)} as customer",
    f"concat('SKU-', lpad(cast({_number(2, 20_000)} as string), 8, '0')) as product",
    f"element_at(array('new', 'paid', 'sent', 'back', 'lost'), cast({_number(3, 5)} as int) + 1) as status",
    f"element_at(array('DE', 'FR', 'PL', 'IN', 'US', 'BR', 'JP'), cast({_number(4, 7)} as int) + 1) as country",
    f"cast({_number(5, 100_000_000)} / 100 as decimal(18, 2)) as amount",
    f"cast({_number(6, 2_500)} / 100 as decimal(9, 2)) as tax",
    f"cast({_number(7, 1_000_000)} as double) / 777 as weight",
    f"cast({_number(8, 1_000)} as float) / 7 as rating",
    f"cast({_number(9, 100)} as int) as quantity",
    f"cast({_number(10, 30)} as smallint) as priority",
    f"cast({_number(11, 4)} as tinyint) as channel",
    f"{_number(12, 2)} = 0 as is_gift",
    f"timestamp_seconds(1704067200 + id * 86400 * 60 div {{rows}} + {_number(13, 60)}) as ordered_at",
    f"if({_number(14, 10)} = 0, null, timestamp_seconds(1704067200 + {_number(15, 5_184_000)})) as sent_at",
    f"cast(timestamp_seconds(1704067200 + {_number(16, 5_184_000)}) as timestamp_ntz) as local_time",
    f"date_add(date'2024-01-01', cast({_number(17, 400)} as int)) as due",
    f"if({_number(18, 3)} = 0, concat('note ', md5(cast(id as string)), ' on the parcel'), null) as note",
    f"concat({_number(19, 9_000)}, ' Main Street') as street",
    f"concat('city ', {_number(20, 3_000)}) as city",
    f"cast({_number(21, 90_000)} + 10000 as string) as zip",
    f"concat('user', {_number(22, 200_000)}, '@example.org') as mail",
    f"{_number(23, 1 << 40)} as device",
    f"array({_number(24, 9)}, {_number(25, 9)}) as tags",
    f"named_struct('page', {_number(26, 500)}, 'source', concat('campaign ', {_number(27, 40)})) as visit",
    "false as is_deleted",
)
_ORDERS = Table(name="orders_60_mb", columns=_COLUMNS, rows=3_000_000, files=6)
_LARGE_ORDERS = Table(name="orders_250_mb", columns=_COLUMNS, rows=4_200_000, files=2)
#: The same under keys that no file can be left out by.
_UNSORTED = "order_key"

_CHANGED = (
    "SELECT * EXCEPT (id, order_key, amount), cast(amount + 1 AS decimal(18, 2)) AS amount, id, order_key "
    "FROM {table} WHERE"
)
_NEW = (
    "SELECT * EXCEPT (id, order_key, amount), amount, id + {rows} AS id, md5(concat('new ', id)) AS order_key "
    "FROM {table} WHERE"
)
_DAY = "day = date'2024-02-01'"
_SPREAD = "id % 1000 = 7"


def _case(name: str, source: str, regime: Regime = Regime.MUCH_TO_CHANGE, **others: object) -> Case:
    case = Case(
        name=f"real_{name}",
        regime=regime,
        table=_ORDERS,
        source=source,
        on=("id",),
        clauses=UPSERT,
        group=GROUP,
    )
    return replace(case, **others)  # type: ignore[arg-type]


_CASES = [
    _case("day_upsert", f"{_CHANGED} {_DAY} UNION ALL {_NEW} {_DAY} AND id % 10 = 0", Regime.LITTLE_IN_MUCH),
    _case("late_data_over_all_files", f"{_CHANGED} {_SPREAD} UNION ALL {_NEW} {_SPREAD} AND id % 10 = 0"),
    _case("delete_spread_thin", f"SELECT id FROM {{table}} WHERE {_SPREAD}", clauses=DELETE),
    _case("random_keys", f"{_CHANGED} {_SPREAD} UNION ALL {_NEW} {_SPREAD}", on=(_UNSORTED,)),
    _case(
        "one_column_updated",
        f"SELECT id, cast(amount + 1 AS decimal(18, 2)) AS amount FROM {{table}} WHERE {_SPREAD}",
        clauses=(when_matched_update(set={"amount": "source.amount"}),),
    ),
    _case(
        "change_data_feed",
        f"{_CHANGED} {_SPREAD} UNION ALL {_NEW} {_SPREAD} AND id % 10 = 0",
        table=_ORDERS.with_properties(enableChangeDataFeed="true"),
    ),
    _case(
        "delete_and_upsert",
        f"{_CHANGED} id % 100 = 7 UNION ALL {_NEW} {_SPREAD}",
        clauses=(
            when_matched_delete(condition="source.status = 'lost'"),
            when_matched_update_all(),
            when_not_matched_insert_all(),
        ),
    ),
    _case("few_updates_many_inserts", f"{_CHANGED} id % 20000 = 7 UNION ALL {_NEW} id % 20 = 0"),
    _case("large_files_late_data", f"{_CHANGED} {_SPREAD} UNION ALL {_NEW} {_SPREAD}", table=_LARGE_ORDERS),
    _case(
        "large_files_day_upsert",
        f"{_CHANGED} {_DAY} UNION ALL {_NEW} {_DAY} AND id % 10 = 0",
        Regime.LITTLE_IN_MUCH,
        table=_LARGE_ORDERS,
    ),
]
_ALSO_WITH_DELETION_VECTORS = ("real_day_upsert", "real_late_data_over_all_files", "real_delete_spread_thin")


def real_files_cases() -> list[Case]:
    """All of them, those with deletion vectors after those without."""
    with_vectors = [
        replace(case, name=f"{case.name}_dv", table=case.table.with_properties(enableDeletionVectors="true"))
        for case in _CASES
        if case.name in _ALSO_WITH_DELETION_VECTORS
    ]
    return [*_CASES, *with_vectors]
