#!/bin/sh
# Installs what Airflow's image has: the package of the checkout, Airflow and PySpark as locked, and the jars of merges.
set -eu
deploy/python.sh /opt/airflow --no-dev --no-editable --extra deltalake --group airflow-image
AIRFLOW_DELTA_MERGE_JARS=/opt/jars /opt/airflow/bin/airflow-delta-merge jars --s3a > /dev/null
