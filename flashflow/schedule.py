"""When each relay is measured: as fast as a team can, or at secret times of a period (4.3, 7).

Relays are numbered. A slot has room for as many measurements as its team has capacity for.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.basics.seeds import derived_seed

Floats = NDArray[np.float64]


def greedy_slots(needs: Sequence[float], team: float) -> list[list[int]]:
    """The relays of each slot when a team measures all of them as fast as it can (section 7).

    A slot takes the largest relay that it still has room for, then the next.

    Args:
        needs: what each relay needs of the team: f times its estimate.
        team: the capacity of all measurers together.

    Raises:
        ValueError: the team is too small for a relay.
    """
    _check(needs, team)
    waiting = sorted(range(len(needs)), key=lambda one: needs[one])
    sizes = [needs[one] for one in waiting]
    slots: list[list[int]] = []
    while waiting:
        left, taken = team, []
        while place := bisect_right(sizes, left):
            left -= sizes.pop(place - 1)
            taken.append(waiting.pop(place - 1))
        slots.append(taken)
    return slots


@dataclass(frozen=True, eq=False)
class Period:
    """A period's schedule for several teams.

    Attributes:
        slots: for each relay the slot in which each team measures it, a row for each relay; -1 if
            a team has no slot for it.
        room: what each team has left in each slot, a row for each team.
    """

    slots: NDArray[np.int64]
    room: Floats

    @property
    def left_out(self) -> int:
        """The measurements for which there was no slot."""
        return int((self.slots < 0).sum())


def random_period(needs: Sequence[float], slots: int, teams: Sequence[float], seed: int) -> Period:
    """Give each old relay a random slot of each team, by a seed that only authorities know.

    All slots with enough room are equally likely, and no two teams measure a relay in the same one.
    The paper doesn't say in which order relays choose; here large ones come first, as they fit into
    fewer slots.

    Args:
        needs: what each relay needs of a team.
        teams: the capacity of each team.
        seed: the secret; random numbers are hashes of it.

    Raises:
        ValueError: a team is too small for a relay.
    """
    _check(needs, min(teams))
    room = np.repeat(np.array(teams, dtype=np.float64)[:, None], slots, axis=1)
    chosen = np.full((len(needs), len(teams)), -1, dtype=np.int64)
    for relay in sorted(range(len(needs)), key=lambda one: -needs[one]):
        for team in range(len(teams)):
            is_free = room[team] >= needs[relay]
            is_free[chosen[relay, :team]] = False
            free = np.flatnonzero(is_free)
            if free.size:
                draw = derived_seed(seed, "flashflow slot", str(relay), str(team))
                chosen[relay, team] = free[draw % free.size]
                room[team, chosen[relay, team]] -= needs[relay]
    return Period(chosen, room)


def new_relay_slots(room: Floats, arrivals: Sequence[int], need: float) -> Iterator[int | None]:
    """The slot of each new relay: the first with room after it appeared, in order of arrival.

    Args:
        room: what a team has left in each slot; what new relays take is taken off.
        arrivals: for each relay the slot at whose end it appeared, in order.
        need: what each takes: f times the guess for new relays.

    Yields:
        The slot; None if the period has no room.
    """
    for arrival in arrivals:
        free = np.flatnonzero(room[arrival + 1 :] >= need)
        if not free.size:
            yield None
            continue
        slot = arrival + 1 + int(free[0])
        room[slot] -= need
        yield slot


def _check(needs: Sequence[float], team: float) -> None:
    if needs and max(needs) > team:
        raise ValueError(f"a relay needs {max(needs):g} bit/s, and the team has {team:g}")
