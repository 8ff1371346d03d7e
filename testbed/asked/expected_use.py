"""How busy the relays of a drawn network are expected to be, when clients share them.

An estimate from the plan alone; runs measure it.
"""

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from testbed.asked.expected_load import expected_cycles, position_chances
from testbed.plan.model import Plan

WIRE_BYTES_PER_BYTE = 1.14
"""What a relay sends for each byte that it relays (`wire_bytes_per_byte` of runs, in README)."""

_ROUNDS = 100
"""Of the iteration, each of which goes half of the way: more change nothing."""
_HALVINGS = 24
_LEAST_SHARE, _GREATEST_SHARE = 1e-4, 1e3
"""Of relays' own rates: between them lies the one that is looked for."""

Numbers = NDArray[numpy.float64]


@dataclass(frozen=True)
class _Clients:
    """The clients' cycles: what they load in MB, and how long each part of it takes in seconds."""

    load_mb: Numbers
    under_way_s: Numbers
    otherwise_s: Numbers


@dataclass(frozen=True)
class _Relays:
    """Names, rates in MB/s of payload, and the chances of each relay by position."""

    names: tuple[str, ...]
    rate_mb_per_s: Numbers
    chances: tuple[Numbers, ...]


def relays_use(plan: Plan) -> dict[str, float]:
    """The share of its rate that each relay of a drawn network is expected to send.

    All that clients receive passes a relay in each position: this is the mean over all choices of
    paths, of which a run has one. A client takes as long as it would alone, or as its path's
    slowest relay takes: there it gets what other clients leave, and a fair share at least.
    """
    relays = _relays(plan)
    return dict(zip(relays.names, map(float, _uses(_clients(plan), relays, 1.0)), strict=True))


def relay_rates_for(plan: Plan, use: float) -> float:
    """The `network.relay_rates` with which the busiest relay is expected to have this use.

    It is above 1 if the relays' own rates are too low for that.

    Args:
        use: between 0 and 1.
    """
    clients, relays = _clients(plan), _relays(plan)
    least, greatest = _LEAST_SHARE, _GREATEST_SHARE
    for _ in range(_HALVINGS):
        share = math.sqrt(least * greatest)
        if max(_uses(clients, relays, share)) > use:
            least = share
        else:
            greatest = share
    return (plan.relay_rates or 1.0) * math.sqrt(least * greatest)


def _clients(plan: Plan) -> _Clients:
    cycles = list(expected_cycles(plan).values())
    return _Clients(
        load_mb=numpy.array([one.load_bytes / 1e6 for one in cycles]),
        under_way_s=numpy.array([one.under_way_s for one in cycles]),
        otherwise_s=numpy.array([one.opening_s + one.pause_s for one in cycles]),
    )


def _relays(plan: Plan) -> _Relays:
    rates = {
        relay.name: relay.rate_up_bit_per_s / 8e6 / WIRE_BYTES_PER_BYTE
        for relay in plan.of_kind("relay")
        if relay.rate_up_bit_per_s
    }
    return _Relays(
        names=tuple(rates),
        rate_mb_per_s=numpy.array(list(rates.values())),
        chances=tuple(
            numpy.array([chances.get(name, 0.0) for name in rates])
            for chances in position_chances(plan).values()
        ),
    )


def _uses(clients: _Clients, relays: _Relays, share: float) -> Numbers:
    """Each relay's use, if all have this share of their rates: a fixed point."""
    rates = share * relays.rate_mb_per_s
    visits: Numbers = sum(relays.chances, numpy.zeros(len(rates)))
    others = 1 - 1 / len(clients.load_mb)
    taking_s = clients.under_way_s
    for _ in range(_ROUNDS):
        cycle_s = clients.otherwise_s + taking_s
        used = visits * float((clients.load_mb / cycle_s).sum())
        at_once = visits * float((taking_s / cycle_s).sum())
        left = numpy.maximum(rates / (1 + others * at_once), rates - others * used)
        taking_s = (taking_s + _taking_s(clients, relays, left)) / 2
    cycle_s = clients.otherwise_s + taking_s
    return numpy.minimum(visits * float((clients.load_mb / cycle_s).sum()) / rates, 1.0)


def _taking_s(clients: _Clients, relays: _Relays, left: Numbers) -> Numbers:
    """How long each client's load takes, as a mean over paths with these rates of their relays."""
    order = numpy.argsort(left)
    left = left[order]
    at_least = numpy.ones(len(left) + 1)
    at_least[-1] = 0
    for chances in relays.chances:
        at_least[:-1] *= numpy.cumsum(chances[order][::-1])[::-1]
    chance = at_least[:-1] - at_least[1:]  # that this relay is the path's slowest
    slower = numpy.searchsorted(left, clients.load_mb / clients.under_way_s)
    below = numpy.concatenate(([0.0], numpy.cumsum(chance)))[slower]
    s_per_mb = numpy.concatenate(([0.0], numpy.cumsum(chance / left)))[slower]
    taking_s: Numbers = clients.load_mb * s_per_mb + clients.under_way_s * (1 - below)
    return taking_s
