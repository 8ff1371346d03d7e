"""Writing a run directory: published in one step or kept as a failure, and nothing replaced."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from made_record import (
    raw_rows,
    write_record,
)

from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.plan.model import Plan
from testbed.results import (
    MachineFacts,
    keep_failed,
    publish,
    read_run,
    remove_left_overs,
    staging,
    write_results,
)

# Makes a staging directory, prints its path, and waits to be killed.
KILLED_RUN = """
import sys, time
from pathlib import Path
from testbed.results import staging
with staging(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_publishing_replaces_nothing(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    destination = tmp_path / "run"
    with staging(destination) as folder:
        write_record(folder, raw_rows(plan))
        write_results(folder, plan, facts)
        assert not destination.exists()
        destination.mkdir()  # empty: rename() would replace it
        with pytest.raises(TestbedError, match="was made during the run"):
            publish(folder, destination)
        kept = keep_failed(folder, destination, TestbedError("no place"))
    assert list(destination.iterdir()) == []
    assert kept == tmp_path / "run.failed-1"
    assert (kept / "error.txt").read_text() == "no place\n"
    assert not (kept / "summary.json").exists()
    with pytest.raises(TestbedError, match="failed run"):
        read_run(kept)


def test_failures_are_numbered(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with staging(tmp_path / "run") as folder:
            (folder / "logs").mkdir()
            kept = keep_failed(folder, tmp_path / "run", TestbedError("over"))
        assert kept.name == f"run.failed-{number}"
    assert len(list(tmp_path.iterdir())) == 3


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staging(tmp_path / "deep" / "run") as folder:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt
    assert list((tmp_path / "deep").iterdir()) == []


def test_left_overs_of_a_killed_run_only(tmp_path: Path) -> None:
    destination = tmp_path / "run"
    other = tmp_path / ".run2.partial-1"
    other.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_RUN, str(destination)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as output:
        folder = Path(output.readline().strip())
        assert folder.name == f".run.partial-{process.pid}"
        assert remove_left_overs(destination) == []
        assert (folder / "half").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    # That our living process has the number in its name doesn't protect it.
    reused = folder.with_name(f".run.partial-{os.getpid()}")
    folder.rename(reused)
    with staging(destination):
        assert not (reused / "half").exists()
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_one_process_writes_a_run_once(tmp_path: Path) -> None:
    with (
        staging(tmp_path / "run"),
        pytest.raises(TestbedError, match="already"),
        staging(tmp_path / "run"),
    ):
        pass
