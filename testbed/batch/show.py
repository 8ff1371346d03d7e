"""A batch on the terminal: what it would do, how it is getting on, and how it ended.

While it is at work, one live display shows all its runs: done, running, failed, and when it will
end; off a terminal it is a line for each run that has ended.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from testbed.batch.estimate import Estimator, ExpectedTime, elapsed_s
from testbed.batch.notes import Note
from testbed.batch.runs import Batch, Ended, Standing, lacking
from testbed.machines.watching import Step

Group = tuple[str, str, str]


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


def print_dry_run(
    console: Console,
    batch: Batch,
    standings: Sequence[Standing],
    estimator: Estimator,
    *,
    at_once: int,
    again_invalid: bool,
) -> None:
    """What would run, why, and how long it would take."""
    wanted = lacking(standings, estimator, again_invalid=again_invalid)
    table = Table("scenario", "traffic", "variant", "there", "to run", "a run takes", box=None)
    table.title = batch.title
    groups: dict[Group, list[Standing]] = defaultdict(list)
    for one in standings:
        groups[one.plan.scenario, one.plan.traffic, one.plan.variant].append(one)
    for group, ones in groups.items():
        to_run = sum(one in wanted for one in ones)
        expected = estimator.expected(ones[0].plan)
        table.add_row(*group, str(len(ones) - to_run), str(to_run), _expected(expected))
    console.print(table)
    for one in standings:
        if one.in_the_way:
            _say(console, f"{one.folder} would be run again: {one.in_the_way}")
    for line in _estimate([estimator.expected(one.plan) for one in wanted], at_once):
        _say(console, line)


def print_ended(console: Console, ended: Ended) -> None:
    """Which runs are lacking or don't count, and why; and how many do."""
    for one in ended.standings:
        if failure := ended.failures.get(one.folder):
            _say(console, f"failed: {one.title}: {failure}")
    for one in ended.invalid:
        assert one.run
        checks = ", ".join(check.name for check in one.run.summary.checks if check.failed)
        _say(console, f"invalid: {one.folder}: {checks} (--retry-invalid runs it again)")
    valid = len(ended.standings) - len(ended.invalid) - len(ended.failures)
    _say(
        console,
        f"{len(ended.standings)} runs: {valid} valid, {len(ended.invalid)} invalid,"
        f" {len(ended.failures)} failed",
    )


def in_words(seconds: float) -> str:
    """Such as "40 s", "7 min" or "3 h 20 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _expected(expected: ExpectedTime | None) -> str:
    if expected is None:
        return "not known"
    took = in_words(expected.wall_s)
    return f"perhaps {took}" if expected.basis == "guess" else took


def _estimate(expected: Sequence[ExpectedTime | None], at_once: int) -> list[str]:
    """In words, and what it rests on."""
    if not expected:
        return ["nothing to run"]
    known = [one for one in expected if one]
    if len(known) < len(expected):
        return [f"{len(expected)} runs; how long they take is not known: there is no earlier run"]
    wall_s = elapsed_s([one.wall_s for one in known], at_once)
    cpu_s = elapsed_s([one.cpu_s for one in known], at_once)
    lines = [
        f"{len(known)} runs, {at_once} at once: about {in_words(wall_s)} as earlier runs went,"
        f" {in_words(cpu_s)} if each has a core to itself"
    ]
    if guesses := sum(one.basis == "guess" for one in known):
        lines.append(
            f"{guesses} of them have no earlier run like them: they are taken to deliver as much"
            " per client as any run did"
        )
    return lines


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
