module airflow_delta_merge/pause

go 1.24
