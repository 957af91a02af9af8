"""The table that most cases of our own merge into, and sources made of its rows."""

from __future__ import annotations

from dataclasses import replace

from bench.data import Table

#: A year of events in the order of their time: what most tables that get daily merges look like.
EVENTS = Table(
    name="events",
    columns=(
        "id",
        "date_add(date'2024-01-01', cast(id * 366 div {rows} as int)) as day",
        "format_string('ACCOUNT-%012d', id) as account",
        "cast(pmod(xxhash64(id, 1), 16) as int) as region",
        "cast(pmod(xxhash64(id, 2), 1000000) as double) / 100 as amount",
        "cast(pmod(xxhash64(id, 3), 100) as int) as quantity",
        "concat('note on ', md5(cast(id as string))) as note",
    ),
)
#: The same events in as many files as a table has that nobody compacted, and more rows.
EVENTS_LARGE = replace(EVENTS, name="events_large", rows=24_000_000, files=1_000)
CHANGED = "id, day, account, region, amount + 1 as amount, quantity, note"
NEW = (
    "id + {rows} as id, date'2024-12-31' as day, format_string('ACCOUNT-%012d', id + {rows}) as account, "
    "region, amount, quantity, note"
)
SAME = "id, day, account, region, amount, quantity, note"

#: One day's rows changed, and a tenth as many new.
ONE_DAY = (
    f"SELECT {CHANGED} FROM {{table}} WHERE day = date'2024-07-01' "
    f"UNION ALL SELECT {NEW} FROM {{table}} WHERE day = date'2024-07-01' AND id % 10 = 0"
)
EVERY_400TH = f"SELECT {CHANGED} FROM {{table}} WHERE id % 400 = 7"
MOSTLY_NEW = (
    f"SELECT {NEW} FROM {{table}} WHERE id % 80 = 0 "
    f"UNION ALL SELECT {CHANGED} FROM {{table}} WHERE id >= {{rows}} - {{rows}} div 4000"
)
ONE_FILE = "SELECT id FROM {table} WHERE id >= {rows} div 2 AND id < {rows} div 2 + {rows_per_file} div 10"
#: A twentieth of the table as it is, but for one row in a hundred thousand.
EVERY_20TH_SAME_BUT_FEW = (
    "SELECT id, day, account, region, if(id % 2000000 = 20, amount + 1, amount) as amount, quantity, note "
    "FROM {table} WHERE id % 20 = 0"
)
