"""Carries out a batch's runs through Snakemake, in one directory that is its own meanwhile.

It can be stopped at any moment and begun again: what counts is the run directories alone.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from rich.console import Console

from testbed import results
from testbed.batch import slurm
from testbed.batch.estimate import Estimator, earlier_runs
from testbed.batch.notes import BEGUN, ENDED, UNEXPLAINED, Note
from testbed.batch.runs import Batch, Ended, Standing, lacking, look_up, set_aside
from testbed.batch.show import Display
from testbed.batch.slurm import Slurm
from testbed.errors import InputError, TestbedError
from testbed.guest import memory_mb
from testbed.runner import plan_need
from testbed.setup import cache, steps
from testbed.setup.environment import variables
from testbed.setup.ready import Ready, ensure_ready
from testbed.toml_file import PROJECT

SNAKEFILE = Path(__file__).with_name("Snakefile")
JOB = (sys.executable, "-m", "testbed.batch.job")
"""What carries out one run, given the folder of its note."""

STATE = ".batch"
SNAKEMAKE_LOG = "snakemake.log"
LOOK_INTERVAL_S = 0.5
GRACE_S = 30.0
"""For the runs to end their machines and remove what is half-done, after an interruption."""


def carry_out(
    batch: Batch,
    directory: Path,
    messages: Console,
    *,
    at_once: int,
    retries: int = 1,
    again_invalid: bool = False,
    mixed: bool = False,
    cluster: Slurm | None = None,
) -> Ended:
    """Carry out the runs that are lacking; those that are there and whole stay.

    Args:
        directory: where the runs' folders come.
        messages: where set-up and progress are shown.
        at_once: how many runs.
        retries: how often a run that failed is tried again.
        again_invalid: whether invalid runs are made again.
        mixed: whether runs stay that another Tor, kernel or testbed made than makes them now.
        cluster: where they go; None for this machine.

    Raises:
        InputError: another batch works in the directory, something in it can't be used, or there
            is no cluster here.
        TestbedError: a build failed, or Snakemake or Slurm did.
    """
    if cluster:
        slurm.check_here()
    with _alone_in(directory):
        if cluster:
            slurm.cancel_jobs(directory)  # of a call that was killed
        for folder in batch.plans:
            results.remove_left_overs(directory / folder)
        standings = look_up(batch.plans, directory, mixed=mixed)
        estimator = Estimator(earlier_runs(Path("results"), directory))
        to_run = lacking(standings, estimator, again_invalid=again_invalid)
        if not to_run:
            return Ended(standings, {})
        ready = ensure_ready(messages, [plan_need(one.plan) for one in to_run])
        for one in to_run:
            _clear_the_way(one, messages)
        state = directory / STATE
        notes = _new_notes(to_run, state, ready, estimator, cluster)
        wanted = list(zip(to_run, notes, strict=True))
        # How many a cluster carries out at once, it alone knows.
        display = Display(
            messages, wanted, estimator, at_once=None if cluster else at_once, tries=retries + 1
        )
        work = _on_cluster if cluster else _on_this_machine
        with work(directory, at_once, retries) as process, display.shown():
            # Of the last job's end on a cluster Snakemake may hear three minutes later.
            while process.poll() is None and not (display.update() and cluster):
                time.sleep(LOOK_INTERVAL_S)
            display.update()
            if cluster:
                slurm.wait_for_jobs(directory)
        return _ended(batch, directory, wanted, mixed=mixed)


def all_cores() -> int:
    """How many runs there can be at once with a core each."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which ends with the process however that ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / f"{STATE}.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{directory}: another batch is at work there: wait for its end, or give another --out"
        ) from None
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}: needed for results") from error
    try:
        yield
    finally:
        lock.release()


def _clear_the_way(standing: Standing, messages: Console) -> None:
    reason = standing.in_the_way or (standing.run and "invalid, and asked for again")
    if reason:
        aside = set_aside(standing)
        text = f"{standing.folder} is run again: {reason}; what was there is in {aside}"
        messages.print(text, markup=False, highlight=False, soft_wrap=True)


def _new_notes(
    to_run: Sequence[Standing],
    state: Path,
    ready: Ready,
    estimator: Estimator,
    cluster: Slurm | None,
) -> list[Note]:
    """The notes of the runs, and what Snakemake is to do; nothing of an earlier call stays."""
    shutil.rmtree(state, ignore_errors=True)
    # Here it dies with Snakemake, even of kill -9. On a cluster Slurm ends it, and lets it tidy up.
    around = [] if cluster else steps.dying_with_us([])
    jobs, notes = [], []
    for number, one in enumerate(to_run, start=1):
        note = Note(state.absolute() / "notes" / f"{number:03}")
        note.ask(one.plan, one.folder, ready)
        notes.append(note)
        guest_mb, expected = memory_mb(one.plan), estimator.expected(one.plan)
        jobs.append(
            {
                "ended": str(note.folder / ENDED),
                "command": [*around, *JOB, str(note.folder)],
                "resources": cluster.resources(guest_mb, expected)
                if cluster
                else {"mem_mb": guest_mb},
            }
        )
    (state / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    return notes


@contextmanager
def _on_this_machine(
    directory: Path, cores: int, retries: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake at work with jobs of its own; with the context it and they end."""
    state = directory / STATE
    jobs = json.loads((state / "jobs.json").read_text(encoding="utf-8"))
    # A run that needs more than there is must not wait for ever.
    room_mb = psutil.virtual_memory().available // 2**20
    room_mb = max(room_mb, *(job["resources"]["mem_mb"] for job in jobs))
    options = ["--executor", "local", "--cores", str(cores), "--resources", f"mem_mb={room_mb}"]
    with _snakemake(state, retries, options, {}, GRACE_S) as process:
        yield process


@contextmanager
def _on_cluster(directory: Path, jobs: int, retries: int) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake at work with Slurm's jobs; with the context it and they end."""
    state = directory / STATE
    # What a Snakemake leaves that is killed on a node; jobs themselves don't look there.
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
    """Snakemake at work; with the context it ends, and what is in its group.

    Args:
        retries: how often a run that failed is tried again.
        options: which executor, and that executor's.
        environment: variables on top of ours.
        grace_s: to end by itself, and its jobs with it.

    Raises:
        TestbedError: it failed, before any run began.
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
    """Our own, wherever it is, with room for Snakemake's."""
    ours = cache.cache_folder()
    return {"HYDRA_CACHE": str(ours), "XDG_CACHE_HOME": str(ours / "others")}


def _snakemake_command(state: Path, retries: int, options: Sequence[str]) -> list[str]:
    return [
        # In a shell's background Ctrl-C is ignored, and Snakemake must still hear of ours.
        *("env", "--default-signal=INT"),
        *(sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)),
        *("--directory", str(state), "--config", f"jobs={(state / 'jobs.json').absolute()}"),
        *(*options, "--retries", str(retries), "--keep-going"),
        # A cluster's users have profiles, for workflows of their own.
        *("--profile", "none", "--workflow-profile", "none"),
        # What is done is not for Snakemake to remember, and the directory's lock is ours.
        *("--nolock", "--drop-metadata", "--scheduler", "greedy", "--nocolor"),
    ]


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End Snakemake if it still works, and its jobs, which are in its group: politely, first.

    Without grace it is just ended: it would hear of that after its next look at the cluster.
    """
    if process.poll() is None and grace_s:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    steps.end_group(process, 0)


def _ended(
    batch: Batch, directory: Path, wanted: Sequence[tuple[Standing, Note]], *, mixed: bool
) -> Ended:
    """How the runs stand, by what is there."""
    standings = look_up(batch.plans, directory, mixed=mixed)
    lacking = {one.folder for one in standings if one.run is None}
    return Ended(
        standings,
        {
            one.folder: _failure(note, number, directory / STATE)
            for number, (one, note) in enumerate(wanted, start=1)
            if one.folder in lacking
        },
    )


def _failure(note: Note, number: int, state: Path) -> str:
    """Why the last try of a run failed, as far as anybody has said."""
    told = note.failures()
    if told and told[-1] not in UNEXPLAINED and note.last_step() is None:
        return told[-1]
    killed = f"ended from outside, before it could say why: see {state / SNAKEMAKE_LOG}"
    return "\n".join([killed, *slurm.last_words(state, str(number))])
