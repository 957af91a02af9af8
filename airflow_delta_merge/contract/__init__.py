"""What the two sides of a Spark application say to each other: the standard library only, as it travels to Spark."""
