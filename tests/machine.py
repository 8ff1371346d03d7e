"""For tests: a scenario for real, a program inside the virtual machine, faults beside a run."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from testbed.machines.folders import Folders
from testbed.machines.virtual import run_in_machine
from testbed.results import Run, read_run
from testbed.setup.ready import ensure_ready
from testbed.toml_file import PROJECT

TIMEOUT_S = 600

FAULTY_EXPERIMENT = '''
import importlib, json, os, signal, threading, time
from pathlib import Path

import psutil


STAGING = Path(os.environ["HYDRA_STAGING"])


def come_to(step, done_s=0.0):
    """Wait until the experiment tells of a step that so much of it is done."""
    file = STAGING / "raw" / "progress.jsonl"
    while True:
        text = file.read_text() if file.exists() else ""
        rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\\n")]
        if any(row["step"] == step and row["done_s"] >= done_s for row in rows):
            return
        time.sleep(0.05)


def program(words):
    """The program with these words in its command line, once there is one."""
    while True:
        for process in psutil.process_iter(["cmdline"]):
            if words in " ".join(process.info["cmdline"] or ()):
                return process
        time.sleep(0.05)


def fault():
    {fault}


threading.Thread(target=fault, daemon=True).start()
importlib.import_module("{module}").main()
'''


def run_inside(program: str, folder: Path, memory_mb: int = 512) -> str:
    """Run a Python program as root in a machine; what it printed. `folder` must not exist."""
    folder.mkdir()
    (folder / "program.py").write_text(program)
    kernel = ensure_ready(Console(stderr=True), []).kernel
    run_in_machine(
        kernel.product("linux"),
        [sys.executable, folder / "program.py"],
        folder,
        memory_mb=memory_mb,
        environment={"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        on_step=lambda _step: None,
    )
    return (folder / "logs" / "kernel.log").read_text()


@contextmanager
def refused_memory(limit_mb: int) -> Iterator[None]:
    """Meanwhile the host refuses all guest processes of this test's more than so much at once.

    It says ENOMEM, as at the limit vm.max_map_count, which only root can change. That it came to
    that is seen to.
    """
    limit_bytes = limit_mb * 2**20
    ended = threading.Event()
    largest_bytes = 0

    def limit() -> None:
        nonlocal largest_bytes
        while not ended.wait(0.02):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    if (parent := process.parent()) and parent.name() == "linux":
                        limits = (limit_bytes, limit_bytes)
                        resource.prlimit(process.pid, resource.RLIMIT_AS, limits)
                        largest_bytes = max(largest_bytes, process.memory_info().vms)

    thread = threading.Thread(target=limit)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert largest_bytes > 0.9 * limit_bytes


def run_scenario(
    folder: Path,
    scenario: str,
    variant: str,
    duration_s: int,
    *options: str,
    timeout_s: float = TIMEOUT_S,
) -> Run:
    """Carry a scenario out by the user's command, as `folder/run`; it must come out valid."""
    command = [
        *(sys.executable, "-m", "testbed.cli", "scenario", scenario, "--variant", variant),
        *("--duration", str(duration_s), "--out", str(folder / "run"), *options),
    ]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_run(folder / "run")


def with_fault(
    fault: str,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    beside: str = "testbed.experiment",
) -> None:
    """Let a fault happen in the machine beside every experiment, which is the real one otherwise.

    Args:
        fault: statements of a thread, for which `come_to`, `program` and `STAGING` are there.
        program: the file that the machine runs from now on; made here.
        beside: the module that the machine runs then.
    """
    indented = fault.strip().replace("\n", "\n    ")
    program.write_text(FAULTY_EXPERIMENT.format(fault=indented, module=beside))
    plain = Folders.command

    def command(folders: Folders, module: str, *options: str) -> list[str]:
        words = plain(folders, module, *options)
        faulty = [words[0], str(program.absolute()), *words[3:]]
        return faulty if module == beside else words

    monkeypatch.setattr(Folders, "command", command)
