"""The records of a plan's parts, made one record, as if one machine had carried out the plan."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.basics.check import Check, merged
from testbed.inside.recording import RECORDED
from testbed.machines.guest import part_folder
from testbed.machines.virtual import console_of
from testbed.plan.model import Plan

_CHECKS = "checks"


def merge_parts(staging: Path, plan: Plan) -> None:
    """Merge what the parts of a plan have left in a run's directory.

    Rows are sorted by time; rows of one instant by their part, and rows of one part and instant
    stay in their order. A log that several parts have becomes one, with the first part's first.

    Raises:
        OSError: a file is missing, or can't be written.
    """
    folders = [part_folder(staging, part) for part in range(plan.kernels)]
    (staging / "raw").mkdir()
    for name in RECORDED:
        file = Path("raw") / f"{name}.jsonl"
        lines = [(folder / file).read_text(encoding="utf-8").splitlines() for folder in folders]
        together = _checks(lines) if name == _CHECKS else _by_time(lines)
        (staging / file).write_text("".join(f"{line}\n" for line in together), encoding="utf-8")
    for part, folder in enumerate(folders, 1):
        console = console_of(folder)
        console.rename(console.with_name(f"{console.stem}-{part}{console.suffix}"))
        for kind in ("logs", "captures"):
            _move(folder / kind, staging / kind)
        shutil.rmtree(folder)


def _by_time(parts: Sequence[Sequence[str]]) -> Iterator[str]:
    # A row begins with its time.
    rows = [(next(iter(json.loads(line).values())), line) for lines in parts for line in lines]
    yield from (line for _, line in sorted(rows, key=lambda row: row[0]))


def _checks(parts: Sequence[Sequence[str]]) -> Iterator[str]:
    checks = [[Check.model_validate_json(line) for line in lines] for lines in parts]
    yield from (check.model_dump_json() for check in merged(checks))


def _move(source: Path, destination: Path) -> None:
    """Move the files of a folder, if there is one, to the end of those with their names."""
    for file in sorted(source.iterdir()) if source.exists() else ():
        destination.mkdir(exist_ok=True)
        with file.open("rb") as own, (destination / file.name).open("ab") as whole:
            shutil.copyfileobj(own, whole)
