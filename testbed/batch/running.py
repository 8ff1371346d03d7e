"""Runs a batch through Snakemake, in a directory that nothing else uses meanwhile.

A batch can be stopped at any moment and started again: only run directories count.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from testbed import results
from testbed.basics import steps
from testbed.basics.console import say
from testbed.basics.errors import InputError
from testbed.batch import slurm
from testbed.batch.batch_file import Batch
from testbed.batch.display import Display
from testbed.batch.estimate import Estimator, earlier_runs
from testbed.batch.notes import ENDED, UNEXPLAINED, Note
from testbed.batch.slurm import Slurm
from testbed.batch.snakemake import SNAKEMAKE_LOG, STATE, on_cluster, on_this_machine
from testbed.batch.standings import Ended, Standing, lacking, look_up, set_aside
from testbed.machines.guest import memory_mb
from testbed.runs.runner import plan_need
from testbed.setup.ready import Ready, ensure_ready

JOB = (sys.executable, "-m", "testbed.batch.job")
"""The program that makes one run, given the folder of its note."""

LOOK_INTERVAL_S = 0.5


def run_batch(
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
    """Make the runs that are missing; whole runs stay.

    Args:
        directory: the parent of the runs' folders.
        messages: where the set-up and the progress are shown.
        at_once: how many runs go on at the same time.
        retries: how often a failed run is tried again.
        again_invalid: whether invalid runs are made again.
        mixed: whether runs that another Tor, kernel or testbed made stay.
        cluster: where the runs go; None for this machine.

    Raises:
        InputError: another batch works in the directory, it can't be used, or there is no cluster
            here.
        TestbedError: a build failed, or Snakemake or Slurm did.
    """
    if cluster:
        slurm.check_here()
    with _alone_in(directory):
        _remove_left_overs(batch, directory, cluster)
        standings = look_up(batch.plans, directory, mixed=mixed)
        estimator = Estimator(earlier_runs(Path("results"), directory))
        to_run = lacking(standings, estimator, again_invalid=again_invalid)
        if not to_run:
            return Ended(standings, {})
        ready = ensure_ready(messages, [plan_need(one.plan) for one in to_run])
        for one in to_run:
            _clear_the_way(one, messages)
        notes = _new_notes(to_run, directory / STATE, ready, estimator, cluster)
        wanted = list(zip(to_run, notes, strict=True))
        # Only a cluster itself knows how many jobs it runs at once.
        display = Display(
            messages, wanted, estimator, at_once=None if cluster else at_once, tries=retries + 1
        )
        work = on_cluster if cluster else on_this_machine
        with work(directory, at_once, retries) as process:
            _follow(process, display, directory, cluster)
        return _ended(batch, directory, wanted, mixed=mixed)


def _remove_left_overs(batch: Batch, directory: Path, cluster: Slurm | None) -> None:
    """Remove what a killed call has left: a cluster's jobs and unfinished runs."""
    if cluster:
        slurm.cancel_jobs(directory)
    for folder in batch.plans:
        results.remove_left_overs(directory / folder)


def _follow(
    process: subprocess.Popen[bytes], display: Display, directory: Path, cluster: Slurm | None
) -> None:
    """Show the runs' progress until Snakemake has ended; on a cluster until the last run has."""
    with display.shown():
        # Snakemake may learn of a cluster's last job up to three minutes after its end.
        while process.poll() is None and not (display.update() and cluster):
            time.sleep(LOOK_INTERVAL_S)
        display.update()
        if cluster:
            slurm.wait_for_jobs(directory)


def all_cores() -> int:
    """The number of cores, each of which can have a run."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; it is released however this process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / f"{STATE}.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{directory}: another batch is running there: wait until it ends, or give another"
            " --out"
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
        say(messages, f"{standing.folder} is run again: {reason}; what was there is in {aside}")


def _new_notes(
    to_run: Sequence[Standing],
    state: Path,
    ready: Ready,
    estimator: Estimator,
    cluster: Slurm | None,
) -> list[Note]:
    """Write each run's note and Snakemake's jobs, after removing those of earlier calls."""
    shutil.rmtree(state, ignore_errors=True)
    # Here a job dies with Snakemake, even of kill -9. On a cluster Slurm ends it, with time to
    # tidy up.
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
                # Here Snakemake counts runs, and on a cluster cores.
                "cores": one.plan.kernels if cluster else 1,
                "resources": cluster.resources(guest_mb, expected)
                if cluster
                else {"mem_mb": guest_mb},
            }
        )
    (state / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    return notes


def _ended(
    batch: Batch, directory: Path, wanted: Sequence[tuple[Standing, Note]], *, mixed: bool
) -> Ended:
    """Find out how the runs stand, and why runs are missing."""
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
    """Why the last try of a run failed, as far as is known."""
    failures = note.failures()
    if failures and failures[-1] not in UNEXPLAINED and note.last_step() is None:
        return failures[-1]
    killed = f"ended from outside, without a reason: see {state / SNAKEMAKE_LOG}"
    return "\n".join([killed, *slurm.last_words(state, str(number))])
