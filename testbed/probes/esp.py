"""Whether all that crosses the links between relays is ESP, and how much of a packet it leaves.

How the nodes come to use it is `lab.ipsec`'s.
"""

import re
from itertools import pairwise

from testbed.check import Check
from testbed.lab.ipsec import SEGMENT_BYTES
from testbed.lab.network import Lab
from testbed.plan_model import FIXED, Plan

_SEGMENT = re.compile(r"\bmss:(\d+)")


def check_esp(lab: Lab) -> list[Check]:
    """The checks of a variant with IPsec, after measuring.

    Packets between relays can't be told from others where relays have no links of their own.
    """
    return [*([_check_packets(lab)] if lab.between_relays else []), _check_segments(lab)]


def _check_packets(lab: Lab) -> Check:
    """Whether every packet on the links between relays was ESP, since the lab began.

    And whether there were any: on each link that carries a circuit, where the plan says so.
    """
    carrying = _carrying_circuits(lab.plan)
    wrong = []
    packets = esp = 0
    for direction in lab.between_relays:
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
    """The neighbours between which a circuit runs, as the paths say it; none where others decide.

    A topology may have links that no client's path crosses: those carry nothing.
    """
    if plan.policy.name != FIXED or plan.tor.conflux:
        return set()
    return {frozenset(hop) for path in plan.paths.values() for hop in pairwise(path)}


def _check_segments(lab: Lab) -> Check:
    """Whether TCP leaves as much room for ESP in its segments as that needs, and no more."""
    relays = lab.plan.of_kind("relay")
    others = " or ".join(f"dst {relay.address}" for relay in relays)
    listing = ["ss", "-Htin", "state", "established", f"( {others} )"]
    listed = [lab.run(relay.name, listing) for relay in relays]
    seen = sorted({int(size) for each in listed for size in _SEGMENT.findall(each)})
    return Check(
        name="payload of a full segment between relays",
        expected=f"{SEGMENT_BYTES} bytes",
        observed=f"{', '.join(map(str, seen)) or 'no'} bytes",
        ok=seen == [SEGMENT_BYTES],
    )
