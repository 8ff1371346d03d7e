"""For tests of batches: commands and jobs with a stand-in for the machine and the builds.

As a program, `python batch_stand_in.py batch FILE …` stands for `./run.py batch FILE …`; with the
folder of a note it is that job. `behaviour.json` in the folder `$STAND_IN` defines how runs go.
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
from command_line import FakeMachine, StoppedClock, status_of, with_machine

from commands.__main__ import main
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.batch import job, running
from testbed.machines.watching import Usage
from testbed.plan.model import Plan
from testbed.results import read_run
from testbed.runs import runner
from testbed.setup import releases

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
"""Succeeds once another run has begun, so two of them must run at the same time."""
SLOW_S = 600.0

STAND_IN_RUN = """
import sys
import pytest, batch_stand_in
from commands.__main__ import main
batch_stand_in.put_in_place(pytest.MonkeyPatch())
sys.exit(main(sys.argv[1:]))
"""
"""`run.py` with the stand-in, as a program of its own."""


def folder() -> Path:
    """The folder of the stand-in's own files."""
    return Path(os.environ[STAND_IN])


def behave(behaviour: Mapping[str, str], tor: str = "0.4.9.11") -> None:
    """Define how runs go, by variant and seed ("vanilla 2"), and which Tor there is."""
    content = {"behaviour": dict(behaviour), "tor": tor}
    (folder() / "behaviour.json").write_text(json.dumps(content))


def begun() -> list[str]:
    """The runs begun so far, such as "vanilla 2"; each try counts."""
    file = folder() / "begun"
    return file.read_text().splitlines() if file.exists() else []


class Machine(FakeMachine):
    """A machine that behaves as `behave` has defined."""

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
    """Let nothing be fetched, built or booted from now on, here and in the jobs."""
    tor = json.loads((folder() / "behaviour.json").read_text())["tor"]
    own = Path(tempfile.mkdtemp(dir=folder()))
    with_machine(monkeypatch, own / "unused", Machine)
    metadata = {"name": "tor", "version": tor, "sources": [{"name": "tor", "sha256": tor}]}
    (own / "build" / "build.json").write_text(json.dumps(metadata))
    release = releases.Release("tor", tor, (releases.Tarball(sha256=tor),))
    monkeypatch.setattr(releases, "chosen", lambda _project: releases.Choice(release))
    monkeypatch.setattr(running, "ensure_ready", vars(runner)["ensure_ready"])
    monkeypatch.setattr(running, "JOB", (sys.executable, __file__))


def never(*_arguments: object) -> None:
    """Fail in place of the set-up where that must not be called."""
    raise TestbedError("the set-up was called by a job")


def changed(right: str, wrong: str, name: str = "mine.toml") -> None:
    text = Path(name).read_text(encoding="utf-8")
    assert right in text
    Path(name).write_text(text.replace(right, wrong, 1), encoding="utf-8")


def run_batch(*options: str) -> int:
    return status_of(["batch", "./mine.toml", *options])


@contextmanager
def running_batch(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a batch as a process of its own, which is killed with the context if it still runs."""
    with subprocess.Popen(
        [sys.executable, __file__, "batch", "./mine.toml", *options],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def seeds_there() -> list[str]:
    """The valid runs, such as "vanilla/seed-2"."""
    folders = sorted(path.parent for path in MINE.glob("*/[!.]*/summary.json"))
    assert all(read_run(path).summary.valid for path in folders)
    return [str(path.relative_to(MINE)) for path in folders]


if __name__ == "__main__":
    monkeypatch = pytest.MonkeyPatch()
    put_in_place(monkeypatch)
    words = sys.argv[1:]
    if words[0] == "batch":
        sys.exit(main(words))
    monkeypatch.setattr(runner, "ensure_ready", never)
    sys.exit(job.main(Path(words[0])))
