#!/bin/sh
# Makes a bare Debian a machine for the testbed: that of the Vagrantfile, and that of
# tests/test_vagrant.py. What is installed and built is ./run.py setup's business.
# Called by root, or by a user's sudo, as Vagrant does it; may be called again.
set -eu
cd "$(dirname "$0")/../.."

# run.py is Python, and a Debian need not have one.
if ! command -v python3 >/dev/null; then
    apt-get --quiet update
    DEBIAN_FRONTEND=noninteractive apt-get --quiet install --yes --no-install-recommends python3
fi

./run.py setup

# Root's are only the packages' logs; what --machine host needs is built, in the user's cache.
if [ -n "${SUDO_USER:-}" ]; then
    mkdir -p /root/.cache
    rm -rf /root/.cache/hydra-testbed
    ln -s "$(getent passwd "$SUDO_USER" | cut -d: -f6)/.cache/hydra-testbed" /root/.cache/
fi

# As root itself, not as the user behind sudo: only root sees whether the kernel has netem.
env --unset=SUDO_UID ./run.py doctor
