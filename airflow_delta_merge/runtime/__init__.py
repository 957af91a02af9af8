"""The runtime of a merge: Java, Spark, Delta's jars, the drivers of object stores, and the class archive."""
