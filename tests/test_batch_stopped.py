"""Batches that are stopped, killed or started twice, and the calls after that."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from batch_stand_in import (
    ALL,
    IS_SLOW,
    MINE,
    STAND_IN_RUN,
    begun,
    behave,
    run_batch,
    running_batch,
    seeds_there,
)
from command_line import refused
from faults import jobs_below
from filelock import FileLock
from waiting import PATIENCE_S, wait_for

from testbed.basics.ending import BAD_INPUT, FAILED, INTERRUPTED, VALID
from testbed.basics.toml_file import PROJECT
from testbed.results import read_run


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_begun_again(mine: Path, number: signal.Signals) -> None:
    behave({"vanilla 2": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:3], "the slow run")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2, "Snakemake and the job"
        process.send_signal(number)
        status = process.wait(PATIENCE_S)
    assert status == (-number if number == signal.SIGKILL else INTERRUPTED)
    wait_for(lambda: not any(child.is_running() for child in children), f"the end of {children}")
    assert seeds_there() == ["pctls/seed-1", "vanilla/seed-1"]
    if number != signal.SIGKILL:
        assert [path.name for path in (MINE / "vanilla").iterdir()] == ["seed-1"]
    behave({})
    assert run_batch() == VALID
    assert sorted(begun()[3:]) == ["pctls 2", "vanilla 2"]
    assert sorted(path.name for path in (MINE / "vanilla").iterdir()) == ["seed-1", "seed-2"]


@pytest.mark.slow
def test_a_job_that_is_killed_is_tried_again(mine: Path) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1", "--retries", "1") as process:
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        behave({})
        (job,) = (
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if child.cmdline()[-1].endswith("001")
        )
        job.kill()
        output = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == VALID
    assert "failed, try 1 of 2: Mine, bulk, vanilla, seed 1: its process was killed" in output
    assert len(seeds_there()) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_two_at_once_on_one_directory(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("results/mine").mkdir(parents=True)
    with FileLock("results/mine/.batch.lock"):
        line = refused(["batch", "./mine.toml"], monkeypatch, capsys)
    assert line.startswith("run.py: results/mine: another batch is running there")
    assert run_batch() == VALID


def test_killed_when_the_run_has_its_name(mine: Path, no_report: None) -> None:
    """The next batch accepts the run, and removes the lock that was left."""
    program = """
import os, signal
from testbed.results import directory
plain = directory._sync
def sync(path):
    plain(path)
    if path.name == "vanilla":
        os.kill(os.getpid(), signal.SIGKILL)
directory._sync = sync
"""
    seed = MINE / "vanilla/seed-1"
    killed = subprocess.run(
        [
            *(sys.executable, "-c", program + STAND_IN_RUN, "scenario", "./Mine.toml"),
            *("--out", str(seed)),
        ],
        env=os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        timeout=PATIENCE_S,
    )
    assert killed.returncode == -signal.SIGKILL
    assert read_run(seed).summary.valid
    written = read_run(seed).manifest["end"]
    assert run_batch() == VALID
    assert sorted(begun()) == sorted(ALL)
    assert read_run(seed).manifest["end"] == written
    assert sorted(path.name for path in seed.parent.iterdir()) == ["seed-1", "seed-2"]


def test_two_batches_are_started_at_once(mine: Path, no_report: None) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1") as one, running_batch("--cores", "1") as other:
        wait_for(lambda: {one.poll(), other.poll()} != {None}, "the end of one")
        left, at_work = (one, other) if one.poll() is not None else (other, one)
        error = left.communicate(timeout=PATIENCE_S)[1]
        assert left.returncode == BAD_INPUT, error
        assert error.startswith("run.py: results/mine: another batch is running there: wait until")
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        behave({})
        (job,) = jobs_below(at_work.pid)
        job.kill()
        error = at_work.communicate(timeout=PATIENCE_S)[1]
        assert at_work.returncode == VALID, error
    assert begun() == [ALL[0], *ALL]


def test_snakemake_is_killed(mine: Path, no_report: None) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        (snakemake,) = (
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "snakemake" in child.cmdline() and child.ppid() == process.pid
        )
        snakemake.kill()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == FAILED
    behave({})
    assert run_batch("--cores", "1") == VALID
    assert begun() == [ALL[0], *ALL]
