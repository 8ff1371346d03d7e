"""Drawing circuits: which relays each of them has, by the probabilities and a seed."""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from salsa.positions import Positions
from testbed.errors import InputError
from testbed.network.positions import Floats

Relays = NDArray[np.int32]
"""Numbers of relays, one entry a circuit."""

_MOST_ATTEMPTS = 1000


class DrawnCircuits(NamedTuple):
    """The relays of circuits; the last is an exit, or a middle in internal circuits."""

    guards: Relays
    middles: Relays
    lasts: Relays


def draw(positions: Positions, circuits: int, *, per_client: int, seed: int) -> DrawnCircuits:
    """Circuits with independent relays, as in Algorithm 1; or kept apart as Tor does.

    Each place has random numbers of its own, so that a seed gives the same guards whatever exits
    there are.

    Args:
        per_client: so many circuits one after the other have the same guard; if it is no divisor
            of their number, the last client has fewer.

    Raises:
        InputError: relays can't be kept apart, as there are too few.
    """
    clients = -(-circuits // per_client)
    # Circuits are in no order, so that their guards may be; but any client may be the last.
    in_order = clients * per_client == circuits
    of_clients = _relays(positions.guard, clients, f"guard {seed}", in_order=in_order)
    guards = np.repeat(of_clients, per_client)[:circuits]
    drawn = DrawnCircuits(
        guards,
        _relays(positions.middle, circuits, f"middle {seed}"),
        _relays(positions.last, circuits, f"last {seed}"),
    )
    return _kept_apart(drawn, positions, seed) if positions.kept_apart else drawn


def _generator(purpose: str) -> np.random.Generator:
    digest = hashlib.sha256(f"salsa {purpose}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _relays(probabilities: Floats, count: int, purpose: str, *, in_order: bool = False) -> Relays:
    """Independent draws, as the number of each relay's and their order: four times as fast."""
    generator = _generator(purpose)
    numbers = np.arange(len(probabilities), dtype=np.int32)
    relays = np.repeat(numbers, generator.multinomial(count, probabilities))
    if not in_order:
        generator.shuffle(relays)
    return relays


def _kept_apart(drawn: DrawnCircuits, positions: Positions, seed: int) -> DrawnCircuits:
    """The circuits with relays drawn again until none conflicts with another of its circuit.

    In Tor's order: the last relay stays, the guard is another one if it conflicts with it, then
    the middle (path-spec, "Choosing a path").
    """
    guards = _redrawn(
        drawn.guards, positions.guard, [drawn.lasts], positions, f"guard again {seed}"
    )
    middles = _redrawn(
        drawn.middles,
        positions.middle,
        [drawn.lasts, guards],
        positions,
        f"middle again {seed}",
    )
    return DrawnCircuits(guards, middles, drawn.lasts)


def _redrawn(
    relays: Relays, probabilities: Floats, others: list[Relays], positions: Positions, purpose: str
) -> Relays:
    generator = _generator(purpose)
    relays = relays.copy()
    places = np.arange(len(relays))
    for _ in range(_MOST_ATTEMPTS):
        conflicting = np.zeros(len(places), dtype=np.bool_)
        for numbers in positions.kept_apart:
            own = numbers[relays[places]]
            for other in others:
                conflicting |= (own == numbers[other[places]]) & (own >= 0)
        places = places[conflicting]
        if not len(places):
            return relays
        relays[places] = generator.choice(len(probabilities), len(places), p=probabilities)
    raise InputError("too few relays to keep those of a circuit apart: leave the --rule out")
