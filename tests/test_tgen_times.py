"""Runs `timed_tgen` in virtual time."""

import re
from pathlib import Path

import pytest
from machine import run_inside

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from testbed.inside.recording import Record
from testbed.basics.toml_file import PROJECT

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
pytest = [sys.executable, "-m", "pytest", "--color=no", "--noconftest", "-p", "no:cacheprovider"]
with Record(Path(os.environ["HYDRA_STAGING"]) / "raw"):
    subprocess.run(
        [*pytest, "--basetemp=/run/pytest", "tests/timed_tgen.py"], cwd=PROJECT, check=True
    )
"""


@pytest.mark.experiment
def test_times_in_virtual_time(tmp_path: Path) -> None:
    output = run_inside(PROGRAM, tmp_path / "machine")
    (ended,) = re.findall(r"^=+ (.*) in [\d.]+s.*=$", output, re.MULTILINE)
    assert re.fullmatch(r"\d+ passed", ended), "all tests ran, and none was skipped"
