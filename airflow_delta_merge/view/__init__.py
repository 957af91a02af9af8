"""A table's merges in Airflow's UI: read-only pages by Airflow's plugin interface, since Airflow 3.1."""
