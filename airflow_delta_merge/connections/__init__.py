"""What Airflow connections say: where Spark runs, what a merge may do, and access to object stores."""
