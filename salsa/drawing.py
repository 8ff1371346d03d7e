"""Circuits drawn by a seed: the relays of each, by their probabilities."""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from salsa.positions import Positions
from testbed.basics.errors import InputError
from testbed.network.positions import Floats

Relays = NDArray[np.int32]
"""Numbers of relays, an entry for each circuit."""

_MOST_ATTEMPTS = 1000
_TOO_FEW = "too few relays to keep those of a circuit apart: leave the --rule out"


class DrawnCircuits(NamedTuple):
    """The relays of circuits; the last one is an exit, or a middle in internal circuits."""

    guards: Relays
    middles: Relays
    lasts: Relays


def draw(
    positions: Positions, circuits: int, *, per_client: int, seed: int, guards: int = 1
) -> DrawnCircuits:
    """Draw circuits with independent relays, as in Algorithm 1, or keep relays apart as in Tor.

    Each position has its own random numbers, so a seed gives the same guards whatever the exits.

    Args:
        per_client: this many consecutive circuits are a client's; the last one may have fewer.
        guards: each circuit of a client has one of its first so many guards.

    Raises:
        InputError: there are too few relays to keep them apart.
    """
    clients = -(-circuits // per_client)
    # The other positions are shuffled, so the guards may stay sorted; but if the last client has
    # fewer circuits, its guard must not always be the last relay.
    in_order = clients * per_client == circuits
    of_clients = _relays(positions.guard, clients, f"guard {seed}", in_order=in_order)
    of_circuits = np.arange(circuits) // per_client
    drawn = DrawnCircuits(
        of_clients[of_circuits],
        _relays(positions.middle, circuits, f"middle {seed}"),
        _relays(positions.last, circuits, f"last {seed}"),
    )
    if guards > 1 or positions.kept_apart:
        chosen = _chosen_guards(drawn, of_clients, of_circuits, guards, positions, seed)
        drawn = drawn._replace(guards=chosen)
    return _middles_kept_apart(drawn, positions, seed) if positions.kept_apart else drawn


def _generator(purpose: str) -> np.random.Generator:
    digest = hashlib.sha256(f"salsa {purpose}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _relays(probabilities: Floats, count: int, purpose: str, *, in_order: bool = False) -> Relays:
    """Draw relays independently, as a count for each and a shuffle, which is four times as fast."""
    generator = _generator(purpose)
    numbers = np.arange(len(probabilities), dtype=np.int32)
    relays = np.repeat(numbers, generator.multinomial(count, probabilities))
    if not in_order:
        generator.shuffle(relays)
    return relays


def _chosen_guards(
    drawn: DrawnCircuits,
    first: Relays,
    clients: NDArray[np.int64],
    guards: int,
    positions: Positions,
    seed: int,
) -> Relays:
    """A guard of its client's list for each circuit: one of the first that don't conflict with it.

    A client has a list of guards, in which no relay is twice. A circuit's last relay is chosen
    first; guards that conflict with that are passed over, and of the next `guards` in the list one
    is chosen, each equally often (guard-spec, "Picking guards for circuits";
    `select_primary_guard_for_circuit()` in Tor's entrynodes.c). So circuits of a client that
    can't have its first guard have the same other one.
    """
    lists = first[:, None]
    chosen = drawn.guards.copy()
    to_pass = _generator(f"which guard {seed}").integers(guards, size=len(chosen))
    places = np.arange(len(chosen))
    while True:
        column = lists.shape[1] - 1
        chosen[places] = lists[clients[places], column]
        conflicting = _conflicting(chosen, [drawn.lasts], places, positions)
        settled = ~conflicting & (to_pass[places] == 0)
        to_pass[places[~conflicting]] -= 1
        places = places[~settled]
        if not len(places):
            return chosen
        wanting = np.unique(clients[places])
        lists = _longer(lists, wanting, positions.guard, f"guard {column + 2} {seed}")


def _longer(lists: Relays, wanting: NDArray[np.int64], chances: Floats, purpose: str) -> Relays:
    """The lists with one more guard for some clients, of those that they don't have yet."""
    generator = _generator(purpose)
    longer = np.concatenate([lists, np.full((len(lists), 1), -1, dtype=lists.dtype)], axis=1)
    for _ in range(_MOST_ATTEMPTS):
        longer[wanting, -1] = generator.choice(len(chances), len(wanting), p=chances)
        again = (longer[wanting, :-1] == longer[wanting, -1:]).any(axis=1)
        wanting = wanting[again]
        if not len(wanting):
            return longer
    raise InputError(_TOO_FEW)


def _middles_kept_apart(drawn: DrawnCircuits, positions: Positions, seed: int) -> DrawnCircuits:
    """Draw middles again until none conflicts with another relay of its circuit.

    The order is Tor's: the last relay stays, then comes the guard, then the middle (path-spec,
    "Choosing a path").
    """
    generator = _generator(f"middle again {seed}")
    middles = drawn.middles.copy()
    places = np.arange(len(middles))
    for _ in range(_MOST_ATTEMPTS):
        others = [drawn.lasts, drawn.guards]
        places = places[_conflicting(middles, others, places, positions)]
        if not len(places):
            return drawn._replace(middles=middles)
        middles[places] = generator.choice(len(positions.middle), len(places), p=positions.middle)
    raise InputError(_TOO_FEW)


def _conflicting(
    relays: Relays, others: list[Relays], places: NDArray[np.int64], positions: Positions
) -> NDArray[np.bool_]:
    """Whether the relay of each of these circuits may not be with another one of its circuit."""
    conflicting = np.zeros(len(places), dtype=np.bool_)
    for numbers in positions.kept_apart:
        own = numbers[relays[places]]
        for other in others:
            conflicting |= (own == numbers[other[places]]) & (own >= 0)
    return conflicting
