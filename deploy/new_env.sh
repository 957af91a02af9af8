#!/bin/sh
# Makes .env from .env.example, with a random value for each secret. A .env that is there stays as it is.
set -eu
cd "$(dirname "$0")/.."
if [ -e .env ]; then
    echo "There is a .env already: remove it first, if its secrets may go. The database keeps its password." >&2
    exit 1
fi
umask 077
while IFS= read -r line; do
    case $line in
        # 32 random bytes, as Airflow's Fernet wants them, and fit for addresses.
        [A-Z]*=) echo "$line$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')" ;;
        *) echo "$line" ;;
    esac
done < .env.example > .env.new
mv .env.new .env
