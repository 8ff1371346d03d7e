"""A batch's Snakemake process: its command line, its start, and its end.

Its jobs are defined in `running`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from testbed.basics import cache, steps
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.batch import slurm
from testbed.batch.notes import BEGUN
from testbed.setup.environment import variables

SNAKEFILE = Path(__file__).with_name("Snakefile")
STATE = ".batch"
"""The folder in a batch's directory that Snakemake works in."""
SNAKEMAKE_LOG = "snakemake.log"
GRACE_S = 30.0
"""How long runs have, once interrupted, to end their machines and remove unfinished results."""


@contextmanager
def on_this_machine(directory: Path, cores: int, retries: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake with jobs on this machine; all end with the context."""
    state = directory / STATE
    jobs = json.loads((state / "jobs.json").read_text(encoding="utf-8"))
    # A run that needs more memory than there is must not wait for ever.
    room_mb = psutil.virtual_memory().available // 2**20
    room_mb = max(room_mb, *(job["resources"]["mem_mb"] for job in jobs))
    options = ["--executor", "local", "--cores", str(cores), "--resources", f"mem_mb={room_mb}"]
    with _snakemake(state, retries, options, {}, GRACE_S) as process:
        yield process


@contextmanager
def on_cluster(directory: Path, jobs: int, retries: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake with jobs on Slurm; all end with the context."""
    state = directory / STATE
    # For files that a Snakemake leaves if it is killed on a node; jobs themselves don't use it.
    temporary = state.absolute() / "tmp"
    temporary.mkdir()
    options = [*slurm.snakemake_options(directory, state), "--jobs", str(jobs)]
    try:
        with _snakemake(state, retries, options, {"TMPDIR": str(temporary)}, 0) as process:
            yield process
    finally:
        slurm.cancel_jobs(directory)


@contextmanager
def _snakemake(
    state: Path,
    retries: int,
    options: Sequence[str],
    environment: Mapping[str, str],
    grace_s: float,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake; it and its process group end with the context.

    Args:
        retries: how often a failed run is tried again.
        options: the executor and its options.
        environment: variables in addition to ours.
        grace_s: how long it and its jobs have to end by themselves.

    Raises:
        TestbedError: it failed before any run began.
    """
    log = state / SNAKEMAKE_LOG
    with (
        log.open("wb") as output,
        subprocess.Popen(
            steps.dying_with_us(_snakemake_command(state, retries, options)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**variables(PROJECT), **_caches(), **environment},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process, grace_s)
    if process.returncode != 0 and not any(state.glob(f"notes/*/{BEGUN}")):
        ended = f"Snakemake ended with status {process.returncode}"
        why = [*slurm.refusals(log), *slurm.last_words(state)] or [steps.tail(log)]
        raise TestbedError("\n".join([ended, *why]))


def _caches() -> dict[str, str]:
    """Variables for our own cache, with a subfolder for Snakemake's."""
    ours = cache.cache_folder()
    return {"HYDRA_CACHE": str(ours), "XDG_CACHE_HOME": str(ours / "others")}


def _snakemake_command(state: Path, retries: int, options: Sequence[str]) -> list[str]:
    return [
        # A shell's background jobs ignore SIGINT, but Snakemake must get ours.
        *("env", "--default-signal=INT"),
        *(sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)),
        *("--directory", str(state), "--config", f"jobs={(state / 'jobs.json').absolute()}"),
        *(*options, "--retries", str(retries), "--keep-going"),
        # Users of a cluster have profiles for their own workflows.
        *("--profile", "none", "--workflow-profile", "none"),
        # Snakemake keeps no records of finished runs, and the directory's lock is ours.
        *("--nolock", "--drop-metadata", "--scheduler", "greedy", "--nocolor"),
    ]


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End Snakemake and its jobs, which are in its process group: with SIGINT first.

    Without grace it is killed at once: on a cluster it would notice the signal only the next time
    it asks for its jobs.
    """
    if process.poll() is None and grace_s:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    steps.end_group(process, 0)
