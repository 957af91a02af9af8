"""The benchmark: this engine, Delta's built-in MERGE, delta-rs and the physical floor on the same tables.

`make bench ARGS="--quick"` runs it; `docs/developers/benchmark.md` describes the method. The wheel leaves it out.
"""
