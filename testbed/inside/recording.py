"""The record of a running experiment: a file of JSON lines for each kind of row.

`inside.rows` defines the rows; tables and figures are made from these files later.
"""

import json
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from testbed.basics.check import Check
from testbed.inside.rows import FROM_LOGS, TABLES, Note, Progress

BEAT_INTERVAL_S = 2.0

RECORDED = {
    **{name: row for name, row in TABLES.items() if name not in FROM_LOGS},
    "checks": Check,
    "progress": Progress,
    "notes": Note,
}
"""The kind of row in each file of a run's raw directory."""


class Record(AbstractContextManager["Record"]):
    """The open files of a run's raw directory; any thread may write."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._files = {
            kind: (directory / f"{name}.jsonl").open("w", encoding="utf-8")
            for name, kind in RECORDED.items()
        }
        self._lock = threading.Lock()
        self._step, self._done_s, self._of_s = "building the lab", 0.0, 0.0
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._report_steadily, daemon=True)
        self._beat.start()

    def add(self, row: Any) -> None:  # noqa: ANN401 - one of `RECORDED`
        """Write a row to the file of its kind."""
        line = json.dumps(row.model_dump() if isinstance(row, Check) else asdict(row)) + "\n"
        with self._lock:
            self._files[type(row)].write(line)

    def note(self, text: str) -> None:
        """Keep a sentence that may explain a result."""
        self.add(Note(time.time(), text))

    def step(self, name: str, done_s: float = 0.0, of_s: float = 0.0) -> None:
        """Report to the host how far the run is, in virtual seconds."""
        self._step, self._done_s, self._of_s = name, done_s, of_s
        self._report_step()

    def _report_step(self) -> None:
        self.add(Progress(time.time(), self._step, self._done_s, self._of_s))
        with self._lock:
            self._files[Progress].flush()

    def _report_steadily(self) -> None:
        """Show that the clock goes on, even in steps that report nothing for long."""
        while not self._ended.wait(BEAT_INTERVAL_S):
            self._report_step()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beat.join()
        for file in self._files.values():
            file.close()
