"""Real runs on several kernels: the same bytes on one core and on all, and a kernel that dies.

One kernel, and hosts that differ in more than their cores: `test_same_bytes`.
"""

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

from testbed.basics.ending import FAILED, VALID
from testbed.results import Run

TWO_KERNELS = ("--set", "kernels=2")

ALL_AT_ONCE = """
title = "In four kernels all that crosses from one to another"
topology = "eight_clients"
traffic = "bulk"
duration = "2 s"
kernels = 4

[links]
default      = { rate = "300 Mbit/s", queue = "1000 packets" }
guard-middle = { delay = "12.5 ms" }
middle-exit  = { delay = "12.5 ms" }

[[competing]]
from = "exit"
to = "middle"
streams = 2
rate = "10 Mbit/s"

[nodes]
relay = { processor = "400 Mbit/s" }
"""
CAPTURED = ("--pcap", "middle-exit", "--pcap", "guard-middle")


@pytest.fixture
def one_core() -> set[int]:
    """One of the cores that this process may use."""
    return {min(os.sched_getaffinity(0))}


def made_again_on(cores: set[int], run: Run) -> int:
    """The exit status of `verify` with these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return status_of(["verify", str(run.directory)])
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.experiment
def test_two_kernels_with_linked_sets_have_the_same_bytes_on_one_core(
    tmp_path: Path, one_core: set[int]
) -> None:
    faster = ("--set", "links.guard-middle.rate=60 Mbit/s")
    on_all = run_scenario(tmp_path, "TwoPaths", "conflux", 2, *TWO_KERNELS, *faster)
    assert on_all.plan.kernels == 2
    assert made_again_on(one_core, on_all) == VALID


@pytest.mark.experiment
def test_four_kernels_with_all_that_crosses_have_the_same_bytes_on_one_core(
    tmp_path: Path, one_core: set[int]
) -> None:
    """IPsec, competing streams, processors that take time, and captures."""
    (tmp_path / "mine.toml").write_text(ALL_AT_ONCE, encoding="utf-8")
    on_all = run_scenario(tmp_path, str(tmp_path / "mine.toml"), "pctcp", 2, *CAPTURED)
    assert on_all.plan.kernels == 4
    assert set(on_all.competing["node"]) == {"exit1", "middle1"}
    assert len(on_all.summary.processors) == 6
    assert len(list((on_all.directory / "captures").iterdir())) == 2 * 5
    assert made_again_on(one_core, on_all) == VALID


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
