#!/usr/bin/env bash
# Runs uv: the one on this machine, else one that pip puts into a small environment of its own in .cache/uv.
set -euo pipefail

if uv --version > /dev/null 2>&1; then
    exec uv "$@"
fi
root=$(cd "$(dirname "$0")/.." && pwd)
own=$root/.cache/uv
if [[ ! -x $own/bin/uv ]]; then
    python=$(command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3) || {
        echo "Python is missing: install Python 3.11 or later." >&2
        exit 1
    }
    "$python" -m venv "$own" || {
        echo "\"$python -m venv\" fails: install it with \"sudo apt-get install python3-venv\", or install uv." >&2
        exit 1
    }
    "$own/bin/pip" install --quiet --disable-pip-version-check uv
fi
exec "$own/bin/uv" "$@"
