"""A disk that is full or read-only, and damaged files."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import batch_stand_in
import pytest
from batch_stand_in import MINE, STAND_IN_RUN, begun, run_batch
from command_line import status_of
from faults import RUN_WITHIN_S
from machine import OWN_MOUNTS
from waiting import PATIENCE_S

from testbed.basics.ending import BAD_INPUT, FAILED, VALID
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.results import read_run

IN_SMALL_FOLDER = (
    *OWN_MOUNTS,
    *("sh", "-ec"),
    'mount -t tmpfs -o "size=$0" small "$1"; shift; exec "$@"',
)
"""A command that runs another one with a tmpfs; its arguments are size, folder and that command."""


def small_folder(size: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees `small`, in the working directory, as a disk of that size."""
    Path("small").mkdir(exist_ok=True)
    return subprocess.run(
        [*IN_SMALL_FOLDER, size, "small", *command],
        env=os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
    )


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.experiment
def test_the_disk_is_full_while_measuring(listeners: Path) -> None:
    fault = """
come_to("measuring", 2.0)
with (STAGING / "others").open("wb", buffering=0) as file:
    while True:
        file.write(bytes(4096))
"""
    program = f"""
import sys
from pathlib import Path
import pytest
from machine import with_fault
from testbed.basics.ending import BAD_INPUT, FAILED, PREMISE_FAILED, VALID
from commands.__main__ import main
with_fault({fault!r}, Path("faulty.py"), pytest.MonkeyPatch())
status = main(["scenario", "Listeners.toml", "--out", "small/run"])
print([path.name for path in Path("small").iterdir()])
sys.exit(status)
"""
    ended = small_folder("2m", sys.executable, "-c", program)
    assert ended.returncode == FAILED, ended.stderr
    assert ended.stderr.startswith("run.py: the experiment could not write to ")
    assert ended.stderr.splitlines()[0].endswith("/small: is the disk full?")
    # The evidence can be kept if there is room for the error.
    assert ended.stdout in ("[]\n", "['run.failed-1']\n")


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize(("size", "status"), [("40k", 1), ("100k", 1), ("2m", 0)])
def test_the_disk_is_full_while_results_are_written(mine: Path, size: str, status: int) -> None:
    command = shlex.join(
        [sys.executable, "-c", STAND_IN_RUN, "scenario", "./Mine.toml", "--out", "small/run"]
    )
    ended = small_folder(size, "sh", "-c", f"{command}; echo status $?; ls -A small")
    assert "Traceback" not in ended.stderr
    _, _, told = ended.stdout.partition("status ")
    if status == VALID:
        assert told == "0\nrun\n", ended.stderr
    else:
        assert told == "1\n", ended.stderr
        assert "No space left on device" in ended.stderr


@pytest.mark.usefixtures("own_mounts")
def test_a_batchs_folder_is_read_only(mine: Path, no_report: None) -> None:
    """Nothing can be renamed there; all files stay as they are."""
    assert run_batch() == VALID
    shutil.copytree("results/mine", "kept")
    damage(MINE / "vanilla/seed-2/transfers.parquet", 100)
    before = sorted(Path("results").rglob("*"))
    ended = subprocess.run(
        [
            *OWN_MOUNTS,
            *("sh", "-ec"),
            'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec "$@"',
            *("results/mine/Mine", sys.executable, batch_stand_in.__file__, "batch", "./mine.toml"),
        ],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == FAILED
    assert ended.stderr == f"run.py: {MINE}/vanilla/seed-2: Read-only file system\n"
    assert sorted(path for path in Path("results").rglob("*")) == before


# Damaged files.


def damage(file: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_no_wrong_byte_is_read_as_another_number(run: Path) -> None:
    """A Parquet file has no checksums: its reader would not notice many wrong bytes."""
    table = run / "transfers.parquet"
    whole = table.read_bytes()
    assert read_run(run).transfers.height == 4
    for at in range(4, len(whole) - 8, 20):
        damage(table, at)
        with pytest.raises(TestbedError, match=r"/transfers\.parquet: "):
            read_run(run)
        table.write_bytes(whole)
    assert read_run(run).transfers.height == 4


def test_damaged_tables_are_named_and_the_others_count(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_batch() == VALID
    shutil.copytree(MINE, "results/Mine")
    truncated, wrong = (
        MINE / "vanilla/seed-2/round_trips.parquet",
        MINE / "pctls/seed-1/transfers.parquet",
    )
    truncated.write_bytes(truncated.read_bytes()[:-10])
    damage(wrong, 200)
    capsys.readouterr()
    for command in ("tables", "report"):
        assert status_of([command, "results/mine"]) == VALID
        errors = capsys.readouterr().err
        for file in (truncated, wrong):
            assert f"left out: {file.parent}: {file}: damaged: its SHA-256" in errors
        assert errors.count("left out") == 2
    assert "2 runs count, 2 are left out" in Path("results/mine/report/report.html").read_text()
    assert run_batch() == VALID
    assert sorted(begun()[4:]) == ["pctls 1", "vanilla 2"]
    compared = ("compare", "./Mine.toml", "vanilla", "pctls", "--runs", "2")
    assert status_of(compared) == VALID
    damage(Path("results/Mine/vanilla/seed-1/sockets.parquet"), 200)
    capsys.readouterr()
    assert status_of(compared) == BAD_INPUT
    assert "results/Mine/vanilla/seed-1/sockets.parquet: damaged: its" in capsys.readouterr().err
