"""Whether all that crosses the links between relays is ESP, and how much of a packet it leaves.

How the nodes come to use it is `lab.ipsec`'s.
"""

import re

from testbed.check import Check
from testbed.lab.ipsec import SEGMENT_BYTES
from testbed.lab.network import Lab

_SEGMENT = re.compile(r"\bmss:(\d+)")


def check_esp(lab: Lab) -> list[Check]:
    """The checks of a variant with IPsec, after measuring.

    Packets between relays can't be told from others where relays have no links of their own.
    """
    return [*([_check_packets(lab)] if lab.between_relays else []), _check_segments(lab)]


def _check_packets(lab: Lab) -> Check:
    """Whether every packet on the links between relays was ESP, since the lab began."""
    counts = {
        f"{direction.sender} to {direction.receiver}": lab.esp_packets(direction)
        for direction in lab.between_relays
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
        value={"packets": packets, "esp": sum(esp for _, esp in counts.values())},
    )


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
