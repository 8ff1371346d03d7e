"""What of this Debian system a run used: the libraries of its Tor, and packages of the guest.

The guest's root is the host's, so that these are the host's. What is needed at all is said in
`setup.packages`.
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
"""Whose programs a run starts: each system call of theirs can move its clock."""

_LOADED = re.compile(r"(\S+) => (/\S+)")


def libraries(program: Path) -> dict[str, str]:
    """Whose the shared libraries are that a program loads here, by their names.

    Returns:
        Such as "libc.so.6": "libc6 2.36-9"; of a library of no package "sha256 …". Empty of a
        program without any.
    """
    loaded = dict(_LOADED.findall(_said("ldd", str(program))))
    owners = _owners(loaded.values())
    versions = package_versions(owners.values())
    return {
        name: f"{owners[path]} {versions[owners[path]]}"
        if owners.get(path) in versions
        else f"sha256 {sha256_of(Path(path))}"
        for name, path in sorted(loaded.items())
    }


def package_versions(names: Iterable[str] = GUEST_PACKAGES) -> dict[str, str]:
    """The versions of those packages that are installed."""
    if not (wanted := sorted(set(names))):
        return {}
    layout = "--showformat=${db:Status-Status} ${Package} ${Version}\\n"
    rows = (line.split() for line in _said("dpkg-query", "--show", layout, *wanted).splitlines())
    return {row[1]: row[2] for row in rows if row[0] == "installed"}


def _owners(paths: Iterable[str]) -> dict[str, str]:
    """The package of each path that one has.

    It may know a file in /usr/lib as one in /lib, or the other way round.
    """
    known_as = {
        name: path for path in paths for name in (path, path.removeprefix("/usr"), f"/usr{path}")
    }
    if not known_as:
        return {}
    lines = _said("dpkg-query", "--search", *known_as).splitlines()
    found = (line.rpartition(": ") for line in lines)
    return {known_as[path]: owner.partition(":")[0] for owner, _, path in found if path in known_as}


def _said(*command: str) -> str:
    """What a program printed; it may have failed at some of its arguments, or not be there."""
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
