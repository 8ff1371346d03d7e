"""Real runs on several kernels: the same bytes on one core and on all, and a kernel that dies."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest
from command_line import status_of
from faults import RUN, left_in
from machine import run_scenario
from waiting import END_WITHIN_S, STARTED_WITHIN_S, lives, wait_for

from testbed.basics.ending import FAILED

TWO_KERNELS = ("--set", "kernels=2")


@pytest.fixture
def one_core() -> set[int]:
    """One of the cores that this process may use."""
    return {min(os.sched_getaffinity(0))}


@pytest.mark.experiment
def test_a_run_on_two_kernels_has_the_same_bytes_on_one_core(
    tmp_path: Path, one_core: set[int]
) -> None:
    for name in ("all", "one"):
        (tmp_path / name).mkdir()
    on_all = run_scenario(tmp_path / "all", "NoDropping", "vanilla", 2, *TWO_KERNELS)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, one_core)
    try:
        on_one = run_scenario(tmp_path / "one", "NoDropping", "vanilla", 2, *TWO_KERNELS)
    finally:
        os.sched_setaffinity(0, cores)
    assert on_all.summary.valid
    assert on_all.manifest["fingerprint"] == on_one.manifest["fingerprint"]


@pytest.mark.experiment
def test_a_killed_kernel_ends_the_run_with_its_words(
    listeners: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[psutil.Process] = []

    def kill_the_second() -> None:
        def kernels() -> list[psutil.Process]:
            found = psutil.Process().children(recursive=True)
            return [one for one in found if lives(one) and "ttwin=1:" in " ".join(one.cmdline())]

        reports = ".run.partial-*/part-2/raw/progress.jsonl"
        wait_for(
            lambda: any(listeners.glob(reports)), "the second part's first step", STARTED_WITHIN_S
        )
        seen.extend(psutil.Process().children(recursive=True))
        os.kill(kernels()[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_second)
    killer.start()
    assert status_of([*RUN, *TWO_KERNELS]) == FAILED
    killer.join()
    assert "kernel 2 of 2: the guest's kernel was killed by SIGKILL" in capsys.readouterr().err
    assert left_in(listeners) == ["run.failed-1"]
    wait_for(lambda: not any(map(lives, seen)), "the end of all", END_WITHIN_S)
