"""Common to both machines: their command, the steps that it reports, and its errors.

How a machine is started and ended is its own module's.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import TestbedError

POLL_INTERVAL_S = 0.25
LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class Step:
    """A machine's progress: its clock, its current step, and how much of that is done."""

    time_s: float
    name: str
    done_s: float
    of_s: float


@dataclass(frozen=True)
class Usage:
    """The seconds that a machine took from its start to its end.

    Attributes:
        virtual_s: by its own clock.
        wall_s: by the host's clock.
        cpu_s: processor time, user and system, of the machine and everything in it.
        cores: how many cores its kernels had, each of which has one; None for the host.
    """

    virtual_s: float
    wall_s: float
    cpu_s: float
    cores: int | None = 1


def write_command(
    staging: Path, command: Sequence[str | Path], environment: Mapping[str, str]
) -> None:
    """Write a command and its variables as a script for a machine's first process."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines.append(shlex.join(str(word) for word in command))
    (staging / "command").write_text("\n".join([*lines, ""]))


class Steps:
    """Reads the steps that a machine's command writes to `staging/raw/progress.jsonl`."""

    def __init__(self, staging: Path) -> None:
        self._file = staging / "raw" / "progress.jsonl"
        self._read_bytes = 0

    def new(self) -> Iterator[Step]:
        """The steps since the last call."""
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


def reported_error(staging: Path) -> TestbedError | None:
    """The error that the command reported in `error.txt`, if it did."""
    error = staging / "error.txt"
    return TestbedError(error.read_text().strip()) if error.exists() else None


def failure(meaning: str, log: Path, said: str | None = None) -> TestbedError:
    """An error with the log's tail below it, behind the line that says why if that isn't in it."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    if said is not None and said not in lines:
        lines.insert(0, said)
    return TestbedError("\n  ".join([meaning, *(lines or [f"({log.name} stayed empty)"])]))
