"""Which relay is how likely in each place of a circuit, for one case in one consensus.

The network of a smaller scale is made here too. What circuits are drawn of it, is drawing's.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from salsa.cases import EXIT_CLASSES, MIXTURE, MIXTURE_SHARES, Case, PortRanges, Rule
from testbed.errors import InputError
from testbed.network import exit_policies
from testbed.network.consensus import Consensus
from testbed.network.positions import Floats, Mask, mask, probabilities, relay_classes

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Positions:
    """Probabilities of the relays; all arrays have one entry a relay.

    Attributes:
        guard, middle, last: of being chosen in this place; each sums up to 1. The last is an exit,
            or a middle with the probability that the circuit is internal.
        kept_apart: numbers that no two relays of a circuit may have in common (-1: none), one array
            for each rule of the case that keeps relays apart.
    """

    guard: Floats
    middle: Floats
    last: Floats
    kept_apart: tuple[Numbers, ...] = ()

    @property
    def count(self) -> int:
        """How many relays there are."""
        return len(self.guard)


def positions(consensus: Consensus, case: Case) -> Positions:
    """The probabilities for this case.

    Raises:
        InputError: the consensus doesn't tell what the case needs to know (policies, families),
            or has no relay for a place.
    """
    if case.scale < 1:
        consensus = scaled(consensus, case.scale)
    relays = consensus.relays
    fast = _flagged(relays, case, "fast")
    classes = relay_classes(relays)
    guards = (classes & 1 > 0) & _flagged(relays, case, "fast", "stable", "v2dir")
    middle = probabilities(consensus, "middle", fast)
    last = case.internal_share * middle
    if case.internal_share < 1:
        last = last + (1 - case.internal_share) * _exits(consensus, case, fast)
    return Positions(
        guard=probabilities(consensus, "guard", guards),
        middle=middle,
        last=last,
        kept_apart=_kept_apart(consensus, case),
    )


def scaled(consensus: Consensus, scale: float) -> Consensus:
    """The consensus of a network of that share of the relays, sampled as tornettools does.

    Of each class (guard, exit, both, neither) the relays are sorted by weight and split into as
    many equal bins as there shall be relays of it, at least one, and of each bin the one in the
    middle stays (Jansen, Tracey, Goldberg: Once is Never Enough, USENIX Security 2021, section 4;
    tornettools, generate_tor.py). The consensus's bandwidth weights stay as they are.
    """
    relays = consensus.relays
    classes, weights = relay_classes(relays), relays["weight"].to_numpy()
    kept: list[int] = []
    for number in np.unique(classes):
        members = np.flatnonzero(classes == number)
        ordered = members[np.argsort(weights[members], kind="stable")]
        bins = np.array_split(ordered, max(1, round(len(members) * scale)))
        kept += [int(one[len(one) // 2]) for one in bins]
    return replace(consensus, relays=relays[sorted(kept)])


def rules_told(consensus: Consensus) -> frozenset[Rule]:
    """The rules for which the consensus tells enough."""
    untold = {
        rule
        for rule, column in ((Rule.NO_SAME_FAMILY, "family"), (Rule.EXIT_BY_POLICY, "policy"))
        if _untold(consensus, column)
    }
    return frozenset(Rule) - untold


def exits_by_class(consensus: Consensus, exit_class: str) -> int:
    """How many exits of the consensus accept all ports of a class of table 1."""
    exits = relay_classes(consensus.relays) & 2 > 0
    return int((exits & _accepting(consensus, EXIT_CLASSES[exit_class])).sum())


def _exits(consensus: Consensus, case: Case, fast: Mask) -> Floats:
    """Probabilities of the exits, of one class or of all of them."""
    if case.exit_class == MIXTURE:
        of_each = (
            share * _exits(consensus, replace(case, exit_class=name), fast)
            for name, share in MIXTURE_SHARES.items()
        )
        return np.asarray(np.sum(list(of_each), axis=0))
    flagged = relay_classes(consensus.relays) & 2 > 0
    among = flagged
    if Rule.EXIT_BY_POLICY in case.rules:
        # Without a class, as Tor does for the circuits that it builds ahead: those for the web.
        among = _accepting(consensus, EXIT_CLASSES[case.exit_class or "web"])
        among &= ~mask(consensus.relays, "bad_exit")
    elif case.exit_class is not None:
        among = flagged & _accepting(consensus, EXIT_CLASSES[case.exit_class])
    return probabilities(consensus, "exit", among & fast)


def _accepting(consensus: Consensus, ranges: PortRanges) -> Mask:
    if _untold(consensus, "policy"):
        raise InputError(
            f"{consensus.name}: it tells no exit policies, as it is of the microdesc flavour: give"
            " one of the ns flavour, or join policies with ./run.py distil --policies-from"
        )
    return exit_policies.accepting(consensus.relays, ranges)


def _flagged(relays: pl.DataFrame, case: Case, *flags: str) -> Mask:
    """Which relays have all these flags; all relays where the case doesn't ask."""
    if Rule.FLAGS not in case.rules:
        return np.ones(relays.height, dtype=np.bool_)
    return np.asarray(np.all([mask(relays, flag) for flag in flags], axis=0))


def _kept_apart(consensus: Consensus, case: Case) -> tuple[Numbers, ...]:
    relays = consensus.relays
    found: list[Numbers] = []
    if Rule.NO_RELAY_TWICE in case.rules:
        found.append(np.arange(relays.height))
    if Rule.NO_SAME_16 in case.rules:
        found.append(relays["network16"].to_numpy().astype(np.int64))
    if Rule.NO_SAME_FAMILY in case.rules:
        if _untold(consensus, "family"):
            raise InputError(
                f"{consensus.name}: it tells no families (they are in descriptors, in no consensus"
                f" document): leave --rule {Rule.NO_SAME_FAMILY} out"
            )
        found.append(relays["family"].cast(pl.Int64).fill_null(-1).to_numpy())
    return tuple(found)


def _untold(consensus: Consensus, column: str) -> bool:
    return consensus.relays[column].null_count() == consensus.relays.height
