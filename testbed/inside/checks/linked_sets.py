"""Conflux: whether each client has a sound linked set, or else whether streams run on sets."""

from itertools import chain

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.tor.linked_sets import Leg, linked_legs
from testbed.inside.tor.own_choice import OwnChoice
from testbed.plan.choices import LEGS

LEAST_ON_SETS = 0.9


async def before(running: Running) -> list[Check]:
    """Check the sets before measuring."""
    return _checks(running, "before")


async def after(running: Running) -> list[Check]:
    """Check the sets after measuring, and which streams ran on sets."""
    if running.plan.tor.conflux and not running.plan.paths:
        return [await _streams_on_sets(running)]
    return _checks(running, "after")


async def _streams_on_sets(running: Running) -> Check:
    clients = [one for one in running.circuits if isinstance(one, OwnChoice)]
    counts_here = [[one.streams_on_sets, one.streams_on_others] for one in clients]
    of_all = await running.lab.meeting.exchange_meanwhile(counts_here)
    on_sets, on_others = (sum(of) for of in zip(*chain.from_iterable(of_all), strict=True))
    return streams_on_sets(on_sets, on_others)


def streams_on_sets(on_sets: int, on_others: int) -> Check:
    """Whether nearly all of the traffic's streams ran on sets; Tor may take another circuit."""
    return Check(
        name="streams on linked sets",
        expected=f"at least {LEAST_ON_SETS:.0%}",
        observed=f"{on_sets} of {on_sets + on_others}",
        ok=on_sets >= LEAST_ON_SETS * (on_sets + on_others) > 0,
    )


def _checks(running: Running, when: str) -> list[Check]:
    plan, network = running.plan, running.network
    if not (plan.tor.conflux and plan.paths):
        return []
    wrong = [
        f"{client}: {', '.join(map(str, legs)) or 'none'}"
        for client, path in plan.paths.items()
        if plan.is_here(client)
        and not _is_sound_set(legs := linked_legs(network[client]), network.fingerprints[path[-1]])
    ]
    return [
        Check(
            name=f"linked sets {when} measuring",
            expected=f"one for each client, {LEGS} legs with guards and middles of their own",
            observed="; ".join(wrong) or "yes",
            ok=not wrong,
        )
    ]


def _is_sound_set(legs: list[Leg], exit_fingerprint: str) -> bool:
    before_exit = [hop for leg in legs for hop in leg.hops[:-1]]
    return (
        len(legs) == LEGS
        and len({leg.set_id for leg in legs}) == 1
        and {leg.hops[-1] for leg in legs} == {exit_fingerprint}
        and len(set(before_exit)) == len(before_exit)
    )
