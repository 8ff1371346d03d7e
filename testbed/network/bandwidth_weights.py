"""The bandwidth weights Wgg to Wed that directory authorities compute from all relays' weights.

This follows dir-spec, "Computing Bandwidth Weights" (consensus method 10 and above), in its terms:
G, E, D and M are the total weights of relays with the Guard flag, the Exit flag, both, and neither;
T is their sum. A class is "scarce" if it has less than a third of T. Integers are divided as in Tor
(0.4.9, networkstatus_compute_bw_weights_v10() in dirvote.c), so the results equal the authorities'
to the last digit. How clients use them is in `testbed.network.positions`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from testbed.network.consensus import Consensus
from testbed.network.positions import relay_classes
from testbed.plan.positions import FULL_WEIGHT

FIRST_TOTAL = 1
"""The start of the authorities' sum of each class, which avoids dividing by zero. It shows in the
last digit if weights are small or a class has none."""
_MARGIN = 10
"""The largest error of a sum of weights, as they are integers."""


class Totals(NamedTuple):
    """The relays' total weights by class."""

    guard: int
    middle: int
    exit: int
    both: int


class _Weights(NamedTuple):
    """The seven weights that determine the others; the position's letter comes first."""

    gg: int
    gd: int
    mg: int
    me: int
    md: int
    ee: int
    ed: int


class _Wrong(NamedTuple):
    """The violated conditions on weights: sums and bounds, and balances between positions."""

    sums: bool
    exits: bool
    middles: bool


def totals(consensus: Consensus) -> Totals:
    """The total weights of a consensus's relays; a BadExit is not an exit."""
    by_class = np.bincount(
        relay_classes(consensus.relays),
        weights=consensus.relays["weight"].to_numpy(),
        minlength=4,
    )
    middle, guard, exits, both = (int(total) for total in by_class)
    return Totals(guard, middle, exits, both)


def bandwidth_weights(of: Totals, scale: int = FULL_WEIGHT) -> Mapping[str, int]:
    """The weights by their names in a consensus, in 1/scale.

    They are empty if no weights balance the positions, as authorities then leave them out of the
    consensus. Tor treats all classes alike in that case.
    """
    of = Totals(*(FIRST_TOTAL + total for total in of))
    total = sum(of)
    exits_scarce, guards_scarce = 3 * of.exit < total, 3 * of.guard < total
    if not exits_scarce and not guards_scarce:
        weights = _neither_scarce(of, scale)
    elif exits_scarce and guards_scarce:
        weights = _both_scarce(of, scale)
    else:
        weights = _one_scarce(of, scale)
    return {} if weights is None else _named(weights, scale)


def _neither_scarce(of: Totals, scale: int) -> _Weights | None:
    """Case 1: relays with both flags serve all positions alike; others give away their excess."""
    third = scale // 3
    ee = _divided(scale * (of.exit + of.guard + of.middle), 3 * of.exit)
    mg = _divided(scale * (2 * of.guard - of.exit - of.middle), 3 * of.guard)
    weights = _Weights(gg=scale - mg, gd=third, mg=mg, me=scale - ee, md=third, ee=ee, ed=third)
    return None if any(_wrong(weights, of, scale)) else weights


def _both_scarce(of: Totals, scale: int) -> _Weights | None:
    """Case 2: guards and exits stay in their positions; relays with both flags are shared out."""
    if min(of.exit, of.guard) + of.both < max(of.exit, of.guard):  # 2a
        ed = scale if of.exit < of.guard else 0
        return _Weights(gg=scale, gd=scale - ed, mg=0, me=0, md=0, ee=scale, ed=ed)
    ed = _divided(scale * (of.both - 2 * of.exit + 4 * of.guard - 2 * of.middle), 3 * of.both)
    half = _divided(scale - ed, 2)
    weights = _Weights(  # 2b, with Wmd = Wgd
        gg=scale,
        gd=half,
        mg=0,
        me=_divided(scale * (of.guard - of.middle), of.exit),
        md=half,
        ee=_divided(scale * (of.exit - of.guard + of.middle), of.exit),
        ed=ed,
    )
    if not any(_wrong(weights, of, scale)):
        return weights
    ed = _divided(scale * (of.both - 2 * of.exit + of.guard + of.middle), 3 * of.both)
    md = _divided(scale * (of.both - 2 * of.middle + of.guard + of.exit), 3 * of.both)
    md = max(md, 0)  # below 0 if M > T/3: middles then have too much, and keep it
    weights = _Weights(gg=scale, gd=scale - ed - md, mg=0, me=0, md=md, ee=scale, ed=ed)
    wrong = _wrong(weights, of, scale)
    return None if wrong.sums or wrong.exits else weights


def _one_scarce(of: Totals, scale: int) -> _Weights | None:
    """Case 3: relays with both flags go to the scarce position, wholly (3a) or in part (3b)."""
    if of.guard >= of.exit:
        return _exits_scarce(of, scale)
    turned = _exits_scarce(Totals(of.exit, of.middle, of.guard, of.both), scale)
    return turned and _Weights(
        gg=turned.ee,
        gd=turned.ed,
        mg=turned.me,
        me=turned.mg,
        md=turned.md,
        ee=turned.gg,
        ed=turned.gd,
    )


def _exits_scarce(of: Totals, scale: int) -> _Weights | None:
    if 3 * (of.exit + of.both) < sum(of):  # 3a
        mg = max(_divided(scale * (of.guard - of.middle), 2 * of.guard), 0)
        return _Weights(gg=scale - mg, gd=0, mg=mg, me=0, md=0, ee=scale, ed=scale)
    gg = _divided(scale * (of.guard + of.middle), 2 * of.guard)
    ed = _divided(scale * (of.both - 2 * of.exit + of.guard + of.middle), 3 * of.both)
    half = _divided(scale - ed, 2)
    weights = _Weights(gg=gg, gd=half, mg=scale - gg, me=0, md=half, ee=scale, ed=ed)
    return None if any(_wrong(weights, of, scale)) else weights


def _wrong(weights: _Weights, of: Totals, scale: int) -> _Wrong:
    """Check that each class is given out once, and that all positions get the same weight.

    The margins are Tor's (networkstatus_check_weights).
    """
    given_out = (
        weights.ed + weights.md + weights.gd,
        weights.mg + weights.gg,
        weights.me + weights.ee,
    )
    sums = any(abs(one - scale) > _MARGIN for one in given_out)
    bounds = any(not 0 <= weight <= scale for weight in weights)
    guards = weights.gg * of.guard + weights.gd * of.both
    exits = weights.ee * of.exit + weights.ed * of.both
    middles = (
        scale * of.middle + weights.md * of.both + weights.me * of.exit + weights.mg * of.guard
    )
    margin = _MARGIN * sum(of) // 3
    return _Wrong(sums or bounds, abs(guards - exits) > margin, abs(guards - middles) > margin)


def _named(weights: _Weights, scale: int) -> Mapping[str, int]:
    """The weights of the line "bandwidth-weights"; others are full or equal to computed ones."""
    of_directories = {"Wbd": weights.md, "Wbe": weights.me, "Wbg": weights.mg, "Wbm": scale}
    full = dict.fromkeys(("Wdb", "Web", "Wgb", "Wmb", "Wmm"), scale)
    computed = {f"W{name}": weight for name, weight in weights._asdict().items()}
    alike = {"Weg": weights.ed, "Wem": weights.ee, "Wgm": weights.gg}
    return dict(sorted((of_directories | full | computed | alike).items()))


def _divided(number: int, by: int) -> int:
    """Divide integers as C does: towards zero."""
    return number // by if number >= 0 else -(-number // by)
