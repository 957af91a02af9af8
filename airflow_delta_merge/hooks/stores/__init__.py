"""Access to object stores by Airflow connections, for Spark's drivers and for ``deltalake``."""
