"""Virtual machines that go wrong, stall or hang, and their cores and memory.

Small programs stand in for the kernel.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from waiting import END_WITHIN_S, STARTED_WITHIN_S, lives, wait_for

from testbed.basics.errors import TestbedError
from testbed.machines import stalls, virtual
from testbed.machines.virtual import VirtualMachine, run_in_machine
from testbed.machines.watching import LOG_TAIL_LINES, Step, Usage


def run(kernel: Path, staging: Path, steps: list[Step] | None = None) -> Usage:
    staging.mkdir()
    return run_in_machine(
        VirtualMachine(kernel, memory_mb=64, stall_cpu_s=stalls.STALL_CPU_S),
        ["true"],
        staging,
        environment={},
        on_step=lambda step: None if steps is None else steps.append(step),
    )


def error_of(kernel: Path, staging: Path) -> str:
    """Run a machine that must fail, and return its error; none of its processes may live on."""
    with pytest.raises(TestbedError) as caught:
        run(kernel, staging)
    wait_for(lambda: not processes_of(staging), "the machine's end", END_WITHIN_S)
    return str(caught.value)


def processes_of(staging: Path) -> list[psutil.Process]:
    """The kernels of a staging directory, which is in their arguments."""
    name = str(staging)
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(name in word for word in process.info["cmdline"] or ()) and lives(process)
    ]


@pytest.mark.parametrize("end", ["exit 134", "exec sleep 600"])
@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("Kernel panic - not syncing: No working init found.", "the guest's kernel panicked"),
        ("Out of memory: Killed process 97 (tor) total-vm:9kB", "the guest ran out of memory"),
        ("Oops: general protection fault", "the guest's kernel failed"),
    ],
)
def test_a_kernel_that_says_what_is_wrong(
    tmp_path: Path, stand_in: Callable[[str], Path], line: str, meaning: str, end: str
) -> None:
    kernel = stand_in(f"echo booting\necho '{line}'\n{end}")
    error = error_of(kernel, tmp_path / "staging")
    assert error == f"{meaning}\n  booting\n  {line}"
    assert line in (tmp_path / "staging" / "logs" / "kernel.log").read_text()


def test_what_is_wrong_counts_also_when_the_command_ended_well(
    tmp_path: Path, stand_in: Callable[[str], Path]
) -> None:
    kernel = stand_in("echo 'Out of memory: Killed process 97 (tgen)'; echo 0 > status")
    assert "ran out of memory" in error_of(kernel, tmp_path / "staging")


def test_only_the_logs_tail_is_told(tmp_path: Path, stand_in: Callable[[str], Path]) -> None:
    error = error_of(stand_in("seq 1000; echo 'Kernel panic'; exit 1"), tmp_path / "staging")
    lines = error.splitlines()
    assert len(lines) == 1 + LOG_TAIL_LINES
    assert lines[1] == f"  {1000 - LOG_TAIL_LINES + 2}"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ("kill -KILL $$", "the guest's kernel was killed by SIGKILL\n  (kernel.log stayed empty"),
        (
            "echo why; exit 3",
            "the guest's kernel ended with status 3 before its command had\n  why",
        ),
        ("echo why; echo 7 > status", "the experiment ended with status 7\n  why"),
        ("echo 1 > status; echo 'no consensus' > error.txt", "no consensus"),
    ],
)
def test_a_machine_that_ends_too_early(
    tmp_path: Path, stand_in: Callable[[str], Path], commands: str, said: str
) -> None:
    assert error_of(stand_in(commands), tmp_path / "staging").startswith(said)


def test_a_clock_that_stands_still_while_the_kernel_is_busy(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STALL_WALL_S", 1.0)
    monkeypatch.setattr(stalls, "STALL_CPU_S", 0.2)
    error = error_of(stand_in("echo faulting; while :; do :; done"), tmp_path / "staging")
    assert "clock has stood still at 0.0 s" in error
    assert "a program in it computes or polls" in error
    assert error.endswith("\n  faulting")


def test_a_clock_that_stands_still_while_nothing_happens(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STALL_WALL_S", 0.2)
    monkeypatch.setattr(stalls, "HANG_WALL_S", 1.0)
    error = error_of(stand_in("exec sleep 600"), tmp_path / "staging")
    assert error.startswith("the guest hangs: its clock has stood still at 0.0 s")
    assert "computes" not in error


def test_a_machine_whose_clock_goes_on_while_its_command_hangs(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "HANG_VIRTUAL_S", 100.0)
    row = '{"time_s": 1800000NUMBER, "step": "measuring", "done_s": 1.0, "of_s": 9.0}'
    commands = (
        "mkdir raw; for number in 000 050 100 150; do"
        f" echo '{row}' | sed s/NUMBER/$number/ >> raw/progress.jsonl; done; exec sleep 600"
    )
    error = error_of(stand_in(commands), tmp_path / "staging")
    assert error.startswith(
        'the guest hangs: its clock has advanced by 150 s in the step "measuring"\n'
    )


def test_a_busy_machine_whose_clock_advances_is_left_alone(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses several times the processor time of a stall, but often reports a step."""
    monkeypatch.setattr(stalls, "STALL_WALL_S", 0.3)
    monkeypatch.setattr(stalls, "STALL_CPU_S", 0.3)
    row = json.dumps({"time_s": 0, "step": "measuring", "done_s": 1.0, "of_s": 9.0})
    commands = f"""
    mkdir raw
    for second in 1 2 3 4 5 6 7 8; do
        count=0; while [ $count -lt 100000 ]; do count=$((count + 1)); done
        echo {shlex.quote(row)} | sed "s/: 0,/: 180000000$second,/" >> raw/progress.jsonl
    done
    echo 0 > status"""
    steps: list[Step] = []
    cost = run(stand_in(commands), tmp_path / "staging", steps)
    assert [step.time_s - virtual.START_NS / 1e9 for step in steps] == list(range(1, 9))
    assert cost.virtual_s == 8
    assert cost.cpu_s > stalls.STALL_CPU_S
    assert cost.wall_s > stalls.STALL_WALL_S


def test_who_waits_for_a_processor_does_not_hang() -> None:
    """Two busy processes share a core: each has it half of the time, and always wants it."""
    core = min(os.sched_getaffinity(0))
    loop = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"]
    busy = [psutil.Popen(loop), psutil.Popen(loop)]
    try:
        time.sleep(1.0)
        before = [(stalls.wanted_s(one), stalls.cpu_s(one)) for one in busy]
        time.sleep(2.0)
        wanted, had = zip(
            *(
                (stalls.wanted_s(one) - wanted_s, stalls.cpu_s(one) - cpu_s)
                for one, (wanted_s, cpu_s) in zip(busy, before, strict=True)
            ),
            strict=True,
        )
        assert min(wanted) > 1.5
        assert sum(had) < 2.2
        busy[0].suspend()
        stopped_s = stalls.wanted_s(busy[0])
        time.sleep(0.5)
        assert stalls.wanted_s(busy[0]) == pytest.approx(stopped_s, abs=0.1)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_an_interrupted_machine_ends(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_watch: object) -> float:
        wait_for(lambda: (tmp_path / "staging" / "up").exists(), "the stand-in", STARTED_WITHIN_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(stalls.Watch, "until_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(stand_in("mkdir .uml; echo > up; exec sleep 600"), tmp_path / "staging")
    assert processes_of(tmp_path / "staging") == []
    assert not (tmp_path / "staging" / ".uml").exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_machines_at_once_have_a_core_each_and_a_third_does_not_wait(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(cores))
    go = tmp_path / "go"
    kernel = stand_in(
        "grep Cpus_allowed_list /proc/self/status | cut -f 2 > core.partial\n"
        "mv core.partial core\n"
        f"until [ -e '{go}' ]; do sleep 0.1; done\n"
        "echo 0 > status"
    )
    pinned = []
    with ThreadPoolExecutor() as pool:
        try:
            runs = []
            for name in ("first", "second", "third"):
                runs.append(pool.submit(run, kernel, tmp_path / name))
                file = tmp_path / name / "core"
                wait_for(file.exists, f"the {name} machine", STARTED_WITHIN_S)
                pinned.append(int(file.read_text()))
        finally:
            go.touch()
        for ended in runs:
            ended.result()
    assert pinned[:2] == cores
    assert pinned[2] in cores
    # The cores are free again.
    assert run(kernel, tmp_path / "fourth").virtual_s == 0
    assert int((tmp_path / "fourth" / "core").read_text()) == cores[0]


def test_no_room_for_the_machines_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "SHARED_MEMORY", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert virtual._memory_folder(1) == str(tmp_path)
    with pytest.raises(TestbedError, match=f"none or {tmp_path}: set TMPDIR to a folder"):
        virtual._memory_folder(10**9)


def test_the_machines_memory_is_shared_memory_whatever_tmpdir_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert virtual._memory_folder(1) == str(tmp_path)
