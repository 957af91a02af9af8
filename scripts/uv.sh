#!/usr/bin/env bash
# Runs uv: the one on this machine, else one that pip puts into a small environment of its own in .cache/uv.
set -euo pipefail

if uv --version > /dev/null 2>&1; then
    exec uv "$@"
fi
root=$(cd "$(dirname "$0")/.." && pwd)
own=$root/.cache/uv
if [[ ! -x $own/bin/uv ]]; then
    python=
    # One that is found need not run: pyenv has stand-ins for every version that some other project chose.
    for candidate in python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            python=$candidate
            break
        fi
    done
    if [[ -z $python ]]; then
        echo "Python is missing: install Python 3.11 or later." >&2
        exit 1
    fi
    "$python" -m venv "$own" || {
        echo "\"$python -m venv\" fails: install it with \"sudo apt-get install python3-venv\", or install uv." >&2
        exit 1
    }
    "$own/bin/pip" install --quiet --disable-pip-version-check uv
fi
exec "$own/bin/uv" "$@"
