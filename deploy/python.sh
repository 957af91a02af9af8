#!/bin/sh
# Makes a Python environment of the locked versions: deploy/python.sh FOLDER OPTION-OF-UV-SYNC …
# Run in a folder with pyproject.toml and uv.lock. It has this machine's own Python 3.11, as no other is downloaded.
set -eu
folder=$1
shift
tools=$(mktemp -d)
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
UV_PROJECT_ENVIRONMENT=$folder UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy \
    "$tools/bin/uv" sync --frozen --quiet --compile-bytecode --python python3 "$@"
rm -rf "$tools"
