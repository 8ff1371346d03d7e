"""Finds the user's own traffic generator."""

import hashlib
import os
import shutil
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.toml_file import shown
from testbed.plan.programs import TgenProgram


def own_generator(program: str) -> TgenProgram:
    """Find the program: a path, or a name on PATH.

    Raises:
        InputError: there is none that can be run.
    """
    found = shutil.which(program)
    if found is None:
        raise InputError(f"--tgen {shown(program)}: {_why_no_program(program)}")
    path = Path(found).resolve()
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"--tgen {path}: {error.strerror}") from error
    return TgenProgram(path=str(path), sha256=sha256)


def _why_no_program(program: str) -> str:
    path = Path(program)
    if path.is_dir():
        return "is a directory, not a program"
    if not path.exists():
        return "there is no such program: give its path, or a name that is on PATH"
    if os.access(path, os.X_OK):
        return f'is not on PATH: write "./{path}" for the one in this directory'
    return f"is not executable: `chmod +x {path}`"
