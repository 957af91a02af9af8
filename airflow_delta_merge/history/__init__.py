"""The merges of a Delta table, as its log tells them; for the terminal and for whatever else shows them."""
