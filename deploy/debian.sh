#!/bin/sh
# Installs Debian packages into an image: deploy/debian.sh PACKAGE …
set -eu
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
