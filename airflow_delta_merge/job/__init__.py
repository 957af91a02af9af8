"""The PySpark application that merges; it travels to Spark."""
