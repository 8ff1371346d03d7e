"""The pairs of relays that a scenario has watched: some by name, all, or the busiest.

`inside.probes` records them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from testbed.asked.scenario_values import ALL_RELAY_PAIRS
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, shown, suggestion
from testbed.plan.model import Pair, PlannedLink, PlannedNode

ExpectedUse = Mapping[Pair, float]
"""The expected number of circuits between two relays, for all pairs that a circuit can cross.

It is known before a run; only the order of the numbers counts. Pairs with the same number are in
the order of the plan.
"""


def watched_pairs(
    watch: tuple[str, ...] | int | str | None, file: Path, use: ExpectedUse
) -> tuple[Pair, ...]:
    """The pairs that a scenario has watched, in the plan's order.

    Args:
        watch: as in `asked.scenario.AnyScenario`.
        file: the scenario's.

    Raises:
        InputError: it names a pair that doesn't exist, or more pairs than there are.
    """
    if watch is None:
        return ()
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
    """The pair of that name, which has the two in either order."""
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
    nodes: Iterable[PlannedNode], links: Iterable[PlannedLink], paths: Iterable[tuple[str, ...]]
) -> ExpectedUse:
    """The number of a topology's paths with the link between two relays, for all such links."""
    relays = {node.name for node in nodes if node.kind == "relay"}
    crossed = Counter(frozenset(hop) for path in paths for hop in pairwise(path))
    return {link.ends: crossed[frozenset(link.ends)] for link in links if relays >= {*link.ends}}
