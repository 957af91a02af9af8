"""The error conditions of Delta and Spark that a MERGE can raise, selected by reading Delta 4.4's sources.

Each is raised by a differential case, in both engines, or has a reason why no case can raise it here. ``errors.py``
finds the cases; ``test_error_list.py`` checks that nothing is missing, also not of the conditions that other
statements raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Section:
    """Conditions that one part of a merge raises.

    :param title: the part.
    :param sources: Delta's or Spark's sources that raise them.
    :param raised: the conditions that cases raise.
    :param unreachable: conditions that no case raises, and why.
    """

    title: str
    sources: str
    raised: tuple[str, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)


_BY_API = "Spark's parser refuses the SQL first"
_INTERNAL = "internal check; no statement reaches it"
_DAMAGED = "needs a damaged table; every reader fails the same way"
_SETTING = "the session refuses the setting before any merge"
_OTHER_FORMAT = "for other formats Spark raises UNSUPPORTED_FEATURE.TABLE_OPERATION"
_BUILDS_ONLY = "raised by CREATE or ALTER TABLE, so no such table exists"

SECTIONS = (
    Section(
        "Reading and resolving the statement",
        "Spark's parser and analyzer",
        raised=(
            "PARSE_SYNTAX_ERROR",
            "MERGE_WITHOUT_WHEN",
            "MERGE_INSERT_VALUE_COUNT_MISMATCH",
            "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
            "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
            "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
            "TABLE_OR_VIEW_NOT_FOUND",
            "PATH_NOT_FOUND",
            "UNRESOLVED_ROUTINE",
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
            "AMBIGUOUS_REFERENCE",
            "INVALID_ATTRIBUTE_NAME_SYNTAX",
            "INVALID_EXTRACT_BASE_FIELD_TYPE",
            "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE",
            "CANNOT_UP_CAST_DATATYPE",
            "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES",
            "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN",
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            "DATATYPE_MISMATCH.INVALID_ORDERING_TYPE",
            "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
            "DATATYPE_MISMATCH.CAST_WITH_CONF_SUGGESTION",
            "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION",
            "COLLATION_MISMATCH.EXPLICIT",
            "FIELD_NOT_FOUND",
            "MISSING_AGGREGATION",
            "MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
            "REQUIRES_SINGLE_PART_NAMESPACE",
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "UNSUPPORTED_EXPR_FOR_OPERATOR",
            "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT",
            "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.UNSUPPORTED_CORRELATED_SCALAR_SUBQUERY",
            "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.UNSUPPORTED_IN_EXISTS_SUBQUERY",
            "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
        ),
    ),
    Section(
        "Delta's resolution: names, stars, the target",
        "DeltaAnalysis, ResolveDeltaMergeInto, deltaMerge",
        raised=(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
            "DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET",
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
            "DELTA_UNSUPPORTED_SOURCE",
            "DELTA_TABLE_NOT_FOUND",
            "DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION",
            "DELTA_UNEXPECTED_PARTIAL_SCAN",
        ),
        unreachable={
            "DELTA_MERGE_MISSING_WHEN": _BY_API,
            "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION": _BY_API,
            "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION": _BY_API,
            "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION": _BY_API,
            "DELTA_MERGE_UNEXPECTED_ASSIGNMENT_KEY": "the grammar allows only a column's name left of =",
            "DELTA_UNEXPECTED_ACTION_EXPRESSION": _INTERNAL,
            "DELTA_CANNOT_EVALUATE_EXPRESSION": "clauses are never evaluated as expressions; " + _INTERNAL,
            "DELTA_CANNOT_GENERATE_CODE_FOR_EXPRESSION": "clauses are never compiled as expressions; " + _INTERNAL,
            "DELTA_CANNOT_RESOLVE_SOURCE_COLUMN": "stars are expanded to the source's own columns, which it has",
            "DELTA_NO_NEW_ATTRIBUTE_ID": _INTERNAL,
            "DELTA_NOT_A_DELTA_TABLE": _OTHER_FORMAT,
            "DELTA_ONLY_OPERATION": _OTHER_FORMAT,
            "DELTA_MISSING_DELTA_TABLE": "a path without a table raises DELTA_TABLE_NOT_FOUND or PATH_NOT_FOUND first",
            "DELTA_PATH_DOES_NOT_EXIST": "a path without a table raises DELTA_TABLE_NOT_FOUND or PATH_NOT_FOUND first",
            "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG": "needs a session without Delta's extension",
        },
    ),
    Section(
        "What clauses may say",
        "PreprocessTableMerge, UpdateExpressionsSupport",
        raised=(
            "DELTA_AGGREGATION_NOT_SUPPORTED",
            "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
            "DELTA_UNSUPPORTED_SUBQUERY",
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
            "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
            "DELTA_CONFLICT_SET_COLUMN",
            "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
            "DELTA_OPERATION_ON_TEMP_VIEW_WITH_GENERATED_COLS_NOT_SUPPORTED",
        ),
        unreachable={
            "DELTA_TARGET_TABLE_FINAL_SCHEMA_EMPTY": _INTERNAL,
            "DELTA_COLUMN_NOT_FOUND_IN_MERGE": "columns that an INSERT leaves out already have their default or NULL",
            "DELTA_CANNOT_GENERATE_UPDATE_EXPRESSIONS": _INTERNAL,
            "DELTA_EXTRACT_REFERENCES_FIELD_NOT_FOUND": "a struct that lacks a field raises "
            "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION first",
            "DELTA_NON_GENERATED_COLUMN_MISSING_UPDATE_EXPR": _INTERNAL,
            "DELTA_MISSING_SET_COLUMN": "an unknown column to set raises DELTA_MERGE_UNRESOLVED_EXPRESSION first",
            "DELTA_UNSUPPORTED_FIELD_UPDATE_NON_STRUCT": "a field of an array or a map raises "
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE first",
            "DELTA_GENERATED_COLUMN_UPDATE_TYPE_MISMATCH": "defined, but raised nowhere in Delta 4.4",
            "DELTA_UNSUPPORTED_EXPRESSION_IN_TARGET_COLUMN": "raised by UPDATE; MERGE raises "
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
        },
    ),
    Section(
        "Schema evolution",
        "SchemaMergingUtils, SchemaUtils, ImplicitMetadataOperation, TypeWidening, IcebergCompat",
        raised=(
            "DELTA_FAILED_TO_MERGE_FIELDS",
            "DELTA_MERGE_ADD_VOID_COLUMN",
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            "DELTA_UNSUPPORTED_DATA_TYPES",
            "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
            "DELTA_DUPLICATE_COLUMNS_FOUND.DATA",
            "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH",
            "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH",
            "DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_DATA_TYPE",
            "DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_ALL_VOID_FIELDS",
        ),
        unreachable={
            "DELTA_MERGE_INCOMPATIBLE_DATATYPE": "the inner cause of DELTA_FAILED_TO_MERGE_FIELDS, which both "
            "engines raise",
            "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE": "a MERGE converts implicitly, so decimals never fail to merge",
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME": "raised by ALTER TABLE; evolution raises "
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            "DELTA_USER_DEFINED_TYPE_COLUMN_CONTAINS_NULL_TYPE": "SQL has no user-defined types",
            "DELTA_EMPTY_DATA": "a merge's rows always have columns",
            "DELTA_METADATA_MISMATCH": "raised by writes of DataFrames",
            "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_PREVIEW": _DAMAGED,
        },
    ),
    Section(
        "Running the merge",
        "MergeIntoCommand, MergeIntoCommandBase, MergeIntoMaterializeSource, ClassicMergeExecutor, TahoeFileIndex",
        raised=(
            "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        ),
        unreachable={
            "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY": "needs an executor that is lost repeatedly",
            "DELTA_MERGE_SOURCE_CACHED_DURING_EXECUTION": "needs another thread that caches the source meanwhile",
            "DELTA_NUM_RECORDS_MISMATCH": _INTERNAL,
            "DELTA_COMMAND_INVARIANT_VIOLATION": _INTERNAL,
            "DELTA_READ_TABLE_WITHOUT_COLUMNS": "a table without columns raises DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET",
            "DELTA_ACTIVE_TRANSACTION_ALREADY_SET": _INTERNAL,
        },
    ),
    Section(
        "Values: casts, arithmetic, functions",
        "UpdateExpressionsSupport, Spark's expressions",
        raised=(
            "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            "CAST_INVALID_INPUT",
            "DIVIDE_BY_ZERO",
            "USER_RAISED_EXCEPTION",
            "ARITHMETIC_OVERFLOW",
            "DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION",
            "DUPLICATED_MAP_KEY",
            "INVALID_ARRAY_INDEX",
            "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
            "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION",
            "REMAINDER_BY_ZERO",
            "SCALAR_SUBQUERY_TOO_MANY_ROWS",
            "FAILED_READ_FILE.FILE_NOT_EXIST",
        ),
    ),
    Section(
        "Writing: constraints, generated and identity columns, lengths, row ids",
        "TransactionalWrite, constraints, ColumnWithDefaultExprUtils, IdentityColumn, RowId, CDCReader",
        raised=(
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
            "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED",
            "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA",
            "DELTA_UNRECOGNIZED_INVARIANT",
            "RESERVED_CDC_COLUMNS_ON_WRITE",
            "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS",
        ),
        unreachable={
            "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "a merge writes every column; a missing one is NULL and raises "
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            "DELTA_NOT_NULL_COLUMN_NOT_FOUND_IN_STRUCT": "structs are aligned with the table before the check",
            "DELTA_UNSUPPORTED_INVARIANT_NON_STRUCT": _BUILDS_ONLY,
            "DELTA_NESTED_NOT_NULL_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_NOT_NULL_NESTED_FIELD": _BUILDS_ONLY,
            "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES": _BUILDS_ONLY,
            "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_UDF_IN_CHECK_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT": _BUILDS_ONLY,
            "DELTA_EXPRESSIONS_NOT_FOUND_IN_GENERATED_COLUMN": _INTERNAL,
            "DELTA_PARTITION_COLUMN_NOT_FOUND": "a merge writes every column of the table",
            "DELTA_NON_PARTITION_COLUMN_ABSENT": _BUILDS_ONLY,
            "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS": "raised when the feed is switched on; a merge that adds "
            "such a column raises RESERVED_CDC_COLUMNS_ON_WRITE",
            "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING": _DAMAGED,
            "DELTA_UNSUPPORTED_ABS_PATH_ADD_FILE": _INTERNAL,
            "DELTA_UNRECOGNIZED_FILE_ACTION": _INTERNAL,
            "DELTA_SHREDDING_TABLE_PROPERTY_DISABLED": "needs a setting of Spark's own tests",
            "DELTA_INVALID_AUTO_COMPACT_TYPE": _SETTING,
        },
    ),
    Section(
        "What the table allows: append-only, protocol, features",
        "DeltaLog, OptimisticTransaction, TableFeature, redirect",
        raised=(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            "DELTA_UNSUPPORTED_FEATURES_FOR_READ",
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            "DELTA_INVALID_PROTOCOL_VERSION",
            "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
            "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
            "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
        ),
        unreachable={
            "DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES": "raised by CREATE TABLE and REORG",
            "DELTA_COMMIT_INTERMEDIATE_REDIRECT_STATE": "needs a redirect, which Delta supports only in its own tests",
            "DELTA_NO_REDIRECT_RULES_VIOLATED": "needs a redirect, which Delta supports only in its own tests",
            "DELTA_TABLE_UNRECOGNIZED_REDIRECT_SPEC": "needs a redirect, which Delta supports only in its own tests",
            "DELTA_UNSUPPORTED_WRITES_WITHOUT_COORDINATOR": "needs a commit coordinator; open-source Delta has none",
            "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED": "needs a catalog that manages commits",
            "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION": "needs a catalog that manages commits",
            "DELTA_GEOSPATIAL_NOT_SUPPORTED": "Spark 4.2 with Delta 4.4 can't create a table with a geometry",
            "DELTA_GEOSPATIAL_SRID_NOT_SUPPORTED": "Spark 4.2 with Delta 4.4 can't create a table with a geometry",
            "DELTA_UNIVERSAL_FORMAT_VIOLATION": "needs Delta's Iceberg jar",
            "DELTA_UNIVERSAL_FORMAT_CONVERSION_FAILED": "needs Delta's Iceberg jar",
            "DELTA_MISSING_ICEBERG_CLASS": "needs Delta's Iceberg jar",
        },
    ),
    Section(
        "Committing: other writers",
        "ConflictChecker, OptimisticTransaction",
        raised=(
            "DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
            "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT",
            "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT",
            "DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT",
            "DELTA_CONCURRENT_TRANSACTION",
            "DELTA_METADATA_CHANGED",
            "DELTA_PROTOCOL_CHANGED",
            "DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
        ),
        unreachable={
            "DELTA_CONCURRENT_DELETE_DELETE": "a merge removes only files that it read, so "
            "DELTA_CONCURRENT_DELETE_READ comes first",
            "DELTA_CONCURRENT_WRITE": "raised by commits without retries, such as a table's first",
            "DELTA_DUPLICATE_ACTIONS_FOUND": _INTERNAL,
            "DELTA_ROW_TRACKING_BACKFILL_RUNNING_CONCURRENTLY_WITH_UNBACKFILL": "raised by ALTER TABLE",
            "DELTA_ADDING_DELETION_VECTORS_DISALLOWED": _INTERNAL,
            "DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED": _INTERNAL,
            "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS": _INTERNAL,
            "DELTA_INVALID_PARTITIONING_SCHEMA": _INTERNAL,
            "DELTA_METADATA_ABSENT": _INTERNAL,
            "DELTA_INVALID_COMMITTED_VERSION": "needs a file system with stale listings",
            "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION": "raised by statements that rename or drop columns",
            "DELTA_UNSUPPORTED_PARTITION_COLUMN_CHANGE": _INTERNAL,
            "DELTA_POST_COMMIT_HOOK_FAILED": "the hooks of local tables (checkpoint, checksum, auto compaction) only "
            "log failures",
            "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL": "raised by DROP FEATURE",
        },
    ),
    Section(
        "Opening a damaged table",
        "DeltaLog, Snapshot, DeletionVector readers",
        raised=(),
        unreachable=dict.fromkeys(
            (
                "DELTA_STATE_RECOVER_ERROR",
                "DELTA_TRUNCATED_TRANSACTION_LOG",
                "DELTA_VERSIONS_NOT_CONTIGUOUS",
                "DELTA_LOG_FILE_NOT_FOUND",
                "DELTA_MISSING_PART_FILES",
                "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
                "DELTA_TXN_LOG_FAILED_INTEGRITY",
                "DELTA_CHECKPOINT_SNAPSHOT_MISMATCH",
                "DELTA_NO_COMMITS_FOUND",
                "DELTA_MISSING_COMMIT_INFO",
                "DELTA_MISSING_COMMIT_TIMESTAMP",
                "DELTA_UNRECOGNIZED_LOGFILE",
                "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH",
                "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH",
                "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX",
                "DELTA_DELETION_VECTOR_SIZE_MISMATCH",
                "DELTA_FAILED_READ_FILE_FOOTER",
                "DELTA_FAILED_CAST_PARTITION_VALUE",
                "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET",
                "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
                "DELTA_UNRECOGNIZED_COLUMN_CHANGE",
                "DELTA_NON_PARSABLE_TAG",
                "DELTA_CANNOT_RECONSTRUCT_PATH_FROM_URI",
                "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR",
            ),
            _DAMAGED,
        ),
    ),
)
