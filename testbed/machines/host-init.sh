#!/bin/sh
# The host machine's first process, in namespaces of its own: it protects the host's settings, and
# becomes the command in $HYDRA_STAGING. All other processes end when it ends.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C.UTF-8
mount -t tmpfs run /run
# Network settings belong to the namespace; all others to the whole host.
for settings in /proc/sys/*/; do
    [ "$settings" = /proc/sys/net/ ] || mount --bind -o ro "$settings" "$settings"
done
[ ! -e /proc/sys/net/ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
cd /run
exec sh "$HYDRA_STAGING/command"
