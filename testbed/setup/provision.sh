#!/bin/sh
# Turns a bare Debian into a machine for the testbed, for the Vagrantfile and tests/test_vagrant.py.
# ./run.py setup decides what is installed and built.
# Run by root, or by a user's sudo as Vagrant does; may be run again.
set -eu
cd "$(dirname "$0")/../.."

# run.py needs Python, which a bare Debian may lack.
if ! command -v python3 >/dev/null; then
    apt-get --quiet update
    DEBIAN_FRONTEND=noninteractive apt-get --quiet install --yes --no-install-recommends python3
fi

./run.py setup

# Root's own cache has only the packages' logs; the builds for --machine host are in the user's.
if [ -n "${SUDO_USER:-}" ]; then
    mkdir -p /root/.cache
    rm -rf /root/.cache/hydra-testbed
    ln -s "$(getent passwd "$SUDO_USER" | cut -d: -f6)/.cache/hydra-testbed" /root/.cache/
fi

# As root itself, not as the user behind sudo: only root can try whether the kernel has netem.
env --unset=SUDO_UID ./run.py doctor
