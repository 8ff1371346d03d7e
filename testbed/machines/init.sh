#!/usr/bin/env -S setpriv --no-new-privs sh
# The first process of the virtual machine: mounts what a system needs, runs the one command that
# the host has left in $HYDRA_STAGING, notes its exit status there, and switches the machine off.
# All is root here, so that a set-user-ID bit could only take away: in a user namespace of the host
# mount belongs to nobody.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
ip link set lo up
cd /run || exit
if [ "$HYDRA_TERMINAL" ]; then
    # In a session of its own, which the terminal's Ctrl-C reaches.
    setsid --ctty --wait sh "$HYDRA_STAGING/command" <>"/dev/$HYDRA_TERMINAL" >&0 2>&1
else
    sh "$HYDRA_STAGING/command"
fi
echo $? > "$HYDRA_STAGING/status"
exec /usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)' # RB_POWER_OFF
