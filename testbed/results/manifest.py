"""The manifest of a run: the plan, and the versions and machine that carried it out.

The results are in the summary and the tables.
"""

import os
import platform
import subprocess
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.basics.check import Check
from testbed.basics.toml_file import PROJECT
from testbed.machines.watching import Usage
from testbed.plan.model import Plan
from testbed.results import debian
from testbed.results.made_by import FILES, files_sha256
from testbed.setup.builds import Build

MANIFEST = "manifest.json"
SHA256 = "sha256"
"""The key of the digests of the run's other files, by name; older runs lack it."""
FINGERPRINT = "fingerprint"
"""The key of the run's fingerprint; older runs lack it."""
FORMAT = 1
"""Increased when older readers could no longer read what is written."""


@dataclass(frozen=True)
class MachineFacts:
    """Where and when a plan ran, and what it cost.

    Attributes:
        machine: "virtual" or "host".
        started, ended: on the host's clock, with a time zone.
        virtual_start_s: Unix time at which the machine's clock began.
        memory_mb: the machine's memory, 1 MB = 2^20 bytes.
        kernel: its build; None on the host machine, which has the host's kernel.
        tor: the build that ran.
        captures: the pairs of roles whose links were captured.
        checks: those that the machine itself made.
    """

    machine: str
    cost: Usage
    started: datetime
    ended: datetime
    virtual_start_s: float
    memory_mb: int
    kernel: Build | None
    tor: Build
    captures: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def manifest(plan: Plan, facts: MachineFacts, measuring_start_s: float) -> dict[str, Any]:
    """Everything needed to say what ran, and to run it again, as plain data for JSON.

    `measuring_start_s` is a Unix time on the machine's clock.
    """
    tor = facts.tor.metadata
    return {
        "format": FORMAT,
        "plan_key": plan.key,
        "plan": plan.model_dump(mode="json"),
        "project": project(),
        "tor_version": tor["version"],
        "tor": tor,
        "kernel": None if facts.kernel is None else facts.kernel.metadata,
        "python": platform.python_version(),
        "packages": _packages(),
        "libraries": debian.libraries(facts.tor.folder / "tor"),
        "debian": debian.package_versions(),
        "captures": list(facts.captures),
        "machine": {"name": facts.machine, "memory_mb": facts.memory_mb, "host": host_facts()},
        "start": _iso(facts.started),
        "end": _iso(facts.ended),
        "virtual_start_s": facts.virtual_start_s,
        "measuring_start_s": measuring_start_s,
    }


def host_facts() -> dict[str, Any]:
    """Facts about this host: 1 MB is 2^20 bytes, the cores are those that we may use."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "system": _system(),
        "kernel": platform.release(),
        "processor": _processor(),
        "governor": _governor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": round(memory_bytes / 2**20),
    }


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def project() -> dict[str, Any]:
    """The project's version, commit and files; without git, or outside a clone, no commit."""
    described = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    commit = _git("rev-parse", "HEAD")
    return {
        "version": described["project"]["version"],
        "commit": commit,
        "dirty": None if commit is None else bool(_git("status", "--porcelain")),
        FILES: files_sha256(),
    }


def _git(*arguments: str) -> str | None:
    # Git must be told that root may read a user's clone (sudo ./run.py).
    command = ["git", "-c", f"safe.directory={PROJECT}", *arguments]
    try:
        answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _packages() -> dict[str, str]:
    """The versions in use of the Python packages that requirements.txt names, and of Mininet."""
    lines = (PROJECT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    names = [line.partition("==")[0].strip() for line in lines if "==" in line and line[0] != "#"]
    versions = {}
    for name in [*names, "mininet"]:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # developers' tools may be missing
    return versions


def _governor() -> str | None:
    """The governor of the first core's clock rate; None if there is none, or it is unknown."""
    file = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
