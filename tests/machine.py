"""For tests: a program of one's own inside the virtual machine."""

import os
import sys
from pathlib import Path

from rich.console import Console

from testbed.machines.virtual import run_in_machine
from testbed.setup.ready import ensure_ready
from testbed.toml_file import PROJECT


def run_inside(program: str, folder: Path) -> str:
    """Run a Python program as root in a machine; what it printed. `folder` must not exist."""
    folder.mkdir()
    (folder / "program.py").write_text(program)
    kernel = ensure_ready(Console(stderr=True), []).kernel
    run_in_machine(
        kernel.product("linux"),
        [sys.executable, folder / "program.py"],
        folder,
        memory_mb=512,
        environment={"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        on_step=lambda _step: None,
    )
    return (folder / "logs" / "kernel.log").read_text()
