"""Whether the clients' circuits have the congestion control and relay cells of the variant."""

import re

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.probes.relay_cells import DATA_BYTES, Seen, seen_on_circuits
from testbed.inside.tor.network import TorNetwork
from testbed.plan.choices import CONGESTION_CONTROL_OPTION, has_fixed_window
from testbed.plan.model import Plan

NOT_KNOWN = "not known to this Tor"
"""The observation of a check whose subject came with a later Tor."""

RELAY_CELLS = "relay cells"
"""The key of the check that has each circuit's cells."""

_CGO_SUBPROTOCOLS = {5, 6}
"""The subprotocols Relay with which a relay has Counter Galois Onion (tor-spec)."""
_FORMS = tuple(
    f"version {version}, {DATA_BYTES[version]} bytes of data, {cryptography}"
    for version, cryptography in enumerate(("AES-CTR and SHA-1 (tor1)", "Counter Galois Onion"))
)
"""The forms of relay cells by version; Tor 0.4.9 has no other combinations."""


async def before(running: Running) -> list[Check]:
    """Probe each client's circuits, and compare what Tor tells of them with the plan."""
    plan, network = running.plan, running.network
    seen = await seen_on_circuits(running.lab, network)
    windows = {one.client for one in seen if one.has_window}
    told = await running.lab.meeting.exchange_meanwhile(cgo_expected(plan, network))
    has_cgo = any(told)
    return [_congestion_control(plan, network, windows), relay_cells(plan, seen, has_cgo=has_cgo)]


def _congestion_control(plan: Plan, network: TorNetwork, with_window: set[str]) -> Check:
    """Whether the clients' circuits have negotiated what the consensus asks for.

    A client reports a circuit's congestion window (CIRC_BW in the control-spec) if and only if it
    and the exit have agreed on congestion control for that circuit. A Tor without congestion
    control reports none in any case, so it is not judged.
    """
    name = "clients whose circuit has congestion control"
    clients = set(plan.clients)
    if not network.knows(CONGESTION_CONTROL_OPTION):
        return Check(name=name, expected=f"0 of {len(clients)}", observed=NOT_KNOWN, ok=None)
    expected = set() if has_fixed_window(plan.tor.consensus_params) else clients
    return Check(
        name=name,
        expected=f"{len(expected)} of {len(clients)}",
        observed=f"{len(with_window)} of {len(clients)}",
        ok=with_window == expected,
    )


def relay_cells(plan: Plan, seen: list[Seen], *, has_cgo: bool) -> Check:
    """Whether each client has circuits with the expected relay cells, and no others.

    Args:
        seen: also circuits on which something else came, such as a part of the directory.
    """
    versions = {one: one.version for one in seen if one.version is not None}
    clients = {one.client for one in versions}
    wrong = [f"{one}: {_FORMS[version]}" for one, version in versions.items() if version != has_cgo]
    wrong += [_unknown(client, seen) for client in plan.clients if client not in clients]
    expected = _FORMS[has_cgo]
    return Check(
        key=RELAY_CELLS,
        name="relay cells of the clients' circuits",
        expected=expected,
        observed="; ".join(wrong) or f"{expected}, on {len(versions)} circuits",
        ok=not wrong,
        value={str(one): DATA_BYTES[version] for one, version in versions.items()},
        bound={"data in a cell": DATA_BYTES[has_cgo]},
    )


def _unknown(client: str, seen: list[Seen]) -> str:
    others = [
        f"{one}: {one.cells} cells with {one.payload_bytes} bytes"
        for one in seen
        if one.client == client
    ]
    return "; ".join(others) or f"{client}: no circuit was used"


def cgo_expected(plan: Plan, network: TorNetwork) -> bool:
    """Whether circuits must have Counter Galois Onion: as the plan says, or else as Tor chooses.

    A client asks an exit for it that has the subprotocols, together with congestion control
    (`client_circ_negotiation_message` in Tor 0.4.9's circuitbuild.c).
    """
    if has_fixed_window(plan.tor.consensus_params) or not network.knows(CONGESTION_CONTROL_OPTION):
        return False
    return _has_subprotocols(plan, network) if plan.tor.cgo is None else plan.tor.cgo


def _has_subprotocols(plan: Plan, network: TorNetwork) -> bool:
    """Whether the relays say in their descriptors that they have it: all are the same Tor.

    The part of the plan with the authority knows; the others have no such descriptors.
    """
    authority, relay = plan.of_kind("authority")[0], plan.of_kind("relay")[0]
    if not plan.is_here(authority.name):
        return False
    question = f"desc/id/{network.fingerprints[relay.name]}"
    return (
        relay_subprotocols(network[authority.name].controller.get_info(question))
        >= _CGO_SUBPROTOCOLS
    )


def relay_subprotocols(descriptor: str) -> set[int]:
    """The versions of the subprotocol Relay in a relay's descriptor, such as `Relay=2-4,6`."""
    listed = re.search(r"^proto .*\bRelay=([\d,-]+)", descriptor, re.MULTILINE)
    versions: set[int] = set()
    for part in listed[1].split(",") if listed else ():
        first, _, last = part.partition("-")
        versions |= set(range(int(first), int(last or first) + 1))
    return versions
