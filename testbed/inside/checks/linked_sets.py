"""Conflux: whether each client has one linked set, whose legs share nothing but the exit."""

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.tor.linked_sets import Leg, linked_legs
from testbed.plan.choices import LEGS


async def before(running: Running) -> list[Check]:
    """Check the sets before measuring."""
    return _checks(running, "before")


async def after(running: Running) -> list[Check]:
    """Check the sets after measuring."""
    return _checks(running, "after")


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
