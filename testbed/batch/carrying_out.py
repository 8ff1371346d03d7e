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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from rich.console import Console

from testbed.batch.batch_file import Batch
from testbed.batch.display import Display
from testbed.batch.estimate import Estimator, earlier_runs
from testbed.batch.notes import BEGUN, ENDED, Note
from testbed.batch.standing import Standing, look_up, set_aside
from testbed.errors import InputError, TestbedError
from testbed.runner import memory_mb, plan_need
from testbed.setup import cache, steps
from testbed.setup.environment import variables
from testbed.setup.ready import ensure_ready
from testbed.toml_file import PROJECT

SNAKEFILE = Path(__file__).with_name("Snakefile")
JOB = (sys.executable, "-m", "testbed.batch.job")
"""What carries out one run, given the folder of its note."""

STATE = ".batch"
SNAKEMAKE_LOG = "snakemake.log"
LOOK_INTERVAL_S = 0.5
GRACE_S = 30.0
"""For the runs to end their machines and remove what is half-done, after an interruption."""


@dataclass(frozen=True)
class Ended:
    """How a batch ended.

    Attributes:
        standings: how each of its runs stands now.
        failures: by the folder of each run that is lacking, the error of its last try.
    """

    standings: Sequence[Standing]
    failures: dict[Path, str]

    @property
    def invalid(self) -> list[Standing]:
        """The runs that are there and don't count."""
        return [one for one in self.standings if one.run and not one.run.summary.valid]


def carry_out(
    batch: Batch,
    directory: Path,
    messages: Console,
    *,
    at_once: int,
    retries: int = 1,
    again_invalid: bool = False,
) -> Ended:
    """Carry out the runs that are lacking; those that are there and whole stay.

    Args:
        directory: where the runs' folders come.
        messages: where set-up and progress are shown.
        at_once: how many runs.
        retries: how often a run that failed is tried again.
        again_invalid: whether invalid runs are made again.

    Raises:
        InputError: another batch works in the directory, or something in it can't be used.
        TestbedError: a build failed, or Snakemake did.
    """
    with _alone_in(directory):
        standings = look_up(batch.plans, directory)
        lacking = [one for one in standings if lacks(one, again_invalid=again_invalid)]
        if not lacking:
            return Ended(standings, {})
        ensure_ready(messages, [plan_need(one.plan) for one in lacking])
        for one in lacking:
            _clear_the_way(one, messages)
        estimator = Estimator(earlier_runs(Path("results"), directory))
        notes = _new_notes(lacking, directory / STATE)
        wanted = list(zip(lacking, notes, strict=True))
        display = Display(messages, wanted, estimator, at_once=at_once, tries=retries + 1)
        with _snakemake(directory / STATE, at_once, retries) as process, display.shown():
            while process.poll() is None:
                display.update()
                time.sleep(LOOK_INTERVAL_S)
            display.update()
        return _ended(batch, directory, wanted)


def all_cores() -> int:
    """How many runs there can be at once with a core each."""
    return len(os.sched_getaffinity(0))


def lacks(standing: Standing, *, again_invalid: bool) -> bool:
    """Whether a run is to be made: it isn't there, or doesn't count and is asked for again."""
    return standing.run is None or (again_invalid and not standing.run.summary.valid)


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


def _new_notes(lacking: Sequence[Standing], state: Path) -> list[Note]:
    """The notes of the runs, and what Snakemake is to do; nothing of an earlier call stays."""
    shutil.rmtree(state, ignore_errors=True)
    jobs, notes = [], []
    for number, one in enumerate(lacking, start=1):
        note = Note(state.absolute() / "notes" / f"{number:03}")
        note.ask(one.plan, one.folder)
        notes.append(note)
        jobs.append(
            {
                "ended": str(note.folder / ENDED),
                "command": [*JOB, str(note.folder)],
                "memory_mb": memory_mb(one.plan),
            }
        )
    (state / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    return notes


@contextmanager
def _snakemake(state: Path, cores: int, retries: int) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake at work; with the context it and its jobs end.

    Raises:
        TestbedError: it failed, before any run began.
    """
    log = state / SNAKEMAKE_LOG
    with (
        log.open("wb") as output,
        subprocess.Popen(
            steps.dying_with_us(_snakemake_command(state, cores, retries)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables(PROJECT) | _caches(),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)
    if process.returncode != 0 and not any(state.glob(f"notes/*/{BEGUN}")):
        raise TestbedError(f"Snakemake ended with status {process.returncode}\n{steps.tail(log)}")


def _caches() -> dict[str, str]:
    """Our own, wherever it is, with room for Snakemake's."""
    ours = cache.cache_folder()
    return {"HYDRA_CACHE": str(ours), "XDG_CACHE_HOME": str(ours / "others")}


def _snakemake_command(state: Path, cores: int, retries: int) -> list[str]:
    jobs = json.loads((state / "jobs.json").read_text(encoding="utf-8"))
    # A run that needs more than there is must not wait for ever.
    room_mb = psutil.virtual_memory().available // 2**20
    room_mb = max(room_mb, *(job["memory_mb"] for job in jobs))
    return [
        # In a shell's background Ctrl-C is ignored, and Snakemake must still hear of ours.
        *("env", "--default-signal=INT"),
        *(sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)),
        *("--directory", str(state), "--config", f"jobs={(state / 'jobs.json').absolute()}"),
        *("--cores", str(cores), "--resources", f"mem_mb={room_mb}"),
        *("--retries", str(retries), "--keep-going"),
        # A cluster's users have profiles, for workflows of their own.
        *("--executor", "local", "--profile", "none", "--workflow-profile", "none"),
        # What is done is not for Snakemake to remember, and the directory's lock is ours.
        *("--nolock", "--drop-metadata", "--scheduler", "greedy", "--nocolor"),
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Snakemake if it still works, and its jobs, which are in its group: politely, first."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    steps.end_group(process, 0)


def _ended(batch: Batch, directory: Path, wanted: Sequence[tuple[Standing, Note]]) -> Ended:
    """How the runs stand, by what is there."""
    standings = look_up(batch.plans, directory)
    lacking = {one.folder for one in standings if one.run is None}
    killed = f"ended from outside, before it could say why: see {directory / STATE / SNAKEMAKE_LOG}"
    return Ended(
        standings,
        {
            one.folder: (note.failures() or [killed])[-1]
            for one, note in wanted
            if one.folder in lacking
        },
    )
