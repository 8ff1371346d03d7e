"""Whether clients give up slow circuits after the time that they have learned."""

from collections.abc import Iterator
from statistics import fmean

from stem import TimeoutSetType
from stem.response.events import BuildTimeoutSetEvent

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running
from testbed.inside.tor.own_choice import OwnChoice
from testbed.plan.build_times import Learned

TOLERANCE = 0.05
"""Tor tells the timeout only after a circuit whose own time counts too, as one of a thousand."""


async def before(running: Running) -> list[Check]:
    """Compare the first timeout that each client's Tor has set with what it should have learned."""
    if not running.plan.policy.learn_timeouts:
        return []
    wrong = [
        f"{one.client}: {_shown(one.timeouts)}, not {expected.timeout_ms:.0f} ms"
        for one, expected in _learning(running)
        if not one.timeouts or not is_learned(one.timeouts[0], expected)
    ]
    return [none_of("clients with another build timeout than the learned one", wrong)]


async def after(running: Running) -> list[Check]:
    """Name the clients that began to learn anew, as Tor does if nearly all circuits were late.

    This is not judged: where relays are busy users' Tors do so, too. How many circuits were given
    up is told as well.
    """
    if not running.plan.policy.learn_timeouts:
        return []
    told = [one for one, _ in _learning(running) if one.timeouts]
    anew_here = [
        one.client
        for one in told
        if any(event.set_type != TimeoutSetType.COMPUTED for event in one.timeouts)
    ]
    late_here = [one.timeouts[-1].timeout_rate for one in told]
    of_all = await running.lab.meeting.exchange_meanwhile([anew_here, late_here])
    anew = [client for clients, _ in of_all for client in clients]
    rates = [rate for _, each in of_all for rate in each]
    check = none_of("clients that learn build times anew", anew)
    late = fmean(rates) if rates else 0.0
    value = {**(check.value or {}), "given_up": late}
    observed = f"{check.observed}; a client gave up {late:.1%} of its circuits on average"
    ok = None if anew else True
    return [check.model_copy(update={"observed": observed, "value": value, "ok": ok})]


def is_learned(event: BuildTimeoutSetEvent, expected: Learned) -> bool:
    """Whether a Tor's timeout is the expected one, and from as many times."""
    return bool(
        event.set_type == TimeoutSetType.COMPUTED
        and event.total_times == expected.total
        and abs(event.timeout - expected.timeout_ms) <= TOLERANCE * expected.timeout_ms
    )


def _learning(running: Running) -> Iterator[tuple[OwnChoice, Learned]]:
    for one in running.circuits:
        if isinstance(one, OwnChoice):
            yield one, running.network.learned[one.client]


def _shown(events: list[BuildTimeoutSetEvent]) -> str:
    if not events:
        return "none"
    first = events[0]
    return f"{first.timeout} ms of {first.total_times} times"
