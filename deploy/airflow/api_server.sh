#!/bin/sh
# Starts Airflow's API server, after it has written the password of its one user where Airflow looks for it.
set -eu
umask 077
python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' \
    > "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
unset AIRFLOW_ADMIN_PASSWORD
umask 022
exec airflow api-server
