"""For tests of batches: the command line and its jobs with a stand-in for machine and builds.

As a program, `python batch_stand_in.py batch FILE …` is `./run.py batch FILE …`, and with the
folder of a note it is that job. What its machines do, `behaviour.json` in the folder `$STAND_IN`
says.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import FakeMachine, StoppedClock, status_of, with_machine

from testbed import cli, runner
from testbed.batch import carrying_out, job
from testbed.errors import TestbedError
from testbed.machines.watching import Usage
from testbed.plan_model import Plan
from testbed.results import read_run
from testbed.setup import releases
from testbed.toml_file import PROJECT

BATCH = """
title = "Mine"
variants = ["vanilla", "pctls"]
seeds = [1, 2]
[[runs]]
scenarios = ["./Mine.toml"]
"""
ALL = ["vanilla 1", "pctls 1", "vanilla 2", "pctls 2"]
MINE = Path("results/mine/Mine")

STAND_IN = "STAND_IN"
GOES_WELL, FAILS, FAILS_ONCE, IS_INVALID, IS_SLOW = "well", "fails", "once", "invalid", "slow"
NEEDS_ANOTHER = "needs another"
"""It ends well once another run was begun meanwhile: two need two places to run at."""
SLOW_S = 600.0


def folder() -> Path:
    """Of the stand-in's own files."""
    return Path(os.environ[STAND_IN])


def behave(behaviour: Mapping[str, str], tor: str = "0.4.9.11") -> None:
    """Say how runs go, by variant and seed ("vanilla 2"), and which Tor there is."""
    content = {"behaviour": dict(behaviour), "tor": tor}
    (folder() / "behaviour.json").write_text(json.dumps(content))


def begun() -> list[str]:
    """The runs that were begun so far, tries by themselves, such as "vanilla 2"."""
    file = folder() / "begun"
    return file.read_text().splitlines() if file.exists() else []


class Machine(FakeMachine):
    """One that behaves as it is told."""

    @classmethod
    def run(cls, _kernel: Path, _command: object, staging: Path, **options: object) -> Usage:
        plan = Plan.model_validate_json((staging / "plan.json").read_text())
        name = f"{plan.tor.variant} {plan.seed}"
        first = name not in begun()
        with (folder() / "begun").open("a") as file:
            file.write(f"{name}\n")
        content = json.loads((folder() / "behaviour.json").read_text())
        behaviour = content["behaviour"].get(name, GOES_WELL)
        if behaviour == FAILS or (behaviour == FAILS_ONCE and first):
            raise TestbedError("the guest's kernel panicked\n  its last words")
        end_s = time.monotonic() + SLOW_S
        while behaviour == IS_SLOW or (behaviour == NEEDS_ANOTHER and len(begun()) < 2):
            if time.monotonic() > end_s:
                raise TestbedError("nothing came for ten minutes")
            time.sleep(0.1)
        machine = StoppedClock if behaviour == IS_INVALID else FakeMachine
        return machine.run(_kernel, _command, staging, **options)


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched, built or booted from now on, here and in the jobs."""
    tor = json.loads((folder() / "behaviour.json").read_text())["tor"]
    own = Path(tempfile.mkdtemp(dir=folder()))
    with_machine(monkeypatch, own / "unused", Machine)
    metadata = {"name": "tor", "version": tor, "sources": [{"name": "tor", "sha256": tor}]}
    (own / "build" / "build.json").write_text(json.dumps(metadata))
    release = releases.Release("tor", tor, (releases.Tarball(sha256=tor),))
    monkeypatch.setattr(releases, "chosen", lambda _project: releases.Choice(release))
    monkeypatch.setattr(carrying_out, "ensure_ready", vars(runner)["ensure_ready"])
    monkeypatch.setattr(carrying_out, "JOB", (sys.executable, __file__))


def never(*_arguments: object) -> None:
    """Instead of the set-up where it has no place."""
    raise TestbedError("the set-up was called by a job")


def changed(right: str, wrong: str, name: str = "mine.toml") -> None:
    text = Path(name).read_text(encoding="utf-8")
    assert right in text
    Path(name).write_text(text.replace(right, wrong, 1), encoding="utf-8")


def run_batch(*options: str) -> int:
    return status_of(["batch", "./mine.toml", *options])


@contextmanager
def running_batch(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A batch as a process of its own, which is killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, __file__, "batch", "./mine.toml", *options],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def seeds_there() -> list[str]:
    """The runs that count, such as "vanilla/seed-2"."""
    folders = sorted(path.parent for path in MINE.glob("*/[!.]*/summary.json"))
    assert all(read_run(path).summary.valid for path in folders)
    return [str(path.relative_to(MINE)) for path in folders]


if __name__ == "__main__":
    monkeypatch = pytest.MonkeyPatch()
    put_in_place(monkeypatch)
    words = sys.argv[1:]
    if words[0] == "batch":
        sys.exit(cli.main(words))
    monkeypatch.setattr(runner, "ensure_ready", never)
    sys.exit(job.main(Path(words[0])))
