"""Rules for all tests, and fixtures of several files.

Tests that need root are skipped without it. Helpers that aren't fixtures are in `made_record`,
`made_runs`, `command_line`, `batch_stand_in`, `faults`, `machine` and `waiting`.
"""

import io
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import batch_stand_in
import pytest
from command_line import QUEUE_VARIANT, VARIANT
from faults import LISTENERS
from filelock import ReadWriteLock
from machine import OWN_MOUNTS
from made_record import SCENARIO, START_S, finished

from testbed.asked.plans import make_plan
from testbed.basics import cache, steps
from testbed.machines.watching import Usage
from testbed.plan.model import Plan
from testbed.results import MachineFacts
from testbed.setup.builds import Build

TAKE_LONG = ("experiment", "slow", "alone")
"""The marks of tests that take more than seconds."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let no other worker's test run beside one that is marked alone, including fixtures."""
    assert item.config.cache is not None
    lock = ReadWriteLock(item.config.cache.mkdir("beside") / "lock")
    alone = item.get_closest_marker("alone")
    with lock.write_lock() if alone else lock.read_lock():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have most tests that take long: a worker has a file to itself."""
    files = Counter(item.path for item in items if any(map(item.get_closest_marker, TAKE_LONG)))
    items.sort(key=lambda item: -files[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before a test's fixtures are made."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    if item.get_closest_marker("long") and "long" not in item.config.option.markexpr:
        pytest.skip("by name only: -m long")


@pytest.fixture
def own_mounts(tmp_path: Path) -> None:
    """Skip where users may have no mounts of their own (`machine.OWN_MOUNTS`)."""
    mount = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    tried = subprocess.run(mount, capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mount in a user namespace: {tried.stderr.decode().strip()}")


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """Restore pytest's signal handlers, which the command line replaces."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))
    return cache.cache_folder()


@pytest.fixture
def progress() -> steps.Progress:
    """The progress of a set-up, shown to nobody."""
    return steps.Progress(io.StringIO())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The plan of a run of two clients."""
    file = tmp_path / "Mine.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return make_plan(str(file), "vanilla", seed=3)


@pytest.fixture
def facts(tmp_path: Path) -> MachineFacts:
    """Facts about the machine that it ran in."""
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


# Stand-ins for a user's folder, a batch, and a kernel.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a user's own scenario and variant in it."""
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
    """Write no report, for tests that don't read it: it takes longer than all the rest."""
    monkeypatch.setattr("commands.batch.write", lambda *_arguments, **_named: None)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a stand-in for the kernel: shell commands that run in the staging directory."""
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))

    def make(commands: str) -> Path:
        kernel = tmp_path / "linux"
        # The kernel's HOME is the staging directory.
        kernel.write_text(f'#!/bin/sh\ncd "$HOME" || exit\n{commands}\n')
        kernel.chmod(0o755)
        return kernel

    return make


@pytest.fixture
def two_variants(folder: Path) -> Path:
    """Like `folder`, with another variant for `COMPARE`."""
    (folder / "queue.toml").write_text(QUEUE_VARIANT, encoding="utf-8")
    return folder


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a short scenario in it."""
    (tmp_path / "Listeners.toml").write_text(LISTENERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
