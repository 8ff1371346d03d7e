"""For tests: real runs, programs in the virtual machine, and faults beside a run."""

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

from testbed.basics.toml_file import PROJECT
from testbed.machines.folders import Folders
from testbed.machines.virtual import VirtualMachine, run_in_machine
from testbed.results import Run, read_run
from testbed.setup.ready import ensure_ready

TIMEOUT_S = 600

OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")
"""A command that runs another one as a root who may mount, and whose mounts no one else sees."""

FAULTY_EXPERIMENT = '''
import importlib, json, os, signal, threading, time
from pathlib import Path

import psutil


STAGING = Path(os.environ["HYDRA_STAGING"])


def come_to(step, done_s=0.0):
    """Wait until the experiment reports that this much of a step is done."""
    file = STAGING / "raw" / "progress.jsonl"
    while True:
        text = file.read_text() if file.exists() else ""
        rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\\n")]
        if any(row["step"] == step and row["done_s"] >= done_s for row in rows):
            return
        time.sleep(0.05)


def program(words):
    """Wait for a program with these words in its command line, and return it."""
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
    """Run a Python program as root in a machine, and return its output. `folder` must not exist."""
    folder.mkdir()
    (folder / "program.py").write_text(program)
    kernel = ensure_ready(Console(stderr=True), []).kernel
    run_in_machine(
        VirtualMachine(kernel.product("linux"), memory_mb),
        [sys.executable, folder / "program.py"],
        folder,
        environment={"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        on_step=lambda _step: None,
    )
    return (folder / "logs" / "kernel.log").read_text()


@contextmanager
def refused_memory(limit_mb: int) -> Iterator[None]:
    """Let the host refuse each guest process of this test more than some memory.

    It fails with ENOMEM, as at the limit vm.max_map_count, which only root can change. A process
    must have come near the limit.
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
    """Run a scenario by the user's command, as `folder/run`; the run must be valid."""
    command = [
        *(sys.executable, "-m", "commands", "scenario", scenario, "--variant", variant),
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
    beside: str = "testbed.inside.experiment",
) -> None:
    """Inject a fault into the machine, beside every experiment, which is otherwise the real one.

    Args:
        fault: statements of a thread, which can use `come_to`, `program` and `STAGING`.
        program: the file, made here, that the machine runs from now on.
        beside: the module in the machine beside which the fault happens.
    """
    indented = fault.strip().replace("\n", "\n    ")
    program.write_text(FAULTY_EXPERIMENT.format(fault=indented, module=beside))
    plain = Folders.command

    def command(folders: Folders, module: str, *options: str) -> list[str]:
        words = plain(folders, module, *options)
        faulty = [words[0], str(program.absolute()), *words[3:]]
        return faulty if module == beside else words

    monkeypatch.setattr(Folders, "command", command)
