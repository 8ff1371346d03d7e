"""Where a running experiment writes down what it sees: one file of JSON lines per kind of row.
Tables and figures come later, from these files; nothing is computed here.
"""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType


class Rows:
    """One file of rows, a JSON object per line, written by any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, row: Mapping[str, object]) -> None:
        """Write a row."""
        line = json.dumps(row) + "\n"
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        """Close the file; what is added later is lost."""
        self._file.close()

    def flush(self) -> None:
        """Let readers outside see what was added so far."""
        with self._lock:
            self._file.flush()


class Record(AbstractContextManager["Record"]):
    """The open files of a run's raw directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.circuits = Rows(directory / "circuits.jsonl")
        self.round_trips = Rows(directory / "round_trips.jsonl")
        self.sockets = Rows(directory / "sockets.jsonl")
        self.links = Rows(directory / "links.jsonl")
        self.checks = Rows(directory / "checks.jsonl")
        self.progress = Rows(directory / "progress.jsonl")
        self.notes = Rows(directory / "notes.jsonl")

    def note(self, text: str) -> None:
        """Keep a sentence that may explain a result."""
        self.notes.add({"time_s": time.time(), "text": text})

    def step(self, name: str, done_s: float = 0.0, of_s: float = 0.0) -> None:
        """Tell whoever watches from outside how far the run is, in virtual seconds."""
        self.progress.add({"time_s": time.time(), "step": name, "done_s": done_s, "of_s": of_s})
        self.progress.flush()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for rows in vars(self).values():
            rows.close()
