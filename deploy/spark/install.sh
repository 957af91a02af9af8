#!/bin/sh
# Installs what Spark's image has: PySpark as locked. What a merge needs beside it travels with the merge.
set -eu
deploy/python.sh /opt/spark --only-group spark-image
