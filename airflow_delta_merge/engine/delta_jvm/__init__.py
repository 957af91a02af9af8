"""The only package that uses py4j: every class, constructor and ``MODULE$`` of Spark and Delta is accessed here.

The rest of the engine sees DataFrames, Columns and plain Python values. It passes JVM objects from here (file
sequences, metadata) back without looking inside. This code follows the sources of Delta 4.4 and Spark 4.2;
:mod:`~airflow_delta_merge.engine.delta_jvm.versions` has the differences of other versions.
"""

from __future__ import annotations

from airflow_delta_merge.engine.delta_jvm.copies import CopyTerms, add_elsewhere
from airflow_delta_merge.engine.delta_jvm.errors import (
    COMMIT,
    Progress,
    raises_merge_errors,
    without_bare_errors,
)
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, without_call_sites
from airflow_delta_merge.engine.delta_jvm.join_hints import JoinHints
from airflow_delta_merge.engine.delta_jvm.lineage import MergeTrees, trees_of
from airflow_delta_merge.engine.delta_jvm.reads import (
    FILE_FORMATS,
    locations_of,
    locations_of_merge,
    qualified,
    reads_of_text,
)
from airflow_delta_merge.engine.delta_jvm.shared_files import read_shared_file, remove_shared_folder, write_shared_file
from airflow_delta_merge.engine.delta_jvm.spark_ui import in_background, shown_in_spark_ui
from airflow_delta_merge.engine.delta_jvm.statement import Equality, ResolvedClause, ResolvedMerge
from airflow_delta_merge.engine.delta_jvm.tables import (
    analysed_plan,
    columns_from,
    columns_of,
    is_delta_path,
    is_of_type,
)
from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TrackingColumn
from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction, WrittenFiles
from airflow_delta_merge.engine.delta_jvm.usage import (
    MergeStep,
    record_operation,
    record_source_error,
    recorded_operation,
)

__all__ = [
    "COMMIT",
    "FILE_FORMATS",
    "CopyTerms",
    "Equality",
    "FileSet",
    "Gateway",
    "JavaObject",
    "JoinHints",
    "MergeStep",
    "MergeTransaction",
    "MergeTrees",
    "Progress",
    "ResolvedClause",
    "ResolvedMerge",
    "TrackingColumn",
    "WrittenFiles",
    "add_elsewhere",
    "analysed_plan",
    "columns_from",
    "columns_of",
    "in_background",
    "is_delta_path",
    "is_of_type",
    "locations_of",
    "locations_of_merge",
    "qualified",
    "raises_merge_errors",
    "read_shared_file",
    "reads_of_text",
    "record_operation",
    "record_source_error",
    "recorded_operation",
    "remove_shared_folder",
    "shown_in_spark_ui",
    "trees_of",
    "without_bare_errors",
    "without_call_sites",
    "write_shared_file",
]
