"""How much work each node of a plan is expected to have: what clients load, and who carries it.

An estimate from the plan alone, by which a network can be divided; runs measure the real load.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from testbed.inside.traffic.models import MODELS
from testbed.plan.build_times import RoundTrips
from testbed.plan.model import Plan, PlannedNode
from testbed.plan.positions import Position, position_weights

CPU_S_PER_MB = 0.2
"""Processor time for each MB that clients receive (docs/performance.md, "Networks")."""

CALLS_PER_MB: Mapping[str, int] = {
    "client": 2461,
    "guard": 2499,
    "middle": 2294,
    "exit": 1009,
    "server": 27,
}
"""System calls for such an MB by the node's place in the circuit, its programs together, as
`./run.py bench` counts them. They divide the processor time among the nodes."""

STREAM_WINDOW_BYTES = 500 * 498
"""What a stream may have under way (Tor's fixed window of 500 cells)."""

OPENING_ROUND_TRIPS = 2
"""Before a transfer's first byte: the stream's BEGIN cell, and then the request."""

Chances = Mapping[Position, Mapping[str, float]]
"""The probability of each relay in each position of a circuit."""


def expected_load(plan: Plan) -> dict[str, float]:
    """Each node's expected processor time, in seconds for each virtual second with traffic.

    A client with a path loads the relays on it; otherwise all relays are loaded by the probability
    that Tor takes them. Authorities and routers have no load of their own.
    """
    total_calls = sum(CALLS_PER_MB.values())
    cost_s = {place: CPU_S_PER_MB * calls / total_calls for place, calls in CALLS_PER_MB.items()}
    load_s = dict.fromkeys((node.name for node in plan.nodes), 0.0)
    chances = {} if plan.paths else position_chances(plan)
    for client, rate_mb_per_s in expected_rates(plan).items():
        load_s[client] += rate_mb_per_s * cost_s["client"]
        load_s[plan.server_of(client)] += rate_mb_per_s * cost_s["server"]
        for place, relays in _of_client(plan, client, chances).items():
            for relay, chance in relays.items():
                load_s[relay] += rate_mb_per_s * chance * cost_s[place]
    return load_s


@dataclass(frozen=True)
class Cycle:
    """What a client does again and again, if other clients leave it all links.

    Attributes:
        load_bytes: of payload that it receives or sends.
        opening_s: until the first byte; under_way_s: until the last one; pause_s: until the next.
    """

    load_bytes: int
    opening_s: float
    under_way_s: float
    pause_s: float

    @property
    def rate_mb_per_s(self) -> float:
        """The mean rate over the whole cycle."""
        cycle_s = self.opening_s + self.under_way_s + self.pause_s
        return self.load_bytes / cycle_s / 1e6


def expected_rates(plan: Plan) -> dict[str, float]:
    """What each client is expected to load, in MB/s, if other clients left it all links."""
    return {client: cycle.rate_mb_per_s for client, cycle in expected_cycles(plan).items()}


def expected_cycles(plan: Plan) -> dict[str, Cycle]:
    """Each client's cycle, by its model's size and pauses, and by what limits a stream.

    That are its window on the circuit's round trip, and the rates of the client's links.
    """
    chances = {} if plan.paths else position_chances(plan)
    round_trip_s = _by_path(plan) if plan.paths else _by_chance(plan, chances)
    return {client: _cycle(plan, client, round_trip_s(client)) for client in plan.clients}


def _cycle(plan: Plan, client: str, round_trip_s: float) -> Cycle:
    model = MODELS[plan.traffic_by_client[client]]
    path = plan.paths.get(client, ())
    way = [client, *path, plan.server_of(client)]
    pairs = {frozenset(pair) for pair in pairwise(way)} if path else set()
    rates = [
        shape.rate_bit_per_s / 8
        for link in plan.links
        if frozenset(link.ends) in pairs or (not path and client in link.ends)
        for shape in (link.there, link.back)
        if shape.rate_bit_per_s
    ]
    window_bytes = STREAM_WINDOW_BYTES * model.at_once
    under_way_s = model.load_bytes * max(
        round_trip_s / window_bytes,
        1 / min(rates, default=1e9),
        1 / (model.rate_byte_per_s or 1e9),
    )
    pause_s = fmean(model.pauses_s) if model.pauses_s else 0.0
    return Cycle(model.load_bytes, OPENING_ROUND_TRIPS * round_trip_s, under_way_s, pause_s)


def _of_client(plan: Plan, client: str, chances: Chances) -> Chances:
    """The relays that carry a client's circuits, by position."""
    if client not in plan.paths:
        return chances
    guard, middle, last = plan.paths[client]
    return {"guard": {guard: 1.0}, "middle": {middle: 1.0}, "exit": {last: 1.0}}


def position_chances(plan: Plan) -> Chances:
    """The probability that Tor takes a relay in a position of a circuit."""
    relays = plan.of_kind("relay")
    return {
        "guard": _chance_of([one for one in relays if "guard" in one.flags], "guard", plan),
        "middle": _chance_of(relays, "middle", plan),
        "exit": _chance_of([one for one in relays if "exit" in one.flags], "exit", plan),
    }


def _chance_of(relays: Sequence[PlannedNode], position: Position, plan: Plan) -> dict[str, float]:
    """The probability of each relay in a position; all are equally likely without any weight."""
    weights = position_weights(relays, position, plan.bandwidth_weights)
    if not any(weights):
        weights = [1] * len(relays)
    return {
        relay.name: weight / sum(weights)
        for relay, weight in zip(relays, weights, strict=True)
        if weight
    }


def _by_path(plan: Plan) -> Callable[[str], float]:
    """The round trip of each client's circuit and on to its server, in seconds."""
    both_ms = {
        frozenset(link.ends): link.there.delay_ms + link.back.delay_ms for link in plan.links
    }

    def round_trip_s(client: str) -> float:
        way = (client, *plan.paths[client], plan.server_of(client))
        return sum(both_ms[frozenset(pair)] for pair in pairwise(way)) / 1000

    return round_trip_s


def _by_chance(plan: Plan, chances: Chances) -> Callable[[str], float]:
    """The mean round trip of a client's circuits and on to its server, in seconds."""
    round_trips = RoundTrips(plan)
    relays_ms = _mean_ms(round_trips, chances["guard"], chances["middle"]) + _mean_ms(
        round_trips, chances["middle"], chances["exit"]
    )

    def round_trip_s(client: str) -> float:
        first_ms = _mean_ms(round_trips, {client: 1.0}, chances["guard"])
        last_ms = _mean_ms(round_trips, chances["exit"], {plan.server_of(client): 1.0})
        return (first_ms + relays_ms + last_ms) / 1000

    return round_trip_s


def _mean_ms(
    round_trips: RoundTrips, some: Mapping[str, float], others: Mapping[str, float]
) -> float:
    """The mean round trip between two nodes, by the probability of each."""
    pairs = [
        (chance * other_chance, round_trips.between_ms(one, other))
        for one, chance in some.items()
        for other, other_chance in others.items()
        if one != other
    ]
    return sum(chance * ms for chance, ms in pairs) / sum(chance for chance, _ in pairs)
