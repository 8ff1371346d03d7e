"""`./run.py salsa`: from what a user typed to what is printed."""

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from salsa import options, simulation
from salsa.cases import Case, Rule
from salsa.positions import rules_told
from salsa.show import as_csv, print_results, print_seconds
from testbed.errors import InputError
from testbed.network.consensus import Consensus
from testbed.network.finding import read_consensuses

_PATIENCE_S = 2.0
"""Before a bar is shown."""


def carry_out(given: argparse.Namespace, messages: Console) -> None:
    """Simulate what was asked for and print it, or write the report with the figures.

    Raises:
        InputError: something asked for can't be had of these consensuses.
    """
    if given.figures is not None:
        _refuse_settings(given, "--figures", options.OF_FIGURES)
        _write_report(given, messages)
        return
    if given.run is not None:
        _refuse_settings(given, "--run", options.OF_RUN)
        _hold_against_run(given, messages)
        return
    cases = _cases(given)
    consensuses = _read(given, messages)
    jobs = [
        (consensus, _ruled(case, consensus, given.rule))
        for consensus in consensuses
        for case in cases
    ]
    with late_bar(messages, "simulating", len(jobs)) as tell:
        results = simulation.carry_out(jobs, given.seeds, closed_form=given.expected, tell=tell)
    if given.json:
        print(json.dumps(simulation.records(results), indent=1))
    elif given.csv:
        print(as_csv(simulation.records(results)), end="")
    else:
        print_results(Console(), results)


def _refuse_settings(given: argparse.Namespace, option: str, taken: Collection[str]) -> None:
    """Refuse what has no meaning beside an option."""
    plain = argparse.ArgumentParser()
    options.add_options(plain)
    defaults = {**vars(plain.parse_args([])), "json": False, "csv": False}
    for name, value in defaults.items():
        if name not in taken and getattr(given, name) != value:
            other = "CONSENSUS" if name == "consensuses" else f"--{name.replace('_', '-')}"
            raise InputError(f"{option} has settings of its own: leave {other} out")


def _write_report(given: argparse.Namespace, messages: Console) -> None:
    # Matplotlib takes half a second to import.
    from salsa.report import FIGURE_COUNT, write_report

    consensuses = _read(given, messages)
    with late_bar(messages, "figures", FIGURE_COUNT) as tell:
        page = write_report(consensuses, given.figures, seeds=given.seeds, tell=tell)
    messages.print(f"report in {page}", markup=False, highlight=False, soft_wrap=True)


def _hold_against_run(given: argparse.Namespace, messages: Console) -> None:
    # What reads a run takes as long to import as a simulation.
    from salsa.observed import held_against_simulation
    from testbed.results import read_run

    with late_bar(messages, "simulating", None) as tell:
        seconds = held_against_simulation(
            read_run(given.run), undirected=given.undirected, seeds=given.seeds, tell=tell
        )
    rows = [second.record() for second in seconds]
    if given.json:
        print(json.dumps(rows, indent=1))
    elif given.csv:
        print(as_csv(rows), end="")
    else:
        print_seconds(Console(), seconds)


def _read(given: argparse.Namespace, messages: Console) -> list[Consensus]:
    with late_bar(messages, "reading", None) as tell:
        return read_consensuses(given.consensuses, tell)


def _cases(given: argparse.Namespace) -> list[Case]:
    """Every combination that was asked for, of numbers of circuits, kinds and directions."""
    if given.exit_class and (given.internal or given.internal_share == 1):
        raise InputError(f"--exit-class {given.exit_class}: internal circuits have no exit")
    if given.internal_share is not None:
        shares = [given.internal_share]
    elif given.external or (given.exit_class and not given.internal):
        shares = [0.0]
    else:
        shares = [1.0] if given.internal else [0.0, 1.0]
    directions = [False, True]
    if given.directed or given.undirected:
        directions = [given.undirected]
    return [
        Case(
            circuits=circuits,
            internal_share=share,
            undirected=undirected,
            exit_class=given.exit_class,
            per_client=given.per_client,
            scale=given.scale,
        )
        for circuits in given.circuits
        for share in shares
        for undirected in directions
    ]


def _ruled(case: Case, consensus: Consensus, said: list[str]) -> Case:
    """The case with the rules that were asked for; all are those that the consensus tells of."""
    named = frozenset(Rule(name) for name in said if name != "all")
    return replace(case, rules=named | rules_told(consensus) if "all" in said else named)


@contextmanager
def late_bar(messages: Console, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar that is shown only if it takes longer than two seconds.

    Yields:
        A function to call with how much is done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(
        *columns, console=messages, transient=True, disable=not messages.is_terminal
    )
    task = progress.add_task(what, total=total)
    begin = time.monotonic()

    def tell(done: int) -> None:
        progress.update(task, completed=done)
        if not progress.live.is_started and time.monotonic() - begin > _PATIENCE_S:
            progress.start()

    try:
        yield tell
    finally:
        if progress.live.is_started:
            progress.stop()
