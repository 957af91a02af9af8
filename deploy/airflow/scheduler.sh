#!/bin/bash
# Runs the scheduler with a triggerer beside it, since a triggerer follows a deferred merge only where its Spark driver is:
# same processes, same /tmp. When one of the two ends, the other is stopped, and Docker restarts the container.
set -u
airflow triggerer &
triggerer=$!
airflow scheduler &
scheduler=$!
trap 'kill -TERM $triggerer $scheduler 2> /dev/null' TERM INT
wait -n
status=$?
kill -TERM $triggerer $scheduler 2> /dev/null
wait
exit "$status"
