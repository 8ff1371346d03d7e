"""What a batch is, what it would do, and how it ended, for the terminal.

While it is at work, the display shows it.
"""

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from testbed.batch.batch_file import Batch
from testbed.batch.carrying_out import Ended, lacking
from testbed.batch.display import in_words
from testbed.batch.estimate import Estimator, Expected, elapsed_s
from testbed.batch.standing import Standing

Group = tuple[str, str, str]


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


def _expected(expected: Expected | None) -> str:
    if expected is None:
        return "not known"
    took = in_words(expected.wall_s)
    return f"perhaps {took}" if expected.basis == "guess" else took


def _estimate(expected: Sequence[Expected | None], at_once: int) -> list[str]:
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
