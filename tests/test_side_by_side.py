"""Steps of the set-up that run, end and are shown together.

Also the builds that are started ahead, beside the environment.
"""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_setup import program
from waiting import is_running, wait_for

from testbed.basics import steps
from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress, run_logged
from testbed.setup import environment, packages
from testbed.setup.side_by_side import side_by_side

PROJECT = Path(__file__).resolve().parent.parent
# Builds two toys side by side, each by a program that would take minutes and writes its number.
ENDLESS = """
import signal, sys
sys.path.insert(0, {project!r})
# A shell's background job ignores Ctrl-C, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from testbed.setup import ahead, builds, kernel, tor
from testbed.setup.side_by_side import side_by_side
from testbed.basics.steps import Progress, run_logged

builds.ROOM_BYTES = 0

def build(name):
    def make(folder, log):
        run_logged(["sh", "-c", f"{first} echo $$ > {folder}/{{name}}; sleep 300; sleep 300"], log)
    recipe = builds.Recipe(name, "1", (), configuration="", compiler="cc", steps=1)
    return builds.build(recipe, make, Progress())

kernel.kernel_build = lambda _progress: build("linux")
tor.tor_build = lambda _source, _patches, _progress: build("tor")
"""
BUILDS = """
side_by_side([("linux", lambda: kernel.kernel_build(0)), ("tor", lambda: tor.tor_build(0, 0, 0))],
             Progress())
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HYDRA_CACHE", str(folder))
    return folder


def endless(folder: Path, doing: str, first: str = "") -> str:
    words = {"project": str(PROJECT), "folder": folder, "first": first}
    return ENDLESS.format(**words) + doing


def programs_of(folder: Path) -> list[int]:
    """Wait until both programs have begun, and return their process numbers."""
    for name in ("linux", "tor"):
        wait_for((folder / name).exists, name)
    time.sleep(0.1)
    return [int((folder / name).read_text()) for name in ("linux", "tor")]


def wait_until_ended(numbers: list[int]) -> None:
    end_s = time.monotonic() + 10
    while any(is_running(number) for number in numbers):
        assert time.monotonic() < end_s, "the programs still run"
        time.sleep(0.05)


def half_done(own_cache: Path) -> list[Path]:
    return [path for path in (own_cache / "builds").iterdir() if path.is_dir()]


def test_tasks_run_at_the_same_time(progress: Progress) -> None:
    both = threading.Barrier(2, timeout=30)

    def task(number: int) -> int:
        both.wait()
        return number

    tasks = [("one", lambda: task(1)), ("two", lambda: task(2))]
    assert side_by_side(tasks, progress) == [1, 2]


def test_first_failure_ends_the_others(tmp_path: Path, progress: Progress) -> None:
    begun = tmp_path / "begun"

    def fail() -> None:
        wait_for(begun.exists, str(begun))
        raise TestbedError("no room")

    def go_on() -> None:
        run_logged(["sh", "-c", f"echo $$ > {begun}; sleep 300"], tmp_path / "log")

    start_s = time.monotonic()
    later = [("later", lambda: (tmp_path / "later").touch())] * 200
    with pytest.raises(TestbedError, match="no room"):
        side_by_side(
            [("bad", fail), ("good", go_on), ("wait", lambda: steps.pause(9)), *later], progress
        )
    assert time.monotonic() - start_s < 8
    wait_until_ended([int(begun.read_text())])
    # Later steps are not stopped.
    assert side_by_side([("again", lambda: run_logged(["true"], tmp_path / "log"))], progress)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_end_of_the_set_up_ends_all_of_it(
    tmp_path: Path, own_cache: Path, signal_number: signal.Signals
) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", endless(tmp_path, BUILDS)], stderr=subprocess.DEVNULL
    )
    numbers = programs_of(tmp_path)
    runner.send_signal(signal_number)
    runner.wait(timeout=10)
    wait_until_ended(numbers)
    if signal_number == signal.SIGINT:
        assert half_done(own_cache) == []


# Builds that are started ahead.


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (["setup"], True),
        (["scenario", "One"], True),
        (["scenario", "One", "--machine", "host"], False),
        (["doctor"], False),
        ([], False),
    ],
)
def test_builds_are_begun_beside_the_environment(
    own_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    begun: bool,
) -> None:
    """The Python here only records its arguments, so no environment is made."""
    calls = tmp_path / "calls"
    program(tmp_path, "python", f'echo "$@" >> {calls}')
    monkeypatch.setattr(environment, "SYSTEM_PYTHON", tmp_path / "python")
    monkeypatch.setattr(packages, "ensure_packages", lambda progress: None)
    with pytest.raises(TestbedError):
        environment.ensure_environment(PROJECT, arguments)
    time.sleep(0.3)
    assert ("-m testbed.setup.ahead" in calls.read_text()) is begun


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_begun_ahead_ends_with_who_began_it(
    tmp_path: Path, own_cache: Path, signal_number: signal.Signals
) -> None:
    ahead = endless(tmp_path, "ahead.main()")
    # The parent becomes another program meanwhile, as run.py does.
    door = (
        f"import os, subprocess, sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "from testbed.basics.steps import dying_with_us\n"
        f"subprocess.Popen(dying_with_us([sys.executable, '-c', {ahead!r}], 'TERM'))\n"
        "os.execvp('sleep', ['sleep', '300'])\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", door], stderr=subprocess.DEVNULL)
    numbers = programs_of(tmp_path)
    assert len(half_done(own_cache)) == 2
    runner.send_signal(signal_number)
    runner.wait(timeout=10)
    wait_until_ended(numbers)
    end_s = time.monotonic() + 10
    while half_done(own_cache):
        assert time.monotonic() < end_s, "half a build stays"
        time.sleep(0.05)


def test_all_signals_at_once_leave_nothing(tmp_path: Path, own_cache: Path) -> None:
    """Ctrl-C reaches both processes, and then the parent of one ends."""
    ahead = endless(tmp_path, "ahead.main()", first="trap '' TERM;")
    runner = subprocess.Popen([sys.executable, "-c", ahead], stderr=subprocess.DEVNULL)
    numbers = programs_of(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        runner.send_signal(number)
        time.sleep(0.3)
    assert runner.wait(timeout=20)
    wait_until_ended(numbers)
    assert half_done(own_cache) == []


# What is shown.


def test_off_a_terminal_each_end_says_what_is_left() -> None:
    shown = io.StringIO()
    progress = Progress(shown)
    progress.expect("tor")
    with progress.step("Building linux"):
        with progress.step("Fetching tor"):
            pass
        progress.begun("tor")
    assert shown.getvalue().splitlines() == [
        "Building linux ...",
        "Fetching tor ...",
        "Fetching tor: done in 0 s; left: Building linux, tor",
        "Building linux: done in 0 s",
    ]


def test_on_a_terminal_all_that_runs_and_is_left_is_shown_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = io.StringIO()
    progress = Progress(shown, live=True)
    progress.expect("tor 0.4.9.11 with a-patch-of-a-very-long-name-that-does-not-fit.patch")
    with progress.step("Building linux", since_s=time.time() - 95), progress.step("Building tor"):
        pass
    left = "left: tor 0.4.9.11 with a-patch-of-a-very-long-name-that-do"
    block = f"Building linux ... 95 s\nBuilding tor ... 0 s\n{left}\n"
    assert block in shown.getvalue()
    # The block is erased before the line of a finished step, and drawn again below it.
    after = f"\033[3A\033[JBuilding tor: done in 0 s\nBuilding linux ... 95 s\n{left}\n"
    assert after in shown.getvalue()
    assert shown.getvalue().endswith("\033[2A\033[JBuilding linux: done in 95 s\n")


def test_display_counts_seconds() -> None:
    shown = io.StringIO()
    with Progress(shown, live=True).step("Building"):
        time.sleep(2.3)
    assert re.findall(r"Building \.\.\. (\d) s", shown.getvalue()) == ["0", "1", "2"]


def test_nothing_is_shown_where_nothing_is_to_do(progress: Progress) -> None:
    shown = io.StringIO()
    side_by_side([("tor", lambda: None), ("linux", lambda: None)], Progress(shown, live=True))
    assert shown.getvalue() == ""


def test_many_cores_are_no_need() -> None:
    """Even on one core a task may wait for the one before it."""
    code = (
        f"import os, sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "import io, threading\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from testbed.setup.side_by_side import side_by_side\n"
        "from testbed.basics.steps import Progress\n"
        "both = threading.Barrier(2, timeout=20)\n"
        "side_by_side([('one', both.wait), ('two', both.wait)], Progress(io.StringIO()))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=dict(os.environ))
