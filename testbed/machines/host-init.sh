#!/bin/sh
# The first process of the host machine, in namespaces of its own: hides what must not be changed,
# and becomes the one command that is left in $HYDRA_STAGING. All others end when it ends.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C.UTF-8
mount -t tmpfs run /run
# Settings of the network are the namespace's own; all others are the whole host's.
for settings in /proc/sys/*/; do
    [ "$settings" = /proc/sys/net/ ] || mount --bind -o ro "$settings" "$settings"
done
[ ! -e /proc/sys/net/ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
cd /run
exec sh "$HYDRA_STAGING/command"
