"""For tests of faults: a short scenario, what a run leaves, and the processes of a running one."""

from pathlib import Path

import psutil

from testbed.results import read_run

LISTENERS = """
title = "Two listeners"
description = "As little traffic as there can be: what is measured here is not what matters."
topology = "two_clients"
traffic = "audio"
duration = "5 s"

[links]
default = { rate = "5 Mbit/s" }
guard-middle = { delay = "5 ms" }
"""
RUN = ("scenario", "Listeners.toml", "--out", "run")
RUN_WITHIN_S = 500.0


def failed_checks(run: Path) -> dict[str, str]:
    """The observations of the checks that don't hold, by name; the run must be invalid."""
    summary = read_run(run).summary
    assert not summary.valid
    return {check.name: check.observed for check in summary.checks if not check.ok}


def left_in(folder: Path) -> list[str]:
    """The names of runs and of what failed runs left, including hidden ones."""
    return sorted(path.name for path in folder.iterdir() if "run" in path.name)


def reports(destination: Path, step: str) -> bool:
    """Whether a running run has reported a step."""
    files = destination.parent.glob(f".{destination.name}.partial-*/raw/progress.jsonl")
    return any(f'"{step}"' in file.read_text() for file in files)


def machines_below(process: int) -> list[psutil.Process]:
    """The kernels that a process and its children have started."""
    children = psutil.Process(process).children(recursive=True)
    return [child for child in children if child.name() == "linux" and child.parent() != child]


def jobs_below(process: int) -> list[psutil.Process]:
    """The jobs of a batch, whose argument is the folder of a note."""
    children = psutil.Process(process).children(recursive=True)
    return [child for child in children if "/.batch/notes/" in child.cmdline()[-1]]
