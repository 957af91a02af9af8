#!/bin/sh
# Installs what the image for Kubernetes has: PySpark as locked, where Spark expects it.
set -eu
deploy/python.sh /opt/python --only-group spark-image
ln -s /opt/python/lib/python3.11/site-packages/pyspark /opt/spark
mkdir /opt/spark/conf # Spark mounts its ConfigMap there
deploy/user.sh /opt/spark/work-dir
