"""Reads Airflow connections: where Spark runs, what a merge may do, and how to access object stores."""
