"""One live display over all runs of a batch: done, running, failed, and when it will end.

Off a terminal it is a line for each run that has ended.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from testbed.batch.estimate import Estimator, elapsed_s
from testbed.batch.notes import Note
from testbed.batch.standing import Standing
from testbed.machines.watching import Step


class Display:
    """Follows the notes of the runs that a batch carries out."""

    def __init__(
        self,
        console: Console,
        wanted: Sequence[tuple[Standing, Note]],
        estimator: Estimator,
        *,
        at_once: int | None,
        tries: int,
    ) -> None:
        """For runs with their notes, each tried so often.

        So many run at once; None: as many as there are just now.
        """
        self._console = console
        self._wanted = wanted
        self._at_once = at_once
        self._tries = tries
        self._expected = {
            one.folder: expected.wall_s
            for one, _ in wanted
            if (expected := estimator.expected(one.plan))
        }
        self._told: set[tuple[Note, int]] = set()
        self._start_s = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[says]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._whole = self._bars.add_task("batch", total=len(wanted), says="")
        self._running: dict[Note, TaskID] = {}

    def shown(self) -> AbstractContextManager[object]:
        """The display is on the screen as long as this context lasts."""
        return self._bars

    def update(self) -> bool:
        """Read the notes again, tell what has ended, show what runs; whether all has ended."""
        steps: dict[Note, Step] = {}
        done = failed = 0
        for standing, note in self._wanted:
            failures = note.failures()
            ended = note.validity()
            self._tell(standing, note, failures, ended)
            if ended is not None:
                done += 1
            elif len(failures) >= self._tries:
                failed += 1
            elif step := note.last_step():
                steps[note] = step
        self._show(steps)
        says = f"{done} of {len(self._wanted)} done, {len(steps)} running, {failed} failed"
        left_s = self._left_s(steps)
        self._bars.update(
            self._whole,
            completed=done + failed,
            says=says if left_s is None else f"{says}, about {in_words(left_s)} left",
        )
        return done + failed == len(self._wanted)

    def _tell(
        self, standing: Standing, note: Note, failures: Sequence[str], ended: bool | None
    ) -> None:
        """A line for each try that failed and for the end, once."""
        for number, failure in enumerate(failures, start=1):
            first_line = failure.partition("\n")[0]
            text = f"failed, try {number} of {self._tries}: {standing.title}: {first_line}"
            self._tell_once(note, number, text)
        if ended is not None:
            self._tell_once(note, 0, f"{'done' if ended else 'invalid'}: {standing.title}")

    def _tell_once(self, note: Note, number: int, text: str) -> None:
        if (note, number) not in self._told:
            self._told.add((note, number))
            passed = in_words(time.monotonic() - self._start_s)
            self._console.print(f"{text} ({passed})", markup=False, highlight=False, soft_wrap=True)

    def _show(self, steps: Mapping[Note, Step]) -> None:
        """A bar for each run under way."""
        titles = {note: standing.title for standing, note in self._wanted}
        for note in [note for note in self._running if note not in steps]:
            self._bars.remove_task(self._running.pop(note))
        for note, step in steps.items():
            if note not in self._running:
                self._running[note] = self._bars.add_task(titles[note], says="")
            clock = f": {step.done_s:.0f}/{step.of_s:.0f} virtual s" if step.of_s else ""
            self._bars.update(
                self._running[note],
                total=step.of_s or None,
                completed=step.done_s,
                says=f"{step.name}{clock}",
            )

    def _left_s(self, steps: Mapping[Note, Step]) -> float | None:
        """Until the last run ends; None while nothing is known of one, or of how many at once."""
        at_once = self._at_once or len(steps)
        if not at_once:
            return None
        left: list[float] = []
        for standing, note in self._wanted:
            if note.validity() is not None or len(note.failures()) >= self._tries:
                continue
            if standing.folder not in self._expected:
                return None
            step = steps.get(note)
            measured = step.done_s / step.of_s if step and step.of_s else 0.0
            left.append(self._expected[standing.folder] * (1 - measured))
        return elapsed_s(left, at_once)


def in_words(seconds: float) -> str:
    """Such as "40 s", "7 min" or "3 h 20 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
