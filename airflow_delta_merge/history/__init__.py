"""The merges of a Delta table, from its log, for the terminal and other displays."""
