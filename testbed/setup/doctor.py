"""Reports what is installed and built, what is missing, and what works. Changes nothing.

The set-up gets what is missing; here it is only named.
"""

import os
import platform
import resource
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.basics import cache
from testbed.basics.errors import TestbedError
from testbed.setup import builds, environment, host_kernel, kernel, packages, releases
from testbed.setup.builds import Build
from testbed.setup.releases import Choice

PROJECT = Path(__file__).resolve().parent.parent.parent
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The guest of the largest experiment: sixteen Tors of some 30 MB, the traffic and the kernel.
GUEST_BYTES = 1_000_000_000
# For the guest's processes: a shell, a Tor and a generator for each of sixteen nodes, and a few
# more.
FEWEST_OPEN_FILES = 256
# The least that was ever tried (tests/test_same_bytes.py: 24 MB of address space).
FEWEST_MAPPINGS = 6_144


@dataclass(frozen=True)
class Finding:
    """The result of one examination: its name, whether all is well, and a text."""

    name: str
    well: bool
    text: str


def print_doctor(console: Console) -> bool:
    """Print what is there and what works; return whether the default machine works.

    Sends no packet and leaves nothing behind.
    """
    findings = examine()
    table = Table(box=None, show_header=False)
    for finding in findings:
        mark = "[green]yes[/green]" if finding.well else "[red]no[/red]"
        table.add_row(mark, finding.name, finding.text)
    console.print(table)
    return next(finding.well for finding in findings if finding.name == "virtual machine")


def examine() -> list[Finding]:
    """Look at everything, the machines last since they need the rest."""
    parts = [
        _system(),
        _packages(),
        _environment(),
        _built("Tor", releases.chosen("tor")),
        _built("kernel", kernel.choice()),
        _cores(),
        _memory(),
        _room(),
        _mappings(),
        _open_files(),
    ]
    return [*parts, _virtual_machine(parts), _host_machine(parts)]


def _system() -> Finding:
    try:
        packages.check_system()
    except TestbedError as error:
        return Finding("system", False, str(error))
    return Finding(
        "system",
        True,
        f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, "
        f"{platform.machine()}, Python {platform.python_version()}",
    )


def _packages() -> Finding:
    if shutil.which("dpkg-query") is None:
        return Finding("packages", False, "dpkg-query is missing: not a Debian")
    missing = packages.missing_packages()
    if missing:
        text = f"missing: {' '.join(missing)}: `sudo ./run.py setup`"
        return Finding("packages", False, text)
    return Finding("packages", True, f"all {len(packages.PACKAGES)} of Debian's are installed")


def _environment() -> Finding:
    folder = environment.environment_folder(PROJECT)
    if environment.is_ready(PROJECT):
        return Finding("environment", True, str(folder))
    return Finding("environment", False, f"{folder} is not finished: `./run.py setup`")


def _built(title: str, choice: Choice) -> Finding:
    """Report a project's builds, the release in use, and the releases that could be."""
    project = choice.release.project
    found = [build for build in builds.all_finished() if build.metadata["name"] == project]
    if not found:
        return Finding(title, False, f"not built: `./run.py setup`\n{_could_be(project)}")
    lines = [*map(_describe, found), str(choice), _could_be(project)]
    return Finding(title, True, "\n".join(lines))


def _could_be(project: str) -> str:
    """The releases that can be built, in the order in which they are tried."""
    pinned = ", ".join(release.version for release in releases.in_order(project))
    series = ", ".join(releases.series(project))
    return (
        f"the first of these that is available is built: {pinned}; else the newest of {series}"
        " in Debian's indexes"
    )


def _describe(build: Build) -> str:
    metadata = build.metadata
    patches = ", ".join(patch["name"] for patch in metadata["patches"]) or "no patch"
    return f"{metadata['version']} with {patches} ({build.key}, {metadata['date'][:10]})"


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", cores > 0, f"{cores}: that many virtual machines can run at once")


def _memory() -> Finding:
    # "MemAvailable:   23529000 kB"
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    values = {line.partition(":")[0]: line.split()[1] for line in lines}
    free_bytes = int(values["MemAvailable"]) * 1024
    return Finding("memory", free_bytes > GUEST_BYTES, f"{free_bytes / 1e9:.1f} GB available")


def _room() -> Finding:
    """Report the room for a guest's memory, a file of the host: shared memory, else TMPDIR."""
    folders = [Path("/dev/shm"), Path(tempfile.gettempdir()), cache.cache_folder()]
    rooms = {folder: shutil.disk_usage(folder).free for folder in folders if folder.is_dir()}
    text = ", ".join(f"{room / 1e9:.1f} GB in {folder}" for folder, room in rooms.items())
    return Finding("room", any(room > GUEST_BYTES for room in list(rooms.values())[:2]), text)


def _mappings() -> Finding:
    """Report vm.max_map_count: each page of a guest's process may be a mapping of its own.

    If a process has more pages, those that the host refuses to map are mapped when they are touched
    again (kernel patch 0004), which takes time.
    """
    count = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    mapped_mb = count * PAGE_BYTES / 1e6
    text = (
        f"vm.max_map_count is {count}: processes in the guest above {mapped_mb:.0f} MB are slower"
    )
    if count < FEWEST_MAPPINGS:
        text += "; `sudo sysctl vm.max_map_count=65530` is Linux's default"
    return Finding("mappings", count >= FEWEST_MAPPINGS, text)


def _open_files() -> Finding:
    """Report the hard limit: a machine has an open socket for each of its guest's processes."""
    _, count = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"the hard limit is {count}: as many processes in the guest, less some 40"
    if count < FEWEST_OPEN_FILES:
        text += f"; {FEWEST_OPEN_FILES} are needed: nofile in /etc/security/limits.conf"
    return Finding("open files", count >= FEWEST_OPEN_FILES, text)


def _virtual_machine(parts: list[Finding]) -> Finding:
    lacking = [part.name for part in parts if not part.well]
    if lacking:
        return Finding("virtual machine", False, f"does not work: see {', '.join(lacking)}")
    return Finding("virtual machine", True, "works (--machine virtual, the default; no privileges)")


def _host_machine(parts: list[Finding]) -> Finding:
    needed = ("system", "packages", "environment", "Tor")
    lacking = [part.name for part in parts if part.name in needed and not part.well]
    if lacking:
        return Finding("host machine", False, f"does not work: see {', '.join(lacking)}")
    called = "`sudo ./run.py ... --machine host`"
    reason = host_kernel.refusal()
    if os.geteuid() != 0 and host_kernel.NAMESPACES in reason:
        return Finding("host machine", False, f"only root can try it: {called}")
    if reason:
        text = f"this host's kernel has {reason}: use --machine virtual"
        return Finding("host machine", False, text)
    return Finding("host machine", True, f"works ({called}: real time, this host's kernel)")
