#!/bin/sh
# Runs a command on what looks like another host: other Python packages, another /etc, programs,
# libraries and settings in /usr/local, and an archive of locales.
#
#   unshare --map-root-user --mount tests/another-host.sh FOLDER COMMAND...
#
# FOLDER must be empty. Only COMMAND sees any of it.
set -eu
own=$1
shift

modules=/usr/lib/python3/dist-packages
mkdir "$own/modules" "$own/modules/cryptography"
cp -r $modules/mininet "$own/modules"
echo 'import os; os.listdir("/")' > "$own/modules/early.pth"
echo 'raise ImportError("broken")' > "$own/modules/cryptography/__init__.py"
mount --bind "$own/modules" $modules

mkdir "$own/etc"
cp -r --no-preserve=all /etc/. "$own/etc" 2> /dev/null || true # some files are root's
rm -f "$own/etc/ssl/openssl.cnf" "$own/etc/locale.alias" "$own/etc/localtime"
seq -f 'user%g:x:2000:100:A user of this host:/home/user:/bin/bash' 400 >> "$own/etc/passwd"
echo 'hosts: dns files' > "$own/etc/nsswitch.conf"
mount --bind "$own/etc" /etc

mount -t tmpfs none /usr/local
mkdir -p /usr/local/bin /usr/local/etc/tor /usr/local/share/tor
printf '#!/bin/sh\nsleep 0.001\nexec /usr/sbin/ip "$@"\n' > /usr/local/bin/ip
chmod +x /usr/local/bin/ip
echo 'CircuitPadding 0' > /usr/local/etc/tor/torrc-defaults
seq -f '%g000,4294967295,DE' 1000 > /usr/local/share/tor/geoip

mkdir "$own/locale"
cp -r /usr/lib/locale/. "$own/locale"
head -c 100000 /dev/urandom > "$own/locale/locale-archive"
mount --bind "$own/locale" /usr/lib/locale

exec "$@"
