"""Which pairs of relays a plan has watched, as its scenario says: some, all, or the busiest.

What is recorded of them is `testbed.probes`'s.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from testbed.errors import InputError
from testbed.plan_model import Link, Node
from testbed.scenario import ALL_RELAY_PAIRS
from testbed.toml_file import label, shown, suggestion

Pair = tuple[str, str]

ExpectedUse = Mapping[Pair, float]
"""How many circuits are expected between two relays, of all pairs that a circuit can cross.

It is known before a run: only the order of the numbers counts. Of pairs that are expected to have
as many circuits, those come first that the plan has first.
"""


def watched_pairs(
    watch: tuple[str, ...] | int | str | None, file: Path, use: ExpectedUse
) -> tuple[Pair, ...] | None:
    """The pairs that are watched, in the plan's order; None where the scenario says nothing.

    Args:
        watch: as `AnyScenario` has it.
        file: the scenario's.

    Raises:
        InputError: it names what isn't there, or more than there is.
    """
    if watch is None:
        return None
    if watch == ALL_RELAY_PAIRS:
        return tuple(use)
    subject = f"{label(file)}: watch ="
    if isinstance(watch, int):
        if watch > len(use):
            raise InputError(
                f'{subject} "the {watch} busiest": there are {len(use)} pairs of relays: write'
                f' fewer, or "{ALL_RELAY_PAIRS}"'
            )
        chosen = {*sorted(use, key=lambda pair: -use[pair])[:watch]}
    else:
        chosen = {_known(name, subject, use) for name in watch}
    return tuple(pair for pair in use if pair in chosen)


def _known(name: str, subject: str, use: ExpectedUse) -> Pair:
    """The pair of that name, in whichever order it names the two."""
    first, second = name.split("-")
    for pair in ((first, second), (second, first)):
        if pair in use:
            return pair
    relays = dict.fromkeys(relay for pair in use for relay in pair)
    for relay in (first, second):
        if relay not in relays:
            raise InputError(
                f"{subject} {shown(name)}: there is no relay {relay}: {suggestion(relay, relays)}"
            )
    pairs = ["-".join(pair) for pair in use]
    raise InputError(
        f"{subject} {shown(name)}: no circuit goes from one to the other: {suggestion(name, pairs)}"
    )


def use_of_paths(
    nodes: Iterable[Node], links: Iterable[Link], paths: Iterable[tuple[str, ...]]
) -> ExpectedUse:
    """Of a topology: how many of its clients' paths have the link between two relays."""
    relays = {node.name for node in nodes if node.kind == "relay"}
    crossed = Counter(frozenset(hop) for path in paths for hop in pairwise(path))
    return {link.ends: crossed[frozenset(link.ends)] for link in links if relays >= {*link.ends}}
