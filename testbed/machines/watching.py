"""What is common to both machines: the command they are given, the steps it tells, and its errors.

How a machine is started and ended is its own module's.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError

POLL_INTERVAL_S = 0.25
LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class Step:
    """How far a machine is: its clock, what it does, and how much of that is done."""

    time_s: float
    name: str
    done_s: float
    of_s: float


@dataclass(frozen=True)
class Usage:
    """What a machine's life took, in seconds.

    Attributes:
        virtual_s: of its clock.
        wall_s: of the host's.
        cpu_s: of processors: the machine and all in it, user and system.
    """

    virtual_s: float
    wall_s: float
    cpu_s: float


def write_command(
    staging: Path, command: Sequence[str | Path], environment: Mapping[str, str]
) -> None:
    """Leave a command and its variables for a machine's first process, a shell."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines.append(shlex.join(str(word) for word in command))
    (staging / "command").write_text("\n".join([*lines, ""]))


class Steps:
    """The steps that a machine's command writes to `staging/raw/progress.jsonl`."""

    def __init__(self, staging: Path) -> None:
        self._file = staging / "raw" / "progress.jsonl"
        self._read_bytes = 0

    def new(self) -> Iterator[Step]:
        """Those since the last call."""
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            row = json.loads(line)
            yield Step(row["time_s"], row["step"], row["done_s"], row["of_s"])


def told_error(staging: Path) -> TestbedError | None:
    """The error with which the command said it ended, if it did."""
    error = staging / "error.txt"
    return TestbedError(error.read_text().strip()) if error.exists() else None


def failure(meaning: str, log: Path) -> TestbedError:
    """An error with the log's tail below it."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return TestbedError("\n  ".join([meaning, *(lines or [f"({log.name} stayed empty)"])]))
