"""Whether the consensus has the plan's weights, and the bandwidth weights that follow from them."""

import re
from collections.abc import Mapping

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running
from testbed.inside.tor.configuration import has_weights


async def before(running: Running) -> list[Check]:
    """Compare the consensus of the first client, if the plan has weights."""
    plan, network = running.plan, running.network
    if not has_weights(plan) or not plan.is_here(plan.clients[0]):
        return []
    relays = plan.of_kind("relay")
    controller = network[plan.clients[0]].controller
    seen = {status.fingerprint: status.bandwidth for status in controller.get_network_statuses()}
    wrong = [
        f"{relay.name} weighs {weight}, not {relay.weight}"
        for relay in relays
        if (weight := seen.get(network.fingerprints[relay.name])) != relay.weight
    ]
    consensus = controller.get_info("dir/status-vote/current/consensus-microdesc")
    found = re.search(r"^bandwidth-weights (.+)$", consensus, re.MULTILINE)
    listed = found[1].split() if found else []
    weights = {name: int(value) for name, value in (one.split("=") for one in listed)}
    expected = plan.bandwidth_weights
    return [
        none_of("relays with another weight in the consensus", wrong),
        Check(
            name="bandwidth weights in the consensus",
            expected=_as_text(expected),
            observed=_as_text(weights),
            ok=weights == expected,
            value=dict(weights),
            bound=expected,
        ),
    ]


def _as_text(weights: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in weights.items()) or "none"
