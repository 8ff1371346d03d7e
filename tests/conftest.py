"""What holds for all tests, and the fixtures of several files.

Those that need root are skipped without it. What isn't a fixture is in `made_record`, `made_runs`,
`commands`, `batch_stand_in`, `machine` and `waiting`.
"""

import io
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import batch_stand_in
import pytest
from commands import QUEUE_VARIANT, VARIANT
from filelock import ReadWriteLock
from made_record import (
    SCENARIO,
    START_S,
    finished,
)

from testbed import cli
from testbed.machines.watching import Usage
from testbed.plan import make_plan
from testbed.plan_model import Plan
from testbed.results import MachineFacts
from testbed.setup import cache, steps
from testbed.setup.builds import Build


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """No test of another worker goes on beside one that is marked alone, fixtures included."""
    assert item.config.cache is not None
    lock = ReadWriteLock(item.config.cache.mkdir("beside") / "lock")
    alone = item.get_closest_marker("alone")
    with lock.write_lock() if alone else lock.read_lock():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures are made."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """The command line sets its own; pytest needs its own back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, empty."""
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))
    return cache.cache_folder()


@pytest.fixture
def progress() -> steps.Progress:
    """Of a set-up, shown to nobody."""
    return steps.Progress(io.StringIO())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Of a run of two clients."""
    file = tmp_path / "Mine.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return make_plan(str(file), "vanilla", seed=3)


@pytest.fixture
def facts(tmp_path: Path) -> MachineFacts:
    """Of the machine that it ran in."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "build.json").write_text('{"name": "tor", "version": "0.4.9.11"}')
    return MachineFacts(
        machine="virtual",
        cost=Usage(virtual_s=40.0, wall_s=8.0, cpu_s=7.5),
        started=datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        ended=datetime(2026, 3, 1, 12, 0, 8, tzinfo=UTC),
        virtual_start_s=START_S - 30,
        memory_mb=512,
        kernel=None,
        tor=Build(build),
    )


@pytest.fixture
def run(tmp_path: Path, plan: Plan, facts: MachineFacts) -> Path:
    """The run's directory."""
    destination = tmp_path / "results" / "seed-3"
    finished(destination, plan, facts)
    return destination


# What stands in the place of a user's folder, a batch, and a kernel.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a scenario and a variant of the user's own in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "Mine.toml").write_text(SCENARIO, encoding="utf-8")
    (folder / "mine-variant.toml").write_text(VARIANT, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def mine(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a batch of two variants and two seeds, and the stand-in."""
    (folder / "mine.toml").write_text(batch_stand_in.BATCH, encoding="utf-8")
    (tmp_path / "stand-in").mkdir()
    monkeypatch.setenv(batch_stand_in.STAND_IN, str(tmp_path / "stand-in"))
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))
    batch_stand_in.behave({})
    batch_stand_in.put_in_place(monkeypatch)
    return folder


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that don't read it: it takes longer than all else here."""
    monkeypatch.setattr(cli, "_write_report", lambda *_arguments, **_named: None)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a program that takes the kernel's place: shell commands, in its staging directory."""
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))

    def make(commands: str) -> Path:
        kernel = tmp_path / "linux"
        # A machine's home is its staging directory.
        kernel.write_text(f'#!/bin/sh\ncd "$HOME" || exit\n{commands}\n')
        kernel.chmod(0o755)
        return kernel

    return make


@pytest.fixture
def two_variants(folder: Path) -> Path:
    """The same, with another variant for `COMPARE`."""
    (folder / "queue.toml").write_text(QUEUE_VARIANT, encoding="utf-8")
    return folder
