#!/bin/sh
# Runs a command in a container's folder as its root, in mount and host names of its own:
# enter.sh HOSTNAME USER GROUP WORKDIR ROOT [SOURCE TARGET]… -- COMMAND …
# The caller has given it a mount namespace, the environment is the container's. Programs by their paths, hence.
set -eu
name=$1 user=$2 group=$3 folder=$4 root=$5
shift 5
/usr/bin/hostname "$name"
/usr/bin/mount --make-rprivate /
/usr/bin/mount --bind "$root" "$root"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then /usr/bin/mkdir -p "$root$2"; else : >> "$root$2"; fi
    /usr/bin/mount --rbind "$1" "$root$2"
    shift 2
done
shift
/usr/bin/mkdir -p "$root/proc" "$root/.outside"
/usr/bin/mount -t proc proc "$root/proc"
cd "$root"
/usr/sbin/pivot_root . .outside
cd "$folder"
/usr/bin/umount --lazy /.outside
if [ "$user" = 0 ]; then
    exec "$@"
fi
exec /usr/bin/setpriv --reuid="$user" --regid="$group" --clear-groups --no-new-privs "$@"
