#!/bin/sh
# What the entry point of the image postgres does with its variables, by Debian's programs: a new cluster with that user,
# password and database, which other hosts reach by the password only.
set -eu
data=$PGDATA
if [ ! -e "$data/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    # shellcheck disable=SC2086
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust $POSTGRES_INITDB_ARGS
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    pg_ctl --pgdata="$data" --options="-c listen_addresses= -k /tmp" --wait start
    createdb --host=/tmp --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --pgdata="$data" --wait stop
fi
exec postgres -D "$data" -c listen_addresses='*' -k /tmp
