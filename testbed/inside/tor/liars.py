"""Relays that lie about round trips: what a client measures of a circuit on which there are some.

Nothing is changed at a relay: the client is told another number than it measured.
"""

from dataclasses import replace
from itertools import accumulate, pairwise

from testbed.inside.policies.interface import Circuit, RoundTrip
from testbed.plan.build_times import RoundTrips
from testbed.plan.model import Plan


class Liars:
    """The lying relays of a plan, as one client meets them.

    A liar knows the cells by which clients measure, and sends them ahead of all others that wait at
    it. So a round trip loses the time for which they would have waited there; the time that the
    links' delays take it can't shorten, as it can't answer in place of the relays behind it, whose
    keys it lacks. A lying exit also answers a BEGIN before it is connected to the server.
    """

    def __init__(self, plan: Plan, client: str) -> None:
        self._names = frozenset(plan.policy.liars)
        self._hide = plan.policy.liars_hide
        self._client, self._server = client, plan.server_of(client)
        self._links = RoundTrips(plan)

    def told(self, circuit: Circuit) -> Circuit:
        """A circuit as its client takes it to be: with shorter round trips, and built sooner."""
        lying = sum(relay in self._names for relay in circuit.path)
        if not lying:
            return circuit
        hidden = min(1.0, lying * self._hide)
        ways_s = [
            self._links.between_ms(*ends) / 1000 for ends in pairwise((self._client, *circuit.path))
        ]
        server_s = self._links.between_ms(circuit.path[-1], self._server) / 1000
        sooner_s = server_s if circuit.path[-1] in self._names else 0.0

        def shorter(of: RoundTrip) -> RoundTrip:
            if of.of == "stream":
                took_s = _without(of.took_s, sum(ways_s) + server_s, hidden) - sooner_s
            else:
                took_s = _without(of.took_s, sum(ways_s), hidden)
            return replace(of, took_s=max(took_s, 0.0))

        # Each hop's answer comes from that hop (plan.build_times).
        building_s = sum(accumulate(ways_s))
        return replace(
            circuit,
            build_s=circuit.build_s and _without(circuit.build_s, building_s, hidden),
            round_trips=tuple(map(shorter, circuit.round_trips)),
        )


def _without(took_s: float, least_s: float, hidden: float) -> float:
    """A time without a share of what is above the least that the links' delays allow."""
    return took_s - hidden * max(0.0, took_s - least_s)
