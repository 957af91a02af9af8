"""Data files and their statistics, without Spark: what may be trusted, and copies by Arrow."""
