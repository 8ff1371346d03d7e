"""How long a client's circuits take to build in a drawn network, and what Tor learns from that.

Times are expected from the plan: delays of its links, weights of its relays, guards of the client.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from testbed.basics.seeds import derived_seed
from testbed.plan.choices import PLAIN_CONNECTIONS
from testbed.plan.model import Plan, PlannedNode
from testbed.plan.positions import Position, position_weights

TIMES = 1000
"""How many build times a client remembers at most (CBT_NCIRCUITS_TO_OBSERVE): 2.5 days of use."""
BIN_MS = 10
"""Tor keeps times as the middles of bins of this width (CBT_BIN_WIDTH)."""
HANDSHAKE_ROUND_TRIPS = 5
"""Before a new connection carries a CREATE cell: TCP's handshake, that of TLS 1.3, from VERSIONS to
NETINFO (tor-spec, "Negotiating and initializing connections"); and by Nagle's algorithm VERSIONS
waits for an acknowledgement of TLS's last message, the CREATE cell for one of NETINFO."""
COUNTED_BY_CLIENT_ROUND_TRIPS = 1
"""What of that a client counts if the connection is its own: its clock starts when it hands the
CREATE cell to the open connection (circuit_deliver_create_cell() in Tor's circuitbuild.c)."""
PLAIN_HANDSHAKE_ROUND_TRIPS = 2
"""Without TLS, as by plain-relay-connections.patch: TCP's, and from VERSIONS to NETINFO."""
PER_CIRCUIT = "PerCircuitConnections"
"""The torrc option of the patch with these connections."""

_QUANTILE_PERCENT = 80
_MODES = 10


class RoundTrips:
    """The round trips between hosts by the plan's links, without waiting in queues."""

    def __init__(self, plan: Plan) -> None:
        self._ways_ms: dict[frozenset[str], float] = {}
        self._access: dict[str, tuple[str, float]] = {}
        for link in plan.links:
            both_ms = link.there.delay_ms + link.back.delay_ms
            if link.is_way:
                self._ways_ms[frozenset(link.ends)] = both_ms
            else:
                host, router = link.ends
                self._access[host] = router, both_ms

    def between_ms(self, host: str, other: str) -> float:
        """The round trip between two hosts; KeyError if there is no way between their sites."""
        (site, own_ms), (other_site, others_ms) = self._access[host], self._access[other]
        way_ms = 0.0 if site == other_site else self._ways_ms[frozenset((site, other_site))]
        return own_ms + way_ms + others_ms


class BuildTimes:
    """The expected build times of the clients of a drawn network."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._round_trips = RoundTrips(plan)
        relay_lines = {**plan.tor.torrc_all, **plan.tor.torrc_relay}
        client_lines = {**plan.tor.torrc_all, **plan.tor.torrc_client}
        plain = relay_lines.get(PLAIN_CONNECTIONS) == ["1"]
        between_relays = PLAIN_HANDSHAKE_ROUND_TRIPS if plain else HANDSHAKE_ROUND_TRIPS
        self._are_shared = plan.tor.connection_rule.most is not None
        own = client_lines.get(PER_CIRCUIT) == ["1"]
        self._opened_by_client = COUNTED_BY_CLIENT_ROUND_TRIPS if own else 0
        self._opened_by_relay = 0 if self._are_shared else between_relays
        relays = plan.of_kind("relay")
        exits = [relay for relay in relays if "exit" in relay.flags]
        guards = [relay for relay in relays if "guard" in relay.flags]
        self._guards = _Choice(guards, "guard", plan.bandwidth_weights)
        self._middles = _Choice(relays, "middle", plan.bandwidth_weights)
        self._exits = _Choice(exits, "exit", plan.bandwidth_weights)

    def of(self, client: str, guards: Sequence[str]) -> list[int]:
        """`TIMES` build times of a client, in ms, of paths drawn by the run's seed.

        As in Tor, exit, guard and middle are chosen in this order, all different: the guard among
        the client's with equal probabilities, the others by weight. Each time is the middle of its
        bin, as Tor keeps it.

        Args:
            guards: the client's, best first; any guard by its weight if there is none.
        """
        random = Random(derived_seed(self._plan.seed, "build times", client))
        return [
            _in_bin(self.time_ms(client, self.path(random, guards), random.random))
            for _ in range(TIMES)
        ]

    def path(self, random: Random, guards: Sequence[str]) -> tuple[str, str, str]:
        """A path's guard, middle and exit; for `guards` see `of`."""
        last = self._exits.draw(random, ())
        usable = [guard for guard in guards if guard != last]
        guard = random.choice(usable) if usable else self._guards.draw(random, (last,))
        return guard, self._middles.draw(random, (guard, last)), last

    def time_ms(
        self, client: str, path: tuple[str, str, str], waited: Callable[[], float] = lambda: 0.0
    ) -> float:
        """How long a circuit takes from its first CREATE cell to the last CREATED cell.

        Each hop's answer comes from that hop, so the first link is crossed three times there and
        back, the second one twice (Tor's circuit_expire_building()). On a shared connection relays
        wait before they send a cell to each other, as earlier ones aren't acknowledged yet (Nagle's
        algorithm). With a connection for each circuit, each relay opens one to the next hop first.

        Args:
            waited: how long a relay waits before a cell, in round trips of its link. It is asked
                for each cell.
        """
        guard, middle, last = path
        first_ms, second_ms, third_ms = (
            self._round_trips.between_ms(*ends)
            for ends in ((client, guard), (guard, middle), (middle, last))
        )
        second_shared, third_shared = (
            self._are_shared or not self._plan.tor.holds_between(*ends)
            for ends in ((guard, middle), (middle, last))
        )
        first = 3 + self._opened_by_client
        second = 2 + self._added(second_shared, 4, waited)
        third = 1 + self._added(third_shared, 2, waited)
        return first * first_ms + second * second_ms + third * third_ms

    def _added(self, shared: bool, cells: int, waited: Callable[[], float]) -> float:
        """The round trips that a link adds: waiting for some cells, or opening a connection."""
        return sum(waited() for _ in range(cells)) if shared else self._opened_by_relay


class _Choice:
    """A choice among relays by their weights for a position."""

    def __init__(
        self, relays: Sequence[PlannedNode], position: Position, weights: Mapping[str, int]
    ) -> None:
        self._names = [relay.name for relay in relays]
        own = position_weights(relays, position, weights)
        # Without any weight all are equally likely, as in Tor.
        self._cumulated = list(accumulate(own if any(own) else [1] * len(relays)))

    def draw(self, random: Random, taken: Sequence[str]) -> str:
        """A relay's name that isn't taken; relays without weight are never drawn."""
        for _ in range(10_000):
            (name,) = random.choices(self._names, cum_weights=self._cumulated)
            if name not in taken:
                return name
        return next(name for name in self._names if name not in taken)


@dataclass(frozen=True)
class Learned:
    """The timeout that Tor learns from build times (path-spec, "Learning when to give up").

    Attributes:
        total: how many times there are.
        least_ms, shape: the parameters Xm and alpha of a Pareto distribution.
        timeout_ms: the time within which 80 % of the circuits are built by that distribution; at
            most the longest time.
    """

    total: int
    least_ms: int
    shape: float
    timeout_ms: float


def learned(times_ms: Sequence[int], consensus_params: Mapping[str, int]) -> Learned:
    """What Tor learns from build times, as in its circuitstats.c.

    Xm is the mean of the times in the most frequent bins; of equally frequent ones the first are
    taken. Alpha is the maximum likelihood estimate, for which times below Xm count as Xm.

    Args:
        times_ms: middles of bins.
        consensus_params: `cbtquantile` and `cbtnummodes`, in per cent and bins; 80 and 10 if they
            aren't there.
    """
    bins = Counter(times_ms)
    frequent = sorted(bins, key=lambda time_ms: (-bins[time_ms], time_ms))
    modes = frequent[: consensus_params.get("cbtnummodes", _MODES)]
    least_ms = sum(mode * bins[mode] for mode in modes) // sum(bins[mode] for mode in modes)
    logarithms = math.fsum(math.log(max(time_ms, least_ms) / least_ms) for time_ms in times_ms)
    longest_ms = max(times_ms)
    if not logarithms:
        return Learned(len(times_ms), least_ms, math.inf, min(least_ms, longest_ms))
    shape = len(times_ms) / logarithms
    left = 1 - consensus_params.get("cbtquantile", _QUANTILE_PERCENT) / 100
    return Learned(
        len(times_ms), least_ms, shape, min(least_ms / left ** (1 / shape), float(longest_ms))
    )


def _in_bin(time_ms: float) -> int:
    return int(time_ms // BIN_MS) * BIN_MS + BIN_MS // 2
