"""Our engine against Delta's built-in MERGE, the oracle.

A case is a line or a small block: a name that says what it shows, a statement, and the table and source it needs.
Nobody writes down what must come out of it: that is what the built-in does on a copy of the same table. ``does=`` and
``fails=`` only say what the case is about.

What the built-in does is recorded in ``oracle``, a file for each module, beside the archived tables. ``make oracle``
runs the built-in for each case whose recording is missing or no longer holds; a test without a valid recording fails.
``--fresh-oracle`` runs both engines. Each case runs by one way of our engine (``harness.WAYS``), another one at each
commit; ``--all-ways`` and ``--way`` choose.
"""
