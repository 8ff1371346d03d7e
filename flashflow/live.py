"""The schedule of the whole live network, from a consensus (section 7).

A relay's capacity is not in a consensus. It is taken from the weight as in drawn networks: the rate
of relays of that weight (places/relay-rates.csv).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import median
from typing import Any

import numpy as np

from flashflow.allocation import guesses
from flashflow.parameters import Parameters
from flashflow.schedule import greedy_slots, new_relay_slots, random_period
from testbed.basics.seeds import derived_seed
from testbed.network.consensus import Consensus
from testbed.network.places import Places

NEW_RELAY_QUANTILE = 0.75
"""The quantile of all results that is the first guess of a new relay's capacity."""

NEW_RELAYS = 3
MOST_NEW_RELAYS = 98
"""The new relays of an hour's consensus: the published median, and the greatest number."""


@dataclass(frozen=True)
class Schedule:
    """The schedule of a network, in numbers.

    Attributes:
        network: the consensus's name.
        total_bit_per_s, largest_bit_per_s: the relays' capacities, all together and the greatest.
        team_bit_per_s: the capacity of a team.
        least_slots: as many as a team needs that is always busy with all its capacity.
        slots: as many as the greedy schedule has, which measures each relay once.
        left_out: measurements for which the random schedule of a period has no slot.
        busy_percent: the share of the teams' capacity that the random schedule takes.
        new_guess_bit_per_s: the first guess for a new relay.
        new_first_time_percent: the share of relays for which that guess is enough.
        new_median_wait_s, new_longest_wait_s: until the new relays of an hour are all measured for
            the first time, from their appearance at the end of a slot, over the hours; None if the
            period has no room for them. A team measures them beside its random schedule.
    """

    network: str
    relays: int
    total_bit_per_s: float
    largest_bit_per_s: float
    team_bit_per_s: float
    least_slots: int
    slots: int
    slot_s: int
    left_out: int
    busy_percent: float
    new_guess_bit_per_s: float
    new_first_time_percent: float
    new_median_wait_s: float | None
    new_longest_wait_s: float | None

    @property
    def hours(self) -> float:
        """How long the greedy schedule takes."""
        return self.slots * self.slot_s / 3600

    def record(self) -> dict[str, Any]:
        """The numbers as plain data, for programs."""
        return {**asdict(self), "hours": self.hours}


def capacities(consensus: Consensus, places: Places) -> list[float]:
    """Each relay's capacity in bit/s; a weight of 0 counts as the least one, 1."""
    by_weight = {
        weight: float(places.relay_rate_bit_per_s(max(weight, 1)))
        for weight in consensus.relays["weight"].unique().to_list()
    }
    return [by_weight[weight] for weight in consensus.relays["weight"].to_list()]


def schedule(
    network: str,
    relays: Sequence[float],
    team: float,
    by: Parameters,
    *,
    teams: int = 1,
    seed: int = 1,
) -> Schedule:
    """Compute a network's schedule.

    Args:
        relays: the capacity of each relay, in bit/s.
        team: the capacity of a team, in bit/s.
        teams: the authorities that measure each relay, each with a team of its own.
        seed: the authorities' secret.

    Raises:
        ValueError: the team is too small for the largest relay.
    """
    needs = [by.excess * relay for relay in relays]
    greedy = greedy_slots(needs, team)
    period = random_period(needs, by.slots, [team] * teams, seed)
    whole = by.slots * team * teams
    busy = 100 * (1 - float(period.room.sum()) / whole)
    guess = float(np.quantile(np.array(relays), NEW_RELAY_QUANTILE))
    first_time = sum(len(list(guesses(relay, guess, by))) == 1 for relay in relays)
    arrivals = new_arrivals(by, seed)
    found = list(new_relay_slots(period.room[0], arrivals, by.excess * guess))
    last = {arrival: slot for arrival, slot in zip(arrivals, found, strict=True)}
    waits = [(slot - arrival) * by.slot_s for arrival, slot in last.items() if slot is not None]
    all_found = len(waits) == len(last)
    return Schedule(
        network=network,
        relays=len(relays),
        total_bit_per_s=sum(relays),
        largest_bit_per_s=max(relays),
        team_bit_per_s=team,
        least_slots=ceil(sum(needs) / team),
        slots=len(greedy),
        slot_s=by.slot_s,
        left_out=period.left_out,
        busy_percent=busy,
        new_guess_bit_per_s=guess,
        new_first_time_percent=100 * first_time / len(relays),
        new_median_wait_s=median(waits) if all_found else None,
        new_longest_wait_s=max(waits) if all_found else None,
    )


def new_arrivals(by: Parameters, seed: int) -> list[int]:
    """The slots at whose ends new relays appear: some in each hour, and once in the day many.

    When in an hour a consensus comes out, and which has the many, follows from the seed. The last
    hour has none.
    """
    hour = 3600 // by.slot_s
    hours = range(derived_seed(seed, "flashflow consensus") % hour, by.slots - hour, hour)
    many = hours[derived_seed(seed, "flashflow many new relays") % len(hours)]
    counts = {slot: MOST_NEW_RELAYS if slot == many else NEW_RELAYS for slot in hours}
    return [slot for slot, count in counts.items() for _ in range(count)]
