"""Whether everything on the links between relays is ESP, and how much it leaves of a packet.

`inside.lab.ipsec` makes the nodes use it.
"""

import re
from itertools import pairwise

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.lab.ipsec import SEGMENT_BYTES
from testbed.inside.lab.network import Lab
from testbed.plan.model import FIXED, Plan

_SEGMENT = re.compile(r"\bmss:(\d+)")


async def after(running: Running) -> list[Check]:
    """Count the packets that aren't ESP, in a variant with IPsec.

    Packets between relays can't be told from others if relays have no links of their own.
    """
    lab = running.lab
    if not lab.plan.tor.ipsec:
        return []
    if not lab.plan.here("relay"):
        return []
    return [*([_check_packets(lab)] if lab.between_relays else []), _check_segments(lab)]


def _check_packets(lab: Lab) -> Check:
    """Whether every packet on the links between relays was ESP, since the lab was built.

    And whether there were any, on each link that carries a circuit by the plan.
    """
    carrying = _carrying_circuits(lab.plan)
    wrong = []
    packets = esp = 0
    for direction in lab.between_relays:
        if not lab.plan.is_here(direction.sender):
            continue
        own_packets, own_esp = lab.esp_packets(direction)
        ends = f"{direction.sender} to {direction.receiver}"
        if own_packets > own_esp:
            wrong.append(f"{ends}: {own_packets - own_esp}")
        elif not own_packets and frozenset((direction.sender, direction.receiver)) in carrying:
            wrong.append(f"{ends}: no packets at all")
        packets += own_packets
        esp += own_esp
    return Check(
        name="packets between relays that aren't ESP",
        expected="none",
        observed="; ".join(wrong) or f"none of {packets}",
        ok=packets > 0 and not wrong,
        value={"packets": packets, "esp": esp},
    )


def _carrying_circuits(plan: Plan) -> set[frozenset[str]]:
    """The neighbours on the plan's paths; none if Tor or a policy decides on circuits.

    A topology may have links that no client's path crosses, which carry nothing.
    """
    if plan.policy.name != FIXED or plan.tor.conflux:
        return set()
    return {frozenset(hop) for path in plan.paths.values() for hop in pairwise(path)}


def _check_segments(lab: Lab) -> Check:
    """Whether TCP leaves exactly as much room in its segments as ESP needs."""
    relays = lab.plan.of_kind("relay")
    others = " or ".join(f"dst {relay.address}" for relay in relays)
    listing = ["ss", "-Htin", "state", "established", f"( {others} )"]
    listed = [lab.run(relay.name, listing) for relay in lab.plan.here("relay")]
    seen = sorted({int(size) for each in listed for size in _SEGMENT.findall(each)})
    return Check(
        name="payload of a full segment between relays",
        expected=f"{SEGMENT_BYTES} bytes",
        observed=f"{', '.join(map(str, seen)) or 'no'} bytes",
        ok=seen == [SEGMENT_BYTES],
    )
