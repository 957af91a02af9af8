"""Our engine against Delta's built-in MERGE, the oracle: the same statement on two copies of one table.

A case is a line or a small block: a name that says what it shows, a statement, and the table and source it needs.
What must come out is never written down, it is what the built-in does. ``does=`` and ``fails=`` only say what a
case is about, and ``pytest tests/differential --oracle-only`` checks that the built-in sees it the same way.
"""
