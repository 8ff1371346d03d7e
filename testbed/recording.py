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

BEAT_INTERVAL_S = 2.0


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
        self.streams = Rows(directory / "streams.jsonl")
        self.round_trips = Rows(directory / "round_trips.jsonl")
        self.sockets = Rows(directory / "sockets.jsonl")
        self.competing = Rows(directory / "competing.jsonl")
        self.relays = Rows(directory / "relays.jsonl")
        self.queues = Rows(directory / "queues.jsonl")
        self.links = Rows(directory / "links.jsonl")
        self.checks = Rows(directory / "checks.jsonl")
        self.progress = Rows(directory / "progress.jsonl")
        self.notes = Rows(directory / "notes.jsonl")
        self._step: dict[str, object] = {"step": "building the lab", "done_s": 0.0, "of_s": 0.0}
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._tell_time, daemon=True)
        self._beat.start()

    def note(self, text: str) -> None:
        """Keep a sentence that may explain a result."""
        self.notes.add({"time_s": time.time(), "text": text})

    def step(self, name: str, done_s: float = 0.0, of_s: float = 0.0) -> None:
        """Tell whoever watches from outside how far the run is, in virtual seconds."""
        self._step = {"step": name, "done_s": done_s, "of_s": of_s}
        self._tell_step()

    def _tell_step(self) -> None:
        self.progress.add({"time_s": time.time(), **self._step})
        self.progress.flush()

    def _tell_time(self) -> None:
        """Show that the clock goes on, also in steps that have nothing to say for long."""
        while not self._ended.wait(BEAT_INTERVAL_S):
            self._tell_step()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beat.join()
        for rows in vars(self).values():
            if isinstance(rows, Rows):
                rows.close()
