#!/usr/bin/env bash
# The tests in a browser need Chromium: installs it where that takes no password (root on Debian or Ubuntu with such a
# package), else says in one sentence how to. Without recommended packages there may be no font, hence the second one.
set -euo pipefail

packages="chromium fonts-dejavu-core"

if command -v chromium > /dev/null; then
    exit 0
fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get > /dev/null; then
    echo "Chromium is missing: install it with \"sudo apt-get install --no-install-recommends $packages\", or put another" \
        "build of it on the PATH as chromium." >&2
    exit 1
fi
echo "Installing $packages"
apt-get update -qq
# shellcheck disable=SC2086 # two words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages > /dev/null
