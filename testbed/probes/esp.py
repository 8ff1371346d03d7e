"""Whether all that crosses the links between relays is ESP, and how much of a packet it leaves.

How the nodes come to use it is `lab.ipsec`'s.
"""

import re

from testbed.lab.ipsec import SEGMENT_BYTES
from testbed.lab.network import Lab
from testbed.probes.premise import Check

_SEGMENT = re.compile(r"\bmss:(\d+)")


def check_esp(lab: Lab) -> list[Check]:
    """The checks of a variant with IPsec, after measuring."""
    return [_check_packets(lab), _check_segments(lab)]


def _check_packets(lab: Lab) -> Check:
    """Whether every packet on the links between relays was ESP, since the lab began."""
    counts = {
        f"{direction.sender} to {direction.receiver}": lab.esp_packets(direction)
        for direction in lab.directions
        if direction.is_between_relays
    }
    others = [
        f"{ends}: {packets - esp}" for ends, (packets, esp) in counts.items() if packets > esp
    ]
    silent = [f"{ends}: no packets at all" for ends, (packets, _) in counts.items() if not packets]
    packets = sum(packets for packets, _ in counts.values())
    return Check(
        name="packets between relays that aren't ESP",
        expected="none",
        observed="; ".join(others + silent) or f"none of {packets}",
        ok=not others and not silent,
    )


def _check_segments(lab: Lab) -> Check:
    """Whether TCP leaves as much room for ESP in its segments as that needs, and no more."""
    first, second = lab.plan.shared_link
    address = lab.plan.node(second).address
    listed = lab.run(first, ["ss", "-Htin", "state", "established", "dst", str(address)])
    seen = sorted({int(size) for size in _SEGMENT.findall(listed)})
    return Check(
        name="payload of a full segment on the shared link",
        expected=f"{SEGMENT_BYTES} bytes",
        observed=f"{', '.join(map(str, seen)) or 'no'} bytes",
        ok=seen == [SEGMENT_BYTES],
    )
