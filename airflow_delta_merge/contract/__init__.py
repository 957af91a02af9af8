"""The data that Airflow and the Spark job exchange. It is shipped to Spark, so it uses only the standard library."""
