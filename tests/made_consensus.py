"""Minimal consensus documents for tests: whole, and in both flavours."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WEIGHTS: Mapping[str, int] = {
    **{"Wbd": 0, "Wbe": 0, "Wbg": 4000, "Wbm": 10000, "Wdb": 10000, "Web": 10000},
    **{"Wed": 7000, "Wee": 9000, "Weg": 10000, "Wem": 10000, "Wgb": 10000, "Wgd": 1000},
    **{"Wgg": 6000, "Wgm": 6000, "Wmb": 10000, "Wmd": 2000, "Wme": 1000, "Wmg": 4000},
    "Wmm": 10000,
}


@dataclass(frozen=True)
class MadeRelay:
    """A relay's entry; the flags Running and Valid, which all have, are left out."""

    weight: int
    flags: str = "Fast"
    address: str = "192.0.2.1"
    policy: str = "reject 1-65535"


FEW = (
    MadeRelay(1000, "Fast Guard Stable V2Dir", "192.0.2.1"),
    MadeRelay(500, "Fast Guard", "192.0.77.2"),
    MadeRelay(300, "Exit Fast", "198.51.100.1", "accept 80,443,6881-6889"),
    MadeRelay(400, "BadExit Exit Fast", "198.51.100.2", "accept 1-65535"),
    MadeRelay(800, "Exit Fast Guard Stable V2Dir", "203.0.113.1", "reject 25,119"),
    MadeRelay(20, "", "203.0.113.9", "accept 80,443"),
)


def document(
    relays: Sequence[MadeRelay] = FEW,
    *,
    microdesc: bool = False,
    valid_after: str = "2021-11-30 03:00:00",
    weights: Mapping[str, int] = WEIGHTS,
) -> str:
    """The text of a consensus document, with an invalid signature."""
    entries = [_entry(number, relay, microdesc) for number, relay in enumerate(relays)]
    said = " ".join(f"{name}={value}" for name, value in sorted(weights.items()))
    return "\n".join(
        [
            f"network-status-version 3{' microdesc' if microdesc else ''}",
            "vote-status consensus",
            "consensus-method 31",
            f"valid-after {valid_after}",
            "fresh-until 2021-11-30 04:00:00",
            "valid-until 2021-11-30 06:00:00",
            "voting-delay 300 300",
            "client-versions 0.4.6.8",
            "server-versions 0.4.6.8",
            "known-flags Authority BadExit Exit Fast Guard Running Stable V2Dir Valid",
            f"dir-source made {'0' * 40} 192.0.2.1 192.0.2.1 80 443",
            "contact nobody",
            f"vote-digest {'0' * 40}",
            *entries,
            "directory-footer",
            *([f"bandwidth-weights {said}"] if weights else []),
            f"directory-signature sha256 {'0' * 40} {'1' * 40}",
            "-----BEGIN SIGNATURE-----",
            "AAAA",
            "-----END SIGNATURE-----\n",
        ]
    )


def nickname(number: int) -> str:
    return f"made{number}"


def identity(number: int) -> bytes:
    """The digest of a relay's key; digests are in the order of the relays' numbers."""
    return number.to_bytes(2, "big") + hashlib.sha1(nickname(number).encode()).digest()[2:]


def _entry(number: int, relay: MadeRelay, microdesc: bool) -> str:
    digest = base64.b64encode(b"d" * 20).decode().rstrip("=")
    key = base64.b64encode(identity(number)).decode().rstrip("=")
    flags = " ".join(sorted([*relay.flags.split(), "Running", "Valid"]))
    name = f"r {nickname(number)} {key}"
    where = f"2021-11-30 02:00:00 {relay.address} 9001 0"
    lines = [
        f"{name} {where}" if microdesc else f"{name} {digest} {where}",
        *([f"m {base64.b64encode(b'm' * 32).decode().rstrip('=')}"] if microdesc else []),
        f"s {flags}",
        "v Tor 0.4.6.8",
        f"w Bandwidth={relay.weight}",
        *([] if microdesc else [f"p {relay.policy}"]),
    ]
    return "\n".join(lines)
