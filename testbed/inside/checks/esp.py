"""Whether everything on the links between relays is ESP, and how much it leaves of a packet.

`inside.lab.ipsec` makes the nodes use it.
"""

import re
from collections.abc import Collection, Sequence
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
    told = await lab.meeting.exchange_meanwhile([_packets(lab), _segments(lab)])
    checks = [_check_packets([part for part, _ in told])] if lab.between_relays else []
    sizes = {size for _, part in told for size in part}
    # Relays that have it may have no connection to each other if others have it not.
    return [*checks, _check_segments(sizes)] if sizes or not lab.plan.tor.at_relays else checks


def _packets(lab: Lab) -> tuple[int, int, list[str]]:
    """What this part's relays have sent each other since the lab was built.

    Returns:
        All packets, how many of them are ESP, and what is wrong: other packets on a link, or none
        where the plan has a circuit.
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
    return packets, esp, wrong


def _check_packets(told: Sequence[tuple[int, int, list[str]]]) -> Check:
    """Whether every packet on the links between relays was ESP, and whether there were any."""
    packets = sum(own_packets for own_packets, _, _ in told)
    esp = sum(own_esp for _, own_esp, _ in told)
    wrong = [one for _, _, own_wrong in told for one in own_wrong]
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


def _segments(lab: Lab) -> list[int]:
    """How much payload this part's relays put into a segment to another relay with ESP."""
    relays = [relay for relay in lab.plan.of_kind("relay") if lab.plan.tor.is_at(relay.name)]
    others = " or ".join(f"dst {relay.address}" for relay in relays)
    listing = ["ss", "-Htin", "state", "established", f"( {others} )"]
    here = [relay.name for relay in relays if lab.plan.is_here(relay.name)]
    listed = [lab.run(relay, listing) for relay in here]
    return sorted({int(size) for each in listed for size in _SEGMENT.findall(each)})


def _check_segments(sizes: Collection[int]) -> Check:
    """Whether TCP leaves exactly as much room in its segments as ESP needs."""
    seen = sorted(sizes)
    return Check(
        name="payload of a full segment between relays",
        expected=f"{SEGMENT_BYTES} bytes",
        observed=f"{', '.join(map(str, seen)) or 'no'} bytes",
        ok=seen == [SEGMENT_BYTES],
    )
