"""The rules by which a stream gets one of its client's open circuits.

The first nine are those of section 5 of "Circuit selection", under their initials. `KeepCircuits`
keeps the circuits among which they choose.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from testbed.basics.distance import great_circle_km
from testbed.inside.policies.interface import Circuit, Place

MEASUREMENTS = 5
"""How many of a circuit's latest round trips count."""
MOST_CONGESTION_S = 0.5
"""The congestion time above which CAR gives a circuit no new streams."""


@dataclass(frozen=True)
class Candidate:
    """An open circuit, with what the rules compare.

    Attributes:
        round_trips_s: the oldest first. A circuit without any has a round trip and a congestion
            time of 0, so that it is tried before others.
        places: the client, the three relays, and the server if it is known; None in a network
            without places.
        lot: drawn for this circuit and this stream, in [0, 1).
    """

    circuit: Circuit
    round_trips_s: Sequence[float] = ()
    places: Sequence[Place] | None = None
    lot: float = 0.0


Metric = Callable[[Candidate], float]
Pick = Callable[[Sequence[Candidate]], Candidate]


def round_trip_s(of: Candidate) -> float:
    """The mean of the last five round trips."""
    return fmean(of.round_trips_s[-MEASUREMENTS:]) if of.round_trips_s else 0.0


def congestion_s(of: Candidate) -> float:
    """The mean of the last five congestion times: round trips minus the circuit's least."""
    return round_trip_s(of) - min(of.round_trips_s, default=0.0)


def length_km(of: Candidate) -> float:
    """Client to guard, guard to middle, middle to exit, exit to server (equation 1)."""
    places = of.places or ()
    return sum(map(great_circle_km, places, places[1:]))


def build_time_s(of: Candidate) -> float:
    """How long the circuit took to build; one that isn't known to have been built comes last."""
    return float("inf") if of.circuit.build_s is None else of.circuit.build_s


def tors_preference(of: Candidate) -> bool:
    """What decides in Tor: it goes on with a circuit that it has used, the oldest of several.

    circuit_is_better() would prefer the one that was first used last, and otherwise the youngest;
    but it asks for the purpose of the stream's connection, which isn't set for a client's streams
    (0.4.9.11). So only the stream isolation is compared, and of circuits alike the first in Tor's
    list is kept: the oldest, unless circuits that closed have left others out of order.
    """
    return of.circuit.first_used_s is None


def lowest(metric: Metric) -> Pick:
    """The circuit with the lowest value; the oldest of several."""
    return lambda candidates: min(candidates, key=metric)


def best_two(first: Metric, second: Metric) -> Pick:
    """The two with the lowest values of the first metric, and of these the lower by the second."""
    return lambda candidates: min(sorted(candidates, key=first)[:2], key=second)


def drawn(number: int, metric: Metric) -> Pick:
    """Of so many at random, the one with the lowest value."""
    return lambda candidates: min(sorted(candidates, key=lambda one: one.lot)[:number], key=metric)


def _always(_candidate: Candidate) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """A rule, and what it needs.

    Attributes:
        accepts: whether a circuit may have new streams at all.
        of_round_trips: whether it needs round trips.
        of_congestion: whether it needs several of each circuit, as one alone is its own least.
    """

    pick: Pick
    accepts: Callable[[Candidate], bool] = field(default=_always)
    of_round_trips: bool = False
    of_congestion: bool = False


def _rule(pick: Pick, needs: str = "", accepts: Callable[[Candidate], bool] = _always) -> Rule:
    """A rule that needs congestion times (C), round trips (R), both or none."""
    return Rule(pick, accepts, bool(needs), "C" in needs)


RULES = {
    "c": _rule(lowest(congestion_s), "C"),
    "l": _rule(lowest(length_km)),
    "rtt": _rule(lowest(round_trip_s), "R"),
    "c-l": _rule(best_two(congestion_s, length_km), "C"),
    "rtt-l": _rule(best_two(round_trip_s, length_km), "R"),
    "l-c": _rule(best_two(length_km, congestion_s), "C"),
    "l-rtt": _rule(best_two(length_km, round_trip_s), "R"),
    "rtt-c": _rule(best_two(round_trip_s, congestion_s), "RC"),
    "c-rtt": _rule(best_two(congestion_s, round_trip_s), "CR"),
    "car": _rule(drawn(3, congestion_s), "C", lambda one: congestion_s(one) <= MOST_CONGESTION_S),
    "tor": _rule(lowest(tors_preference)),
    "random": _rule(lowest(lambda one: one.lot)),
    "best-of-two": _rule(drawn(2, round_trip_s), "R"),
    "build-time": _rule(lowest(build_time_s)),
}
