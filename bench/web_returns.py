"""Delta's own merge benchmark: its grid of cases on a table like its own.

The grid's numbers, keys and clauses are those of `benchmarks/src/main/scala/benchmark/MergeTestCases.scala` in
delta-io/delta. The rows are made here in place of TPC-DS's `web_returns`: the same columns, order numbers that grow
from file to file. Delta samples files, then rows, at random; here hashes choose them. Delta gives new rows random
fractions between 0 and 1 for keys, outside of those that the table has; here they are negative whole numbers.
"""

from __future__ import annotations

from airflow_delta_merge.config import MergeClause, when_not_matched_insert_all
from bench.case import DELETE, INSERT, UPSERT, Case, Regime
from bench.data import Table

_FILES = 40
_NUMBERS = (
    *("returned_date_sk", "returned_time_sk", "refunded_customer_sk", "refunded_cdemo_sk", "refunded_hdemo_sk"),
    *("refunded_addr_sk", "returning_customer_sk", "returning_cdemo_sk", "returning_hdemo_sk", "returning_addr_sk"),
    *("web_page_sk", "reason_sk", "return_quantity"),
)
_AMOUNTS = (
    *("return_amt", "return_tax", "return_amt_inc_tax", "fee", "return_ship_cost", "refunded_cash"),
    *("reversed_charge", "account_credit", "net_loss"),
)
_KEYS = ("wr_order_number", "wr_item_sk")
# Three rows an order, as in TPC-DS an order has several items, and no item twice.
_COLUMNS = (
    "id div 3 + 1 AS wr_order_number",
    "pmod(xxhash64(id), 6000) * 3 + id % 3 + 1 AS wr_item_sk",
    *(f"pmod(xxhash64(id, {seed}), 100000) AS wr_{name}" for seed, name in enumerate(_NUMBERS, 1)),
    *(
        f"cast(pmod(xxhash64(id, {seed}), 1000000) / 100 AS decimal(7, 2)) AS wr_{name}"
        for seed, name in enumerate(_AMOUNTS, 50)
    ),
)
_TABLE = Table(name="web_returns", rows=2_000_000, files=_FILES, columns=_COLUMNS)
_PARTS = 100_000


def _source(files: float, matched: float, not_matched: float) -> str:
    """Rows of some of the files: a fraction of them as they are, another one under new keys."""
    step = round(1 / files)  # every file, every second one, every twentieth
    # An order's rows may lie in two files, but only at a border.
    of_files = f"((wr_order_number - 1) * 3 div {{rows_per_file}}) % {step} = {step // 2}"
    order, item = _KEYS
    draw = f"pmod(xxhash64({order}, {item}, {{seed}}), {_PARTS})"
    same = f"SELECT * FROM {{table}} WHERE {of_files} AND {draw.replace('{seed}', '100')} < {round(matched * _PARTS)}"
    new = (
        f"SELECT -{order} AS {order}, * EXCEPT ({order}) FROM {{table}} "
        f"WHERE {of_files} AND {draw.replace('{seed}', '101')} < {round(not_matched * _PARTS)}"
    )
    return f"{same} UNION ALL {new}"


def _case(kind: str, clauses: tuple[MergeClause, ...], files: float, matched: float, not_matched: float) -> Case:
    return Case(
        name=f"{kind}_files_{files}_matched_{matched}_new_{not_matched}",
        regime=Regime.LITTLE_IN_MUCH if files < 0.5 else Regime.MUCH_TO_CHANGE,
        table=_TABLE,
        source=_source(files, matched, not_matched),
        on=_KEYS,
        clauses=clauses,
        group="web_returns",
    )


_INSERT_BY_TWO = (when_not_matched_insert_all(condition="source.wr_item_sk % 2 = 0"), when_not_matched_insert_all())
#: Fractions of files, of their rows that match, of their rows that come again under new keys.
_UPSERTS = (
    *((0.05, matched, 0.1) for matched in (0.0, 0.01, 0.1)),
    *((0.05, matched, 0.001) for matched in (0.5, 0.99, 1.0)),
    (0.05, 0.1, 0.0),
    (0.5, 0.01, 0.001),
    (1.0, 0.01, 0.001),
)


def web_returns_cases() -> list[Case]:
    """The grid: inserts by one clause and by two, a delete, upserts."""
    return [
        *(_case("single_insert", INSERT, 0.05, 0.0, new) for new in (0.05, 0.5, 1.0)),
        *(_case("multiple_insert", _INSERT_BY_TWO, 0.05, 0.0, new) for new in (0.05, 0.5, 1.0)),
        _case("delete", DELETE, 0.05, 0.05, 0.0),
        *(_case("upsert", UPSERT, *fractions) for fractions in _UPSERTS),
    ]
