"""How many connections a drawn network's relays have at most if each pair of relays shares one.

Which links circuits have is `testbed.asked.sampled_plan.expected_use`'s.
"""

from collections.abc import Mapping, Sequence

from testbed.plan.model import Plan
from testbed.plan.positions import position_weights

CIRCUITS = 7
"""The circuits that a client has built before measuring begins."""


def expected_connections(
    plan: Plan, guards: int | None, circuits: int = CIRCUITS
) -> dict[str, float]:
    """Each relay's expected connections: one with each other relay, and one with each client at it.

    A client without entry guards takes any guard for each circuit, by weight; with entry guards it
    has drawn some by weight, and takes any of these. That a circuit which ends at a guard begins at
    another is passed over.

    Args:
        guards: how many entry guards a client has, at most 3; None if it has none.
        circuits: how many a client has built.
    """
    relays = plan.of_kind("relay")
    chances = _chances(plan)
    others, clients = len(relays) - 1, len(plan.clients)
    used = {
        relay: _used(chance, circuits) if guards is None else drawn * _used(1 / guards, circuits)
        for (relay, chance), drawn in zip(
            chances.items(), drawn_among(list(chances.values()), guards or 1), strict=True
        )
    }
    return {relay: others + clients * chance for relay, chance in used.items()}


def drawn_among(chances: Sequence[float], number: int) -> list[float]:
    """The probability that each is among the first ones drawn, none of them twice.

    Args:
        chances: the probabilities of the first draw; they add up to 1.
        number: how many are drawn; all if there are no more with a chance.
    """
    if number == 0:
        return [0.0] * len(chances)
    among = list(chances)
    for first, chance in enumerate(chances):
        if 0 < chance < 1:
            rest = [
                0.0 if one == first else other / (1 - chance) for one, other in enumerate(chances)
            ]
            for one, later in enumerate(drawn_among(rest, number - 1)):
                among[one] += chance * later
    return among


def _used(chance: float, circuits: int) -> float:
    """The probability that one of several circuits takes what each takes with this chance."""
    return 1 - (1 - chance) ** circuits


def _chances(plan: Plan) -> Mapping[str, float]:
    """Each relay's probability of being drawn as guard."""
    relays = plan.of_kind("relay")
    by_weight = position_weights(relays, "guard", plan.bandwidth_weights)
    weights = {
        relay.name: weight * ("guard" in relay.flags)
        for relay, weight in zip(relays, by_weight, strict=True)
    }
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
