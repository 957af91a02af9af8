"""The merge's source: reads its rows once, checks them, and keeps them for the merge."""
