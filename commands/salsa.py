"""Simulate how many links of the live network carry several circuits.

Counts the links between relays that carry more than one circuit at a time, in the network of a
consensus. Starts no virtual machine.

```sh
./run.py salsa 2021-11-30 --external
```

```
2021-11-30: 6400 relays, 96876 circuits
                       external      external
                       directed    undirected
shared links, %     3.63 ± 0.03   4.43 ± 0.04
                   3.60 to 3.67  4.38 to 4.48
  guard-middle, %   2.94 ± 0.01   4.52 ± 0.04
  middle-exit, %    4.33 ± 0.05   4.33 ± 0.05
…
```

It takes consensus documents of both flavours, folders and archives of them, or names of those that
come with the project ([consensuses](../consensuses/README.md)). `--tables` prints the tables of
[what came out](../studies/shared-links/README.md), without the figures.
"""

import argparse
import json
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from commands import _options
from commands._late_bar import late_bar
from salsa import simulation
from salsa.cases import EXIT_CLASSES, MIXTURE, PAPER_CIRCUITS, RULES, Case, Rule
from salsa.positions import supported_rules
from salsa.terminal_tables import as_csv, print_results, print_seconds
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.network.consensus import Consensus
from testbed.network.finding import read_consensuses

SEEDS = 5
_OF_FIGURES = ("consensuses", "seeds", "figures")
"""The options that go with --figures, which has settings of its own."""
_OF_TABLES = ("consensuses", "seeds", "tables", "json")
"""The options that go with --tables, which has settings of its own, too."""
_OF_RUN = ("run", "seeds", "directed", "undirected", "json", "csv")
"""The options that go with --run, as the run decides what is simulated."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `salsa`."""
    _add_case(parser)
    _add_network(parser)
    parser.add_argument(
        "--seeds",
        type=_options.whole(1),
        default=SEEDS,
        metavar="N",
        help=f"simulations (default: {SEEDS})",
    )
    parser.add_argument(
        "--expected", action="store_true", help="the closed form's values, without simulation"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="make the paper's figures again, as a web page"
    )
    parser.add_argument(
        "--tables", action="store_true", help="only the tables that stand beside the figures"
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="compare a run of a drawn network, in which Tor chose the circuits, with the"
        " simulation of that network, second by second",
    )
    _options.add_formats(parser)


def _add_case(parser: argparse.ArgumentParser) -> None:
    """Add the consensuses, and which circuits and links count."""
    parser.add_argument(
        "consensuses",
        nargs="*",
        metavar="CONSENSUS",
        help="a name (2021-11-30), a document, a folder or a tar archive of them; default: all"
        " that come with the project",
    )
    parser.add_argument(
        "--circuits",
        type=_numbers,
        default=[PAPER_CIRCUITS],
        metavar="N",
        help=f"circuits at a time; also N,N,… or FIRST:LAST:STEP (default: {PAPER_CIRCUITS})",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--external", action="store_true", help="only circuits that end at an exit")
    kinds.add_argument("--internal", action="store_true", help="only circuits that end at a middle")
    kinds.add_argument(
        "--internal-share",
        type=_options.number(0, 1),
        metavar="SHARE",
        help="the share of internal circuits, 0 to 1",
    )
    directions = parser.add_mutually_exclusive_group()
    directions.add_argument("--directed", action="store_true", help="only links with a direction")
    directions.add_argument("--undirected", action="store_true", help="only links without one")


def _add_network(parser: argparse.ArgumentParser) -> None:
    """Add which relays circuits may have, and how many circuits a client has."""
    parser.add_argument(
        "--exit-class",
        choices=[*EXIT_CLASSES, MIXTURE],
        help="only exits that accept all ports of this class (table 1 of the paper)",
    )
    parser.add_argument(
        "--per-client",
        type=_options.whole(1),
        default=1,
        metavar="K",
        help="circuits of a client, all with its guards",
    )
    parser.add_argument(
        "--guards",
        type=_options.whole(1),
        default=1,
        metavar="G",
        help="guards of a client, each of which a circuit has equally often (default: 1)",
    )
    parser.add_argument(
        "--scale",
        type=_options.number(0, 1, above=True),
        default=1.0,
        metavar="SHARE",
        help="a share of the relays, sampled as in tornettools, and of the circuits; at most 1",
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        choices=[*RULES, "all"],
        help="a rule of Tor's that the paper leaves out; may be repeated. "
        + "; ".join(f"{rule}: {text}" for rule, text in RULES.items())
        + "; all: each for which the consensus has the data",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Simulate and print the results, or write the report with the figures.

    Raises:
        InputError: these consensuses lack what a case needs.
    """
    if given.figures is not None:
        _refuse_settings(given, "--figures", _OF_FIGURES)
        _write_report(given, messages)
        return VALID
    if given.tables:
        _refuse_settings(given, "--tables", _OF_TABLES)
        _print_tables(given, messages)
        return VALID
    if given.run is not None:
        _refuse_settings(given, "--run", _OF_RUN)
        _compare_with_run(given, messages)
        return VALID
    cases = _cases(given)
    consensuses = _read(given, messages)
    jobs = [
        (consensus, _ruled(case, consensus, given.rule))
        for consensus in consensuses
        for case in cases
    ]
    with late_bar(messages, "simulating", len(jobs)) as tell:
        results = simulation.simulate_all(jobs, given.seeds, closed_form=given.expected, tell=tell)
    if given.json:
        print(json.dumps(simulation.records(results), indent=1))
    elif given.csv:
        print(as_csv(simulation.records(results)), end="")
    else:
        print_results(Console(), results)
    return VALID


def _refuse_settings(given: argparse.Namespace, option: str, taken: Collection[str]) -> None:
    """Refuse options that have no meaning beside `option`."""
    plain = argparse.ArgumentParser()
    add_options(plain)
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
    say(messages, f"report in {page}")


def _print_tables(given: argparse.Namespace, messages: Console) -> None:
    # Importing what has the report's tables takes as long as a simulation.
    from analysis.table import print_tables
    from salsa.held_tables import all_tables

    consensuses = _read(given, messages)
    with late_bar(messages, "simulating", None):
        tables = all_tables(consensuses, given.seeds)
    if given.json:
        print(json.dumps([asdict(table) for table in tables], indent=1, ensure_ascii=False))
    else:
        print_tables(Console(), tables)


def _compare_with_run(given: argparse.Namespace, messages: Console) -> None:
    # Importing the code that reads runs takes as long as a simulation.
    from salsa.observed import agreement, compared_with_simulation
    from testbed.results import read_run

    with late_bar(messages, "simulating", None) as tell:
        seconds = compared_with_simulation(
            read_run(given.run), undirected=given.undirected, seeds=given.seeds, tell=tell
        )
    rows = [second.record() for second in seconds]
    if given.json:
        print(json.dumps(rows, indent=1))
    elif given.csv:
        print(as_csv(rows), end="")
    else:
        print_seconds(Console(), seconds, agreement(seconds))


def _read(given: argparse.Namespace, messages: Console) -> list[Consensus]:
    with late_bar(messages, "reading", None) as tell:
        return read_consensuses(given.consensuses, tell)


def _cases(given: argparse.Namespace) -> list[Case]:
    """Every combination of the numbers of circuits, kinds and directions that were asked for."""
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
            guards=given.guards,
            scale=given.scale,
        )
        for circuits in given.circuits
        for share in shares
        for undirected in directions
    ]


def _ruled(case: Case, consensus: Consensus, names: list[str]) -> Case:
    """The case with these rules; "all" stands for those that the consensus supports."""
    named = frozenset(Rule(name) for name in names if name != "all")
    return replace(case, rules=named | supported_rules(consensus) if "all" in names else named)


def _numbers(text: str) -> list[int]:
    """Numbers such as "96876", "10000,96876" or "20000:400000:20000" with its last one."""
    found: list[int] = []
    for part in text.split(","):
        bounds = [_options.whole(1)(one) for one in part.split(":")]
        if len(bounds) == 3 and bounds[0] <= bounds[1]:
            first, last, step = bounds
            found += range(first, last + 1, step)
        elif len(bounds) == 1:
            found += bounds
        else:
            raise argparse.ArgumentTypeError(f'"{part}" is neither N nor FIRST:LAST:STEP')
    return list(dict.fromkeys(found))
