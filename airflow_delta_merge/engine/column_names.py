"""Names for the columns that the engine adds."""

from __future__ import annotations

import uuid


class ColumnNames:
    """Names for the engine's own columns, which no column of a user can have."""

    def __init__(self) -> None:
        token = uuid.uuid4().hex
        self.source_row_id = f"_source_row_id_{token}"
        self.file_path = f"_file_path_{token}"
        self.row_index = f"_row_index_{token}"
        self.row_number = f"_row_number_{token}"
        self.clause = f"_clause_{token}"
        self.insert_clause = f"_insert_clause_{token}"
        self.matched_row_id = f"_matched_row_id_{token}"
        self.matched_path = f"_matched_path_{token}"
        self.matched_row_index = f"_matched_row_index_{token}"
        self.statistic = f"_statistic_{token}"
        self.expected = f"_expected_{token}_"
