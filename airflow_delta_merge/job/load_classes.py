"""The PySpark application whose classes Java stores in the class archive; ``runtime.class_archive`` starts it."""

from __future__ import annotations

import sys

from airflow_delta_merge import engine
from airflow_delta_merge.job.session import start_session

#: Merges that load the useful classes: a new table, all kinds of clauses, with and without deletion vectors, from
#: files and with the strategies of small and larger merges.
_CREATE = (
    "CREATE TABLE {t} (id BIGINT, day DATE, name STRING) USING delta PARTITIONED BY (day) "
    "TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
)
_MERGES = (
    "MERGE INTO {t} AS t USING (SELECT * FROM {s} WHERE id < 10) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    """MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id
    WHEN MATCHED AND s.id = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE""",
)
_SOURCE = "SELECT id, DATE'2026-01-01' + CAST(id % 2 AS INT) AS day, CAST(id AS STRING) AS name FROM range(5, 15)"


def main(folder: str, progress: str) -> None:
    """Merge into tables in ``folder``, so that all classes for merges are loaded.

    :param progress: prefix of the lines on stdout that describe the progress.
    """
    spark = start_session()
    try:
        source = f"{folder}/source"
        print(f"{progress}Spark is running.", flush=True)
        spark.sql(_SOURCE).write.parquet(source)
        merges = 3 * len(_MERGES)
        for number, vectors in enumerate(("false", "true", "false")):
            table = f"delta.`{folder}/table{number}`"
            spark.sql(_CREATE.format(t=table, vectors=vectors))
            for nth, merge in enumerate(_MERGES, number * len(_MERGES) + 1):
                print(f"{progress}Merge {nth} of {merges}.", flush=True)
                engine.merge_sql(spark, merge.format(t=table, s=f"parquet.`{source}`"))
            spark.conf.set("spark.deltaMerge.smallMergeBytes", "0")
    finally:
        spark.stop()
    print(f"{progress}The merges are done. Java writes the archive, about 200 MB.", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
