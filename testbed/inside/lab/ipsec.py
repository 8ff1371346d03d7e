"""IPsec between neighbours: ESP in transport mode with AES-GCM (RFC 4303, RFC 4106), by `ip xfrm`.

This module writes the commands; `lab.builder` runs them. There is no negotiation: both ends get
their keys directly, as if they had been exchanged before the run.
"""

from collections.abc import Iterator
from itertools import combinations

from testbed.basics.seeds import derived_seed
from testbed.plan.model import Plan

_ALGORITHM = "rfc4106(gcm(aes))"
_KEY_BITS = (64, 64, 32)
"""AES-128's key and GCM's salt of 32 bits, in parts as long as a derived seed can be."""
CHECK_VALUE_BITS = 128
_REPLAY_WINDOW_PACKETS = 32
_FIRST_SPI = 0x1000

_PACKET_BYTES, _IPV4_BYTES, _TCP_BYTES = 1500, 20, 32
"""TCP's header has timestamps, as Linux sends it."""
_ESP_HEADER_BYTES, _ESP_TRAILER_BYTES, _IV_BYTES, _ESP_WORD_BYTES = 8, 2, 8, 4

SEGMENT_BYTES = (
    (_PACKET_BYTES - _IPV4_BYTES - _ESP_HEADER_BYTES - _IV_BYTES - CHECK_VALUE_BITS // 8)
    // _ESP_WORD_BYTES
    * _ESP_WORD_BYTES
    - _ESP_TRAILER_BYTES
    - _TCP_BYTES
)
"""TCP payload of a full packet: 1414 bytes, as opposed to 1448 without ESP."""


def protected(plan: Plan) -> list[tuple[str, str]]:
    """Sender and receiver of each direction with ESP: both ways between neighbouring relays.

    In networks with routers every relay is a neighbour of every other. Competing streams have ESP
    from end to end as well, so only ESP crosses a link between relays. Where only some relays have
    the variant, these have ESP with each other.
    """
    relays = [relay.name for relay in plan.of_kind("relay") if plan.tor.is_at(relay.name)]
    if plan.of_kind("router"):
        pairs = list(combinations(relays, 2))
    else:
        pairs = [link.ends for link in plan.links if set(link.ends) <= set(relays)]
    pairs += [(entry.sender, entry.receiver) for entry in plan.competing]
    both_ways = [direction for pair in pairs for direction in (pair, pair[::-1])]
    return list(dict.fromkeys(both_ways))


def commands(plan: Plan, node: str) -> Iterator[str]:
    """A node's lines for `ip -batch`: its security associations and its policies.

    Each direction has an association with its own key at both ends. Outgoing packets for the other
    end are sent as ESP, and incoming ones without ESP are dropped.
    """
    for number, (sender, receiver) in enumerate(protected(plan)):
        if node not in (sender, receiver):
            continue
        ends = f"src {plan.node(sender).address} dst {plan.node(receiver).address}"
        esp = f"proto esp reqid {number + 1} mode transport"
        yield (
            f"xfrm state add {ends} spi {_FIRST_SPI + number:#x} {esp}"
            f" replay-window {_REPLAY_WINDOW_PACKETS}"
            f" aead {_ALGORITHM} {_key(plan.seed, sender, receiver)} {CHECK_VALUE_BITS}"
        )
        way = "out" if node == sender else "in"
        yield f"xfrm policy add {ends} dir {way} tmpl {ends} {esp}"


def _key(seed: int, sender: str, receiver: str) -> str:
    """A direction's key and salt in hexadecimal digits."""
    parts = [
        f"{derived_seed(seed, 'ipsec', sender, receiver, str(part), bits=bits):0{bits // 4}x}"
        for part, bits in enumerate(_KEY_BITS)
    ]
    return "0x" + "".join(parts)
