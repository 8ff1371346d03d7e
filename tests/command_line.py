"""For tests: commands as a user types them, run in this process, and stand-ins for a machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_record import raw_rows, write_record

from commands.__main__ import main
from testbed.basics.ending import BAD_INPUT
from testbed.basics.errors import TestbedError
from testbed.machines.folders import Folders
from testbed.machines.watching import Usage
from testbed.plan.model import Plan
from testbed.runs import runner, up_to_date
from testbed.setup.builds import Build
from testbed.setup.ready import Ready, TorNeed

QUEUE_VARIANT = 'title = "Mine"\nextends = "vanilla"\n[consensus]\ncellq_high = 64\n'
COMPARE = ("compare", "./Mine.toml", "vanilla", "./queue.toml", "--runs", "2")
VARIANT = """
title = "Mine"
extends = "vanilla"
patches = ["faster.patch"]
"""


def status_of(arguments: Sequence[str]) -> int:
    """Run a command, and return the exit status that its process would have."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def refused(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run a command that must be refused, and return its one line of error."""

    def never(*_arguments: object) -> None:
        pytest.fail("the set-up was started for bad input")

    monkeypatch.setattr(runner, "ensure_ready", never)
    before = sorted(Path.cwd().rglob("*"))
    assert status_of(arguments) == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("run.py")
    assert sorted(Path.cwd().rglob("*")) == before
    return printed.err


def with_machine(
    monkeypatch: pytest.MonkeyPatch, folder: Path, machine: "type[FakeMachine]"
) -> None:
    """Put a machine and builds in place of the real ones."""
    build = folder.parent / "build"
    build.mkdir()
    (build / "build.json").write_text('{"name": "tor", "version": "0.4.9.11"}')
    for product in ("linux", "tor"):
        (build / product).touch()

    def ready(_messages: object, needs: Sequence[TorNeed]) -> Ready:
        return Ready(kernel=Build(build), tors=dict.fromkeys(needs, Build(build)))

    monkeypatch.setattr(runner, "ensure_ready", ready)
    machine_runs(monkeypatch, machine)
    monkeypatch.setattr(up_to_date, "tor_now", lambda _need: Build(build).metadata)
    monkeypatch.setattr(up_to_date, "kernel_now", lambda: Build(build).metadata)


def machine_runs(monkeypatch: pytest.MonkeyPatch, machine: "type[FakeMachine]") -> None:
    """Replace the machine with another one."""

    def folders(_plan: Plan, directory: Path, *_others: object) -> Folders:
        return Folders(run=directory, code=directory)

    def run(
        plan: Plan, its: Folders, kernel: Path, _on_step: object, *options: str, **_: object
    ) -> Usage:
        (its.run / "plan.json").write_text(plan.model_dump_json())
        return machine.run(kernel, options, its.run)

    monkeypatch.setattr(runner, "guest_folders", folders)
    monkeypatch.setattr(runner, "run_in_guest", run)


class FakeMachine:
    """A machine that leaves the record of a run of two clients, as the experiment would."""

    changed: dict[str, list[dict[str, Any]]] = {}  # noqa: RUF012 - never written to

    @classmethod
    def run(cls, _kernel: Path, _command: object, staging: Path, **_options: object) -> Usage:
        plan = Plan.model_validate_json((staging / "plan.json").read_text())
        write_record(staging, raw_rows(plan) | cls.changed)
        return Usage(virtual_s=40.0, wall_s=8.0, cpu_s=7.5)


class StoppedClock(FakeMachine):
    """A machine whose run covers nothing of its duration, so its premise fails."""

    changed = {"sockets": []}  # noqa: RUF012


RUN = ("scenario", "./Mine.toml", "--seed", "3", "--out", "run")


class Panicking(FakeMachine):
    """A machine whose kernel panics half-way."""

    @classmethod
    def run(cls, _kernel: Path, _command: object, staging: Path, **_options: object) -> Usage:
        (staging / "logs").mkdir()
        (staging / "logs" / "kernel.log").write_text("Kernel panic")
        raise TestbedError("the guest's kernel panicked\n  Kernel panic")
