"""A batch on the terminal: its dry run, its progress, and its end.

During the batch, one live display shows how many runs are done, running and failed, and the time
left; without a terminal there is a line for each run that has ended.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from testbed.basics.console import say
from testbed.batch.batch_file import Batch
from testbed.batch.estimate import Estimator, ExpectedTime, elapsed_s
from testbed.batch.notes import Note
from testbed.batch.standings import Ended, Standing, lacking
from testbed.machines.host import MEASURING
from testbed.machines.watching import Step
from testbed.plan.model import Plan

Group = tuple[str, str, str]


class Display:
    """Shows a batch's progress from the notes of its runs."""

    def __init__(
        self,
        console: Console,
        wanted: Sequence[tuple[Standing, Note]],
        estimator: Estimator,
        *,
        at_once: int | None,
        tries: int,
    ) -> None:
        """Show these runs by their notes.

        Args:
            at_once: how many runs go on together; None for as many as do at the moment.
            tries: how often each run is tried.
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
        self._printed: set[tuple[Note, int]] = set()
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
        """Show the display while this context lasts."""
        return self._bars

    def update(self) -> bool:
        """Read the notes again, print what has ended, and show what runs.

        Returns:
            Whether all runs have ended.
        """
        steps: dict[Note, Step] = {}
        done = failed = 0
        for standing, note in self._wanted:
            failures = note.failures()
            ended = note.validity()
            self._print_news(standing, note, failures, ended)
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

    def _print_news(
        self, standing: Standing, note: Note, failures: Sequence[str], ended: bool | None
    ) -> None:
        """Print a line for each failed try and for the run's end, each once."""
        for number, failure in enumerate(failures, start=1):
            first_line = failure.partition("\n")[0]
            text = f"failed, try {number} of {self._tries}: {standing.title}: {first_line}"
            self._print_once(note, number, text)
        if ended is not None:
            self._print_once(note, 0, f"{'done' if ended else 'invalid'}: {standing.title}")

    def _print_once(self, note: Note, number: int, text: str) -> None:
        if (note, number) not in self._printed:
            self._printed.add((note, number))
            passed = in_words(time.monotonic() - self._start_s)
            say(self._console, f"{text} ({passed})")

    def _show(self, steps: Mapping[Note, Step]) -> None:
        """Show a bar for each run under way."""
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
        """The time until the last run ends; None if a run's time, or how many run, is unknown."""
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
            left.append(self._expected[standing.folder] * (1 - _share_done(standing.plan, step)))
        return elapsed_s(left, at_once)


def _share_done(plan: Plan, step: Step | None) -> float:
    """The share of a run's traffic that is over: warm-up and measuring are steps of their own."""
    if step is None or not step.of_s:
        return 0.0
    before_s = plan.warm_up_s if step.name == MEASURING else 0.0
    return (before_s + step.done_s) / plan.traffic_s


def print_dry_run(
    console: Console,
    batch: Batch,
    standings: Sequence[Standing],
    estimator: Estimator,
    *,
    at_once: int,
    again_invalid: bool,
) -> None:
    """Print which runs would be made, why, and how long they would take."""
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
            say(console, f"{one.folder} would be run again: {one.in_the_way}")
    for line in _estimate([estimator.expected(one.plan) for one in wanted], at_once):
        say(console, line)


def print_ended(console: Console, ended: Ended) -> None:
    """Print which runs failed or are invalid, and why; then how many are valid."""
    for one in ended.standings:
        if failure := ended.failures.get(one.folder):
            say(console, f"failed: {one.title}: {failure}")
    for one in ended.invalid:
        assert one.run
        checks = ", ".join(check.name for check in one.run.summary.failed_checks)
        say(console, f"invalid: {one.folder}: {checks} (--retry-invalid runs it again)")
    valid = len(ended.standings) - len(ended.invalid) - len(ended.failures)
    say(
        console,
        f"{len(ended.standings)} runs: {valid} valid, {len(ended.invalid)} invalid,"
        f" {len(ended.failures)} failed",
    )


def in_words(seconds: float) -> str:
    """A time such as "40 s", "7 min" or "3 h 20 min"."""
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
    """The time that all runs together take, in words, and its basis."""
    if not expected:
        return ["nothing to run"]
    known = [one for one in expected if one]
    if len(known) < len(expected):
        return [f"{len(expected)} runs; how long they take is not known: there is no earlier run"]
    wall_s = elapsed_s([one.wall_s for one in known], at_once)
    cpu_s = elapsed_s([one.cpu_s for one in known], at_once)
    lines = [
        f"{len(known)} runs, {at_once} at once: about {in_words(wall_s)} at the pace of earlier"
        f" runs, {in_words(cpu_s)} if each has a core to itself"
    ]
    if guesses := sum(one.basis == "guess" for one in known):
        lines.append(
            f"{guesses} of them have no earlier run like them: the estimate is the most that their"
            " clients could load"
        )
    return lines
