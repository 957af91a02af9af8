#!/bin/sh
# Installs what the S3 server's image has: S3Proxy, one jar from Maven Central, checked. Tests name another folder.
set -eu
version=4.1.0
sha256=a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d
base=https://repo1.maven.org/maven2/org/gaul/s3proxy
home=${S3PROXY_HOME:-/opt/s3proxy}
mkdir -p "$home"
python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
    "$base/$version/s3proxy-$version-jar-with-dependencies.jar" "$home/s3proxy.jar"
echo "$sha256  $home/s3proxy.jar" | sha256sum --check --quiet
