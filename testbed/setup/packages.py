"""The Debian packages that the testbed needs, and their installation by apt.

The only part of the set-up that needs root. Standard library only.
"""

import os
import platform
import shutil
import subprocess

from testbed.basics import cache, steps
from testbed.basics.errors import TestbedError
from testbed.setup.processor import check_processor

# Each package with the reason for it.
PACKAGES = {
    "mininet": "topologies",
    "iperf3": "competing streams",
    "iproute2": "network namespaces",
    "iputils-ping": "the shell's ping",
    "procps": "sysctl in the lab's nodes",
    "strace": "the bench's system calls",
    "tcpdump": "captures",
    "build-essential": "compiles Tor and the kernel",
    "libevent-dev": "Tor",
    "libssl-dev": "Tor",
    "zlib1g-dev": "Tor",
    "bc": "the kernel's time constants",
    "bison": "the kernel's configuration",
    "flex": "the kernel's configuration",
    "xz-utils": "unpacks the kernel's source",
    "python3": "the environment's Python",
    "python3-venv": "the environment",
    "ca-certificates": "fetches Python packages",
}

ELSEWHERE = "use Debian 12 or 13 on x86-64, in a virtual machine if need be"


def check_system() -> None:
    """Check that the testbed can be set up on this system.

    Raises:
        TestbedError: it can't; says what is missing and how to get it.
    """
    if platform.machine() != "x86_64":
        raise TestbedError(f"the processor is {platform.machine()}, not x86_64: {ELSEWHERE}")
    for program in ("apt-get", "dpkg-query"):
        if shutil.which(program) is None:
            raise TestbedError(f"{program} is missing, so this is not a Debian: {ELSEWHERE}")
    check_processor()


def missing_packages() -> list[str]:
    """Return the needed packages that aren't installed, in the order of `PACKAGES`."""
    answer = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n", *PACKAGES],
        capture_output=True,
        text=True,
        check=False,  # it fails if it doesn't know one of them
    )
    installed = {
        name
        for status, _, name in (line.partition(" ") for line in answer.stdout.splitlines())
        if status == "installed"
    }
    return [name for name in PACKAGES if name not in installed]


def ensure_packages(progress: steps.Progress) -> None:
    """Install the packages that are missing.

    Raises:
        TestbedError: not root, or apt failed; names the command that helps.
    """
    check_system()
    missing = missing_packages()
    if not missing:
        return
    if os.geteuid() != 0:
        raise TestbedError(
            f"Debian packages are missing: {' '.join(missing)}: run `sudo ./run.py setup` once,"
            f" or ask an administrator for `sudo apt-get install {' '.join(missing)}`"
        )
    log = cache.new_log("packages")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"Installing {len(missing)} Debian packages"):
        apt = ["apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=120"]
        steps.run_logged([*apt, "update"], log, variables=quiet, gently=True)
        install = [*apt, "install", "--yes", "--no-install-recommends", *missing]
        steps.run_logged(install, log, variables=quiet, gently=True)
    if still_missing := missing_packages():
        raise TestbedError(f"apt did not install {' '.join(still_missing)}; the log is {log}")
