"""What the table's protocol asks of writers: unknown features and versions, and metadata that contradicts them.

No statement of this Delta leads to such tables, so their logs are edited.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

TABLE = Table("id INT, v STRING", ("(1, 'a'), (2, 'b')", "(3, 'c')"))
SOURCE = "VALUES (2, 'B'), (9, 'I') AS s(id, v)"
LISTED = replace(TABLE, properties={"delta.feature.allowColumnDefaults": "supported"})
VECTORS = replace(TABLE, properties={"delta.enableDeletionVectors": "true"})
WIDENING = replace(TABLE, properties={"delta.enableTypeWidening": "true"})
IDENTITY = Table("id INT, k BIGINT GENERATED ALWAYS AS IDENTITY", "INSERT INTO {t} (id) VALUES (1), (2)")


def _with_metadata(column: str, type_: str, metadata: str) -> tuple[tuple[str, str], ...]:
    """The edit that gives a column metadata; the schema is JSON inside JSON."""
    field = rf"\"name\":\"{column}\",\"type\":\"{type_}\",\"nullable\":true,\"metadata\":"
    return ((field + "{}", field + metadata.replace("\\", "\\\\").replace('"', r"\"")),)


CASES = [
    Case("an unknown writer feature", UPSERT, fails="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", source=SOURCE,
         table=replace(LISTED, edits=(('"writerFeatures":[', '"writerFeatures":["unheardOf",'),))),
    Case("an unknown reader feature", UPSERT, fails="DELTA_UNSUPPORTED_FEATURES_FOR_READ", source=SOURCE,
         table=replace(VECTORS, edits=(('"readerFeatures":[', '"readerFeatures":["unheardOf",'),
                                       ('"writerFeatures":[', '"writerFeatures":["unheardOf",')))),
    Case("unknown protocol versions", UPSERT, fails="DELTA_INVALID_PROTOCOL_VERSION", source=SOURCE,
         table=replace(VECTORS, edits=(('"minReaderVersion":3,"minWriterVersion":7',
                                        '"minReaderVersion":4,"minWriterVersion":8'),))),
    Case("a property whose feature isn't listed", UPSERT, fails="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
         source=SOURCE, table=replace(LISTED, edits=(('"configuration":{}',
                                      '"configuration":{"delta.enableDeletionVectors":"true"}'),))),
    Case("a type change that no widening is", UPSERT, fails="DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA", source=SOURCE,
         table=replace(WIDENING, edits=_with_metadata("id", "integer",
                       '{"delta.typeChanges":[{"toType":"integer","fromType":"string"}]}'))),
    Case("a new column whose feature isn't listed", UPSERT, fails="DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
         table=TABLE, evolves=True, source="SELECT 2 AS id, 'B' AS v, TIMESTAMP_NTZ'2024-01-01' AS at"),
    Case("an unknown kind of invariant", UPSERT, fails="DELTA_UNRECOGNIZED_INVARIANT", source=SOURCE,
         table=replace(TABLE, edits=_with_metadata("v", "string", r'{"delta.invariants":"{\"unheardOf\": 1}"}'))),
    Case("half of an identity column's metadata", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
         fails="DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA", source="SELECT 9 AS id",
         table=replace(IDENTITY, edits=(("delta.identity.step", "delta.identity.stop"),))),
    Case("no physical name in a mapped table", UPSERT, source=SOURCE,
         fails="org.apache.spark.sql.delta.ColumnMappingException",
         table=replace(TABLE, properties={"delta.columnMapping.mode": "name"},
                       edits=(("delta.columnMapping.physicalName", "delta.columnMapping.physical"),))),
    Case("a data file that is gone", UPSERT, fails="FAILED_READ_FILE.FILE_NOT_EXIST", source=SOURCE,
         table=replace(TABLE, edits=(('"add":{"path":"part', '"add":{"path":"gone'),))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_protocol_features(case: Case, engines: Harness) -> None:
    engines.check(case)
