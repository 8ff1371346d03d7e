"""What a user may type after `./run.py salsa`. Imports nothing that takes time."""

import argparse
from pathlib import Path

from salsa.cases import EXIT_CLASSES, MIXTURE, PAPER_CIRCUITS, RULES

SEEDS = 5


OF_FIGURES = ("consensuses", "seeds", "figures")
"""What may be said beside --figures; the figures have their own settings."""
OF_RUN = ("run", "seeds", "directed", "undirected", "json", "csv")
"""What may be said beside --run; what is simulated follows from the run."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them to the command's parser."""
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
        type=_share,
        metavar="SHARE",
        help="the share of internal circuits, 0 to 1",
    )
    directions = parser.add_mutually_exclusive_group()
    directions.add_argument("--directed", action="store_true", help="only links with a direction")
    directions.add_argument("--undirected", action="store_true", help="only links without one")
    parser.add_argument(
        "--exit-class",
        choices=[*EXIT_CLASSES, MIXTURE],
        help="only exits that accept all ports of this class (table 1 of the paper)",
    )
    parser.add_argument(
        "--per-client",
        type=_count,
        default=1,
        metavar="K",
        help="circuits of a client, all with one guard",
    )
    parser.add_argument(
        "--scale",
        type=_scale,
        default=1.0,
        metavar="SHARE",
        help="a share of the relays, sampled as tornettools does, and of the circuits; at most 1",
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        choices=[*RULES, "all"],
        help="a rule of Tor's that the paper leaves out; may be repeated. "
        + "; ".join(f"{rule}: {text}" for rule, text in RULES.items())
        + "; all: each for which the consensus tells enough",
    )
    parser.add_argument(
        "--seeds", type=_count, default=SEEDS, metavar="N", help=f"simulations (default: {SEEDS})"
    )
    parser.add_argument(
        "--expected", action="store_true", help="the closed form's values, without simulation"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="make the paper's figures again, as a web page"
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="compare a run of a drawn network, in which Tor chose the circuits, with the"
        " simulation of that network, second by second",
    )


def _numbers(text: str) -> list[int]:
    """Such as "96876", "10000,96876" or "20000:400000:20000", the last one included."""
    found: list[int] = []
    for part in text.split(","):
        bounds = [_count(one) for one in part.split(":")]
        if len(bounds) == 3 and bounds[0] <= bounds[1]:
            first, last, step = bounds
            found += range(first, last + 1, step)
        elif len(bounds) == 1:
            found += bounds
        else:
            raise argparse.ArgumentTypeError(f'"{part}" is neither N nor FIRST:LAST:STEP')
    return list(dict.fromkeys(found))


def _count(text: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number') from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number') from None
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return share


def _scale(text: str) -> float:
    if not (scale := _share(text)):
        raise argparse.ArgumentTypeError("a network of no relays has no links: give more than 0")
    return scale
