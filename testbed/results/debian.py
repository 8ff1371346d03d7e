"""The parts of this Debian system that a run used: its Tor's libraries, and the guest's packages.

The guest's root file system is the host's, so these are the host's. `setup.packages` has what the
testbed needs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from testbed.setup.sources import sha256_of

GUEST_PACKAGES = (
    "bash",
    "coreutils",
    "dash",
    "iperf3",
    "iproute2",
    "libc6",
    "mininet",
    "mount",
    "procps",
    f"python3.{sys.version_info.minor}-minimal",
    "tcpdump",
    "util-linux",
)
"""Packages whose programs a run starts: each of their system calls can advance its clock."""

_LOADED = re.compile(r"(\S+) => (/\S+)")


def libraries(program: Path) -> dict[str, str]:
    """The packages of the shared libraries that a program loads here.

    Returns:
        Package and version by library, such as "libc.so.6": "libc6 2.36-9", or "sha256 …" for a
        library without a package. Empty if the program loads none.
    """
    loaded = dict(_LOADED.findall(_output("ldd", str(program))))
    owners = _owners(loaded.values())
    versions = package_versions(owners.values())
    return {
        name: f"{owners[path]} {versions[owners[path]]}"
        if owners.get(path) in versions
        else f"sha256 {sha256_of(Path(path))}"
        for name, path in sorted(loaded.items())
    }


def package_versions(names: Iterable[str] = GUEST_PACKAGES) -> dict[str, str]:
    """The versions of those of the packages that are installed."""
    if not (wanted := sorted(set(names))):
        return {}
    layout = "--showformat=${db:Status-Status} ${Package} ${Version}\\n"
    rows = (line.split() for line in _output("dpkg-query", "--show", layout, *wanted).splitlines())
    return {row[1]: row[2] for row in rows if row[0] == "installed"}


def _owners(paths: Iterable[str]) -> dict[str, str]:
    """The package of each path that belongs to one.

    dpkg may know a file in /usr/lib as one in /lib, or the other way round.
    """
    known_as = {
        name: path for path in paths for name in (path, path.removeprefix("/usr"), f"/usr{path}")
    }
    if not known_as:
        return {}
    lines = _output("dpkg-query", "--search", *known_as).splitlines()
    found = (line.rpartition(": ") for line in lines)
    return {known_as[path]: owner.partition(":")[0] for owner, _, path in found if path in known_as}


def _output(*command: str) -> str:
    """The output of a program, which may be missing or fail for some of its arguments."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except OSError:
        return ""
    return answer.stdout
