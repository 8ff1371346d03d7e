"""The relays of a drawn network measured in the lab: rounds of measurements until each holds (4).

A round is a machine that measures all relays whose last result doesn't hold yet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashflow.aggregation import capacity, second_totals
from flashflow.allocation import allocated, is_accepted, next_guess
from flashflow.lies import Lie, limits, patched
from flashflow.parameters import Parameters
from flashflow.schedule import greedy_slots
from testbed.basics.errors import InputError
from testbed.basics.toml_file import suggestion
from testbed.network.bandwidth_file import SEED, BandwidthFile, MeasuredRelay
from testbed.plan.measurement import Asked, Assignment, Measured, RelaySeconds
from testbed.plan.model import Plan, PlannedNode

MOST_ROUNDS = 8
"""Each doubles a guess at least, so that a relay's first one can be 1/128 of its capacity."""

AROUND_S = 5
"""How long clients' traffic is reported before and after each measurement, if there is any."""

BYTES_PER_WEIGHT = 1000
"""A weight of 1 in a consensus: a kB/s."""

Carry = Callable[[Asked], Measured]
"""Carries out some measurements."""


@dataclass(frozen=True)
class Outcome:
    """What is known of a relay in the end.

    Attributes:
        lie: how it lied.
        bit_per_s: its measured capacity; None if none could be measured. With several teams: the
            (low) median of those that have a result, as authorities take it, if that is most.
        teams_bit_per_s: each team's result.
        seconds_bit_per_s: what was measured in each second, whose median the capacity is.
        true_bit_per_s: the rate of its link, or of its processor if that is slower.
        background_bit_per_s: the mean of what it reported of its clients.
        background_seconds_bit_per_s: what it reported in each second.
        before_bit_per_s, after_bit_per_s: what it reported in the seconds around the measurement;
            empty where the network was idle.
        holds: whether the result is small enough for what its measurers had.
        problem: why it wasn't measured; "" if it was.
    """

    relay: str
    lie: Lie | None
    fingerprint: str
    bit_per_s: float | None
    seconds_bit_per_s: tuple[float, ...]
    true_bit_per_s: float
    teams_bit_per_s: tuple[float | None, ...]
    background_bit_per_s: float
    background_seconds_bit_per_s: tuple[int, ...]
    before_bit_per_s: tuple[int, ...]
    after_bit_per_s: tuple[int, ...]
    measurements: int
    checked: int
    holds: bool
    problem: str

    @property
    def error_percent(self) -> float | None:
        """How far the result is from what the relay can carry, which has headers, too."""
        if self.bit_per_s is None:
            return None
        return 100 * (self.bit_per_s / self.true_bit_per_s - 1)

    def record(self) -> dict[str, Any]:
        """The numbers as plain data, for programs."""
        return {**vars(self), "error_percent": self.error_percent}


def first_guesses(plan: Plan) -> dict[str, float]:
    """What a network's authorities take relays for before any measurement: their weights.

    Where relays have a share of their rates, they have this share of their weights.
    """
    bit_per_s = 8 * BYTES_PER_WEIGHT * (plan.relay_rates or 1.0)
    return {relay.name: bit_per_s * (relay.weight or 1) for relay in plan.of_kind("relay")}


def chosen_guesses(
    plan: Plan, relays: Sequence[str] = (), bit_per_s: int | None = None
) -> dict[str, float]:
    """First guesses of the relays that are to be measured.

    Args:
        relays: their names; all relays if there are none.
        bit_per_s: what each is taken for at first; None for `first_guesses`.

    Raises:
        InputError: the network has no relay of that name.
    """
    known = first_guesses(plan)
    for name in relays:
        if name not in known:
            raise InputError(f"--relays {name}: {suggestion(name, list(known))}")
    return {name: bit_per_s or known[name] for name in known if name in (relays or known)}


def measure_network(
    plan: Plan,
    team: Mapping[str, float],
    key: str,
    by: Parameters,
    sockets: int,
    carry_out: Carry,
    guesses: Mapping[str, float] | None = None,
    lies: Mapping[str, Lie] | None = None,
    number_of_team: int = 1,
) -> list[Outcome]:
    """Measure relays of a network.

    Args:
        plan: the network, with the team's measurers in it.
        team: each measurer's capacity, in bit/s.
        key: what measurers must know.
        sockets: the most connections to a relay.
        guesses: what each relay is taken for at first, in bit/s; default: `first_guesses` of all.
        lies: how relays lie, by their names.
        number_of_team: which of the authorities' teams this is.
    """
    lies, most = lies or {}, sum(team.values())
    rates = {relay.name: true_rate(relay) for relay in plan.of_kind("relay")}
    guesses = dict(guesses or first_guesses(plan))
    outcomes: dict[str, Outcome] = {}
    for number in range(1, MOST_ROUNDS + 1):
        given = {one: min(by.excess * guess, most) for one, guess in guesses.items()}
        asked = Asked(
            key=key,
            sockets=sockets,
            seconds=by.slot_s,
            check_probability=by.check_probability,
            around_s=AROUND_S if plan.traffic_by_client else 0,
            team=number_of_team,
            lies=patched(lies),
            limits_bit_per_s=limits(lies, rates, plan.seed, f"{number_of_team} {number}"),
            slots=_slots(given, team),
        )
        for one in carry_out(asked).relays:
            outcome = _outcome(one, rates[one.relay], given[one.relay], number, by)
            outcomes[one.relay] = replace(outcome, lie=lies.get(one.relay))
            if outcome.holds or outcome.bit_per_s is None or given[one.relay] == most:
                del guesses[one.relay]
            else:
                guesses[one.relay] = next_guess(outcome.bit_per_s, guesses[one.relay])
        if not guesses:
            break
    return [outcomes[one.name] for one in plan.of_kind("relay") if one.name in outcomes]


def combined(teams: Sequence[Sequence[Outcome]]) -> list[Outcome]:
    """What authorities with a team each know of the relays, from what each team has found."""
    return [_median_outcome(of_relay) for of_relay in zip(*teams, strict=True)]


def _median_outcome(teams: Sequence[Outcome]) -> Outcome:
    """A relay's outcome: that of the team with the median, with what all have found."""
    measured = sorted(
        (one for one in teams if one.bit_per_s is not None), key=lambda one: one.bit_per_s or 0
    )
    failed = [one for one in teams if one.bit_per_s is None]
    # As median_low: of an even number of results the lower one in the middle.
    chosen = failed[0] if len(failed) >= len(measured) else measured[(len(measured) - 1) // 2]
    return replace(
        chosen,
        teams_bit_per_s=tuple(one.bit_per_s for one in teams),
        measurements=sum(one.measurements for one in teams),
        checked=sum(one.checked for one in teams),
        holds=chosen.bit_per_s is not None and all(one.holds for one in measured),
        problem=next((one.problem for one in failed), ""),
    )


def _slots(
    given: Mapping[str, float], team: Mapping[str, float]
) -> tuple[tuple[Assignment, ...], ...]:
    """The relays of each slot, with what each measurer gives them."""
    relays = list(given)
    slots = []
    for numbers in greedy_slots(list(given.values()), sum(team.values())):
        residual = list(team.values())
        assigned = []
        for number in numbers:
            # By the order of additions the last relay may miss a fraction of a bit.
            shares = allocated(residual, min(given[relays[number]], sum(residual)))
            residual = [left - share for left, share in zip(residual, shares, strict=True)]
            by_measurer = dict(zip(team, shares, strict=True))
            assigned.append(Assignment(relay=relays[number], shares_bit_per_s=by_measurer))
        slots.append(tuple(assigned))
    return tuple(slots)


def _outcome(
    found: RelaySeconds, true_bit_per_s: float, allocation: float, number: int, by: Parameters
) -> Outcome:
    reports = [*found.echoed.values()], found.background, by.background_ratio
    result = None if found.problem else 8 * capacity(*reports)
    seconds = () if found.problem else tuple(8 * total for total in second_totals(*reports))
    return Outcome(
        relay=found.relay,
        lie=None,
        fingerprint=found.fingerprint,
        bit_per_s=result,
        seconds_bit_per_s=seconds,
        true_bit_per_s=true_bit_per_s,
        teams_bit_per_s=(result,),
        background_bit_per_s=8 * sum(found.background) / max(len(found.background), 1),
        background_seconds_bit_per_s=tuple(8 * one for one in found.background),
        before_bit_per_s=tuple(8 * one for one in found.background_before),
        after_bit_per_s=tuple(8 * one for one in found.background_after),
        measurements=number,
        checked=found.checked,
        holds=result is not None and is_accepted(result, allocation, by),
        problem=found.problem,
    )


def true_rate(node: PlannedNode) -> float:
    """What a relay can carry, in bit/s: it reads and writes each byte once."""
    rates = [float(node.rate_up_bit_per_s or 0), float(node.rate_down_bit_per_s or 0)]
    if node.processor and (
        ps := node.processor.read_ps_per_byte + node.processor.write_ps_per_byte
    ):
        rates.append(8e12 / ps)
    return min(rates)


def bandwidth_file(plan: Plan, outcomes: list[Outcome], unix_time: int) -> BandwidthFile:
    """The results as weights; relays without one are left out."""
    relays = tuple(
        MeasuredRelay(
            one.fingerprint, one.relay, max(round(one.bit_per_s / 8 / BYTES_PER_WEIGHT), 1)
        )
        for one in outcomes
        if one.bit_per_s is not None
    )
    return BandwidthFile(unix_time, relays, file_header(plan, "flashflow"))


def file_header(plan: Plan, scanner: str) -> dict[str, str]:
    """The header of a bandwidth file: which scanner measured which network."""
    return {
        "software": "hydra-testbed",
        "scanner": scanner,
        "scenario": plan.unchanged_scenario,
        SEED: str(plan.seed),
    }
