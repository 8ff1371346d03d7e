"""Whether clients with entry guards keep to as many as they should."""

from collections import Counter
from collections.abc import Collection, Sequence

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running
from testbed.inside.tor.own_choice import OwnChoice
from testbed.plan.choices import LEGS
from testbed.plan.model import Plan

NEEDED_FLAGS = ("Fast", "Stable", "V2Dir")
"""The flags without which Tor takes no relay as entry guard (node_is_possible_guard())."""


async def before(running: Running) -> list[Check]:
    """Name the plan's guards that Tor would take only for other positions.

    They aren't judged if all that they lack is Fast, and by weights that were measured: authorities
    of the live network give no Guard, either, to a relay that is measured so slow (dir-spec 3.4.2).
    """
    plan, network = running.plan, running.network
    if not plan.policy.entry_guards or not plan.is_here(plan.clients[0]):
        return []
    statuses = network[plan.clients[0]].controller.get_network_statuses()
    flags = {status.fingerprint: status.flags for status in statuses}
    lacking = {
        relay.name: missing
        for relay in plan.of_kind("relay")
        if "guard" in relay.flags
        and (missing := lacked(flags.get(network.fingerprints[relay.name], ())))
    }
    check = none_of(
        "guards that Tor can't take as entry guards",
        [f"{name} without {' '.join(missing)}" for name, missing in lacking.items()],
    )
    too_slow = plan.measured_weights and all(missing == ["Fast"] for missing in lacking.values())
    return [check.model_copy(update={"ok": None}) if lacking and too_slow else check]


def lacked(flags: Collection[str]) -> list[str]:
    """The flags that an entry guard needs and a relay with these lacks."""
    return [flag for flag in NEEDED_FLAGS if flag not in flags]


async def after(running: Running) -> list[Check]:
    """Name the clients whose circuits begin at more guards, unless Tor found one unreachable."""
    plan = running.plan
    allowed = _allowed(plan)
    if allowed is None:
        return []
    beyond = [
        f"{one.client}: {', '.join(others)}"
        for one in running.circuits
        if isinstance(one, OwnChoice)
        and not one.guards_down
        and (others := other_guards(one.built, allowed))
    ]
    return [none_of(f"clients whose circuits begin at more than {allowed} guards", beyond)]


def other_guards(built: Sequence[Collection[str]], allowed: int) -> list[str]:
    """The first relays of circuits that should have begun at one of the client's guards.

    Its guards are the `allowed` relays at which most of its circuits begin. A circuit that ends at
    one of them begins at another guard, as Tor takes no relay twice.

    Args:
        built: the relays of each circuit.
    """
    paths = [tuple(path) for path in built]
    guards = {guard for guard, _ in Counter(path[0] for path in paths).most_common(allowed)}
    return sorted({path[0] for path in paths if path[0] not in guards and path[-1] not in guards})


def _allowed(plan: Plan) -> int | None:
    """As many as Tor uses; the second leg of a linked set takes none of the first one's."""
    if plan.guards_to_use is None:
        return None
    return plan.guards_to_use + (LEGS - 1 if plan.tor.conflux else 0)
