"""What a merge runs on: Java, Spark, Delta's jars, the drivers of object stores, and the class archive."""
