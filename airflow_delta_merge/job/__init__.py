"""The PySpark application that merges; it is shipped to Spark."""
