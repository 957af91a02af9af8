#!/bin/sh
# Starts S3Proxy on a folder whose folders are the buckets, and makes the one bucket: serve.sh FOLDER BUCKET
# The keys go by a file that only this user can read: on Java's command line every user of the machine could.
set -eu
mkdir -p "$1/$2"
properties=${TMPDIR:-/tmp}/s3proxy.properties
umask 077
cat > "$properties" << END
s3proxy.endpoint=http://${S3PROXY_ADDRESS:-0.0.0.0:9000}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=$S3_ACCESS_KEY
s3proxy.credential=$S3_SECRET_KEY
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir=$1
END
unset S3_ACCESS_KEY S3_SECRET_KEY
umask 022
exec java -Xmx256m -jar "${S3PROXY_HOME:-/opt/s3proxy}/s3proxy.jar" --properties "$properties"
