#!/bin/sh
# Makes the user of an image, and folders of its own: deploy/user.sh FOLDER …
# All images have the same one, for they write into one volume. Spark wants a user who has a name.
set -eu
echo "lake:x:50000:50000::/home/lake:/usr/sbin/nologin" >> /etc/passwd
echo "lake:x:50000:" >> /etc/group
mkdir -p /home/lake "$@"
chown 50000:50000 /home/lake "$@"
