"""The rooms' imports run one way, by the contracts in `pyproject.toml`."""

import shutil
import subprocess
import sys
from pathlib import Path

from testbed.basics.toml_file import PROJECT

LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
ROOMS = ("analysis", "commands", "flashflow", "salsa", "study", "testbed")


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the rooms in a folder by the contracts in its `pyproject.toml`."""
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_run_one_way() -> None:
    done = linted(PROJECT)
    assert done.returncode == 0, done.stdout


def test_an_arrow_that_runs_back_is_named(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for room in ROOMS:
        shutil.copytree(
            PROJECT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file, back in (
        ("testbed/plan/model.py", "testbed.asked.variant"),
        ("analysis/report.py", "commands.tables"),
    ):
        with (tmp_path / file).open("a") as code:
            code.write(f"\nimport {back}\n")
    done = linted(tmp_path)
    assert done.returncode != 0
    assert "testbed.plan.model -> testbed.asked.variant" in done.stdout
    assert "analysis.report -> commands.tables" in done.stdout
