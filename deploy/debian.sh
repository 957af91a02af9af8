#!/bin/sh
# Installs Debian packages into an image: deploy/debian.sh PACKAGE …
set -eu
# Slim images have no folder for manuals, into which Java's packages put links.
mkdir -p /usr/share/man/man1
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
