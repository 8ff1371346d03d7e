"""The directory for a run's results: its default, and whether it can be made."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value, shown
from testbed.plan.model import Plan


def changed_name(scenario: str, changes: Mapping[str, Value]) -> str:
    """A scenario's name with its changes, fit for a folder: no spaces, no slashes."""
    parts = [f"{key}={shown(value)}" for key, value in sorted(changes.items())]
    return ",".join([scenario, *(re.sub(r"[^\w.%=+-]", "", part) for part in parts)])


def default_output(plan: Plan, machine: str = "virtual") -> Path:
    """The default directory for a run's results, below the working directory.

    Results of the host machine have a folder of their own: they are not runs of the same kind.
    """
    scenario = f"{plan.scenario}-{plan.traffic}" if plan.traffic_overridden else plan.scenario
    folder = Path("results" if machine == "virtual" else f"results-{machine}")
    return folder / scenario / plan.variant / f"seed-{plan.seed}"


def check_output(path: Path) -> None:
    """Refuse a directory for results that exists already or can't be made.

    Raises:
        InputError: the path exists, or one of its parents is not a directory, or not writable.
    """
    if path.exists() or path.is_symlink():
        raise InputError(f"the output {path} exists: give another --out, or remove it")
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"the output {path} can't be made: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"the output {path} can't be made: {there} can't be written to")
