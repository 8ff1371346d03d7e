"""A copy of the project for tests that change it, or run it as somebody else."""

import shutil
import subprocess
from pathlib import Path

from testbed.basics.toml_file import PROJECT


def copy_project(folder: Path) -> Path:
    """Copy the project's files, committed or not, without ignored ones, and return the folder."""
    command = ["git", "-c", f"safe.directory={PROJECT}", "ls-files", "-z", "--cached", "--others"]
    command.append("--exclude-standard")
    names = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (PROJECT / name).is_file():  # a removed one is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    return folder
