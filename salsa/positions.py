"""The probability of each relay in each position of a circuit, for a case and a consensus.

Networks of a smaller scale are made here too; `salsa.drawing` draws the circuits.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from salsa.cases import EXIT_CLASSES, MIXTURE, MIXTURE_SHARES, Case, PortRanges, Rule
from testbed.basics.errors import InputError
from testbed.network import exit_policies
from testbed.network.consensus import Consensus
from testbed.network.positions import Floats, Mask, mask, probabilities, relay_classes

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Positions:
    """Probabilities of the relays; arrays have an entry for each relay.

    Attributes:
        guard, middle, last: the probabilities of being chosen for this position; each array adds up
            to 1. The last relay is an exit or, with the probability that the circuit is internal, a
            middle.
        kept_apart: for each rule that keeps relays apart, numbers that no two relays of a circuit
            may share (-1 is no number).
    """

    guard: Floats
    middle: Floats
    last: Floats
    kept_apart: tuple[Numbers, ...] = ()

    @property
    def count(self) -> int:
        """The number of relays."""
        return len(self.guard)


def positions(consensus: Consensus, case: Case) -> Positions:
    """Compute the probabilities for a case.

    Raises:
        InputError: the consensus lacks what the case needs (policies, families), or has no relay
            for a position.
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
    """The consensus of a network with that share of the relays, sampled as in tornettools.

    The relays of each class (guard, exit, both, neither) are sorted by weight and split into as
    many equal bins as relays are needed, at least one; the middle relay of each bin stays (Jansen,
    Tracey, Goldberg: Once is Never Enough, USENIX Security 2021, section 4; tornettools,
    generate_tor.py). The bandwidth weights stay the same.
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


def supported_rules(consensus: Consensus) -> frozenset[Rule]:
    """The rules for which the consensus has the data."""
    unsupported = {
        rule
        for rule, column in ((Rule.NO_SAME_FAMILY, "family"), (Rule.EXIT_BY_POLICY, "policy"))
        if _lacks(consensus, column)
    }
    return frozenset(Rule) - unsupported


def exits_by_class(consensus: Consensus, exit_class: str) -> int:
    """The number of exits that accept all ports of a class of table 1."""
    exits = relay_classes(consensus.relays) & 2 > 0
    return int((exits & _accepting(consensus, EXIT_CLASSES[exit_class])).sum())


def _exits(consensus: Consensus, case: Case, fast: Mask) -> Floats:
    """The probabilities of the exits of one class, or of all exits."""
    if case.exit_class == MIXTURE:
        of_each = (
            share * _exits(consensus, replace(case, exit_class=name), fast)
            for name, share in MIXTURE_SHARES.items()
        )
        return np.asarray(np.sum(list(of_each), axis=0))
    flagged = relay_classes(consensus.relays) & 2 > 0
    among = flagged
    if Rule.EXIT_BY_POLICY in case.rules:
        # Without a class it is the web's, as in the circuits that Tor builds ahead.
        among = _accepting(consensus, EXIT_CLASSES[case.exit_class or "web"])
        among &= ~mask(consensus.relays, "bad_exit")
    elif case.exit_class is not None:
        among = flagged & _accepting(consensus, EXIT_CLASSES[case.exit_class])
    return probabilities(consensus, "exit", among & fast)


def _accepting(consensus: Consensus, ranges: PortRanges) -> Mask:
    if _lacks(consensus, "policy"):
        raise InputError(
            f"{consensus.name}: it has no exit policies, as it is of the microdesc flavour: give"
            " one of the ns flavour, or join policies with ./run.py distil --policies-from"
        )
    return exit_policies.accepting(consensus.relays, ranges)


def _flagged(relays: pl.DataFrame, case: Case, *flags: str) -> Mask:
    """The relays with all these flags, or all relays if the case ignores flags."""
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
        if _lacks(consensus, "family"):
            raise InputError(
                f"{consensus.name}: it has no families (they are in descriptors, not in consensus"
                f" documents): leave --rule {Rule.NO_SAME_FAMILY} out"
            )
        found.append(relays["family"].cast(pl.Int64).fill_null(-1).to_numpy())
    return tuple(found)


def _lacks(consensus: Consensus, column: str) -> bool:
    return consensus.relays[column].null_count() == consensus.relays.height
