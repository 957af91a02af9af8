#!/bin/sh
# Makes or migrates Airflow's database, and the pool that bounds the number of Spark drivers of deferred merges.
set -eu
airflow db migrate
airflow pools set --include-deferred spark 2 "Spark drivers, deferred ones too"
