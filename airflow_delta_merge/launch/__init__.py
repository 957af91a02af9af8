"""Starts a merge's Spark application, follows it, fetches its result, and ends it."""
