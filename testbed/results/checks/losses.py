"""Whether the links lost as many packets as they should."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from testbed.basics.check import Check
from testbed.plan.model import Plan
from testbed.results.link_directions import DirectionCounts, directions
from testbed.results.recorded import Recorded

LOSS_CONFIDENCE = 0.9999
"""One sound check in 10 000 fails by chance: a batch has hundreds of them."""
LEAST_PACKETS = 1000
"""A direction with fewer packets says nothing about a loss of 0.1 %."""


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check each pair of roles between which packets get lost."""
    yield from loss_checks(directions(plan, recorded.tables.links))


def loss_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether the links lost what they should, by the roles of their ends.

    Losses are independent, so their number among n packets is binomial; the expected interval
    contains it with probability `LOSS_CONFIDENCE` and has equal tails. Bundles that cross as one
    are lost as one, and the same holds for them.
    """
    groups: dict[tuple[tuple[str, str], float], list[DirectionCounts]] = defaultdict(list)
    for direction in directions:
        if direction.shape.loss > 0:
            groups[direction.roles, direction.shape.loss].append(direction)
    for (roles, loss), group in groups.items():
        yield _loss_check(f"loss from {roles[0]} to {roles[1]}", loss, group)


def _loss_check(name: str, loss: float, group: list[DirectionCounts]) -> Check:
    in_bundles = group[0].shape.bundles
    things = "bundles" if in_bundles else "packets"
    # Selecting directions by their losses would bias the check: what was offered decides.
    judged = [direction for direction in group if direction.offered >= LEAST_PACKETS]
    offered = sum(direction.offered for direction in judged)
    lost = sum(direction.lost_packets for direction in judged)
    if not offered:
        return Check(
            name=name,
            expected=f"{loss:.4%} of the {things}",
            observed=f"no direction with {LEAST_PACKETS} {things}",
            ok=None,
        )
    passed_over = len(group) - len(judged)
    beside = f"; {passed_over} with fewer than {LEAST_PACKETS} not judged" if passed_over else ""
    if in_bundles:
        segments = sum(direction.sent_packets for direction in judged) / sum(
            direction.departures for direction in judged
        )
        beside = (
            f"; {segments:.2f} segments a bundle, so {lost / offered / segments:.4%} losses a"
            f" segment{beside}"
        )
    from scipy import stats  # takes longer to import than most commands to run

    least, most = (int(bound) for bound in stats.binom.interval(LOSS_CONFIDENCE, offered, loss))
    return Check(
        name=name,
        expected=f"{least} to {most} of {offered} {things} ({loss:.4%})",
        observed=f"{lost} of {offered} {things} ({lost / offered:.4%}){beside}",
        ok=least <= lost <= most,
    )
