"""Which relays have a variant that only a share of them has."""

from collections.abc import Iterable
from pathlib import Path

from testbed.asked.variant import Variant
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.basics.errors import InputError
from testbed.basics.seeds import derived_seed
from testbed.basics.toml_file import label, shown
from testbed.plan.choices import PLAIN_CONNECTIONS
from testbed.plan.model import PlannedNode

PLAIN_TO_SOME = TOR_CONFIGS / "patches" / "plain-to-some-relays.patch"
"""The patch of Tor by which a relay opens connections without TLS only to those that know them."""


def relays_with(
    variant: Variant, nodes: Iterable[PlannedNode], seed: int, *, drawn: bool, file: Path
) -> tuple[str, ...] | None:
    """The relays that have the variant, in the network's order; None: all.

    By number, at least one. They are the first ones in an order drawn by the seed, so that a larger
    share has the relays of a smaller one, too; or those of the largest weights, equal ones in that
    order.

    Args:
        drawn: whether the network is drawn; a topology has none of which a share could be taken.

    Raises:
        InputError: a topology's relays would have it in part, or it says nothing of relays.
    """
    if variant.relays is None:
        return None
    said = f"relays = {shown(f'{100 * variant.relays:g} %')}"
    if not drawn:
        raise InputError(
            f"{label(file)}: {variant.name} is at a part of a drawn network's relays ({said}), but"
            ' the scenario has a topology: take a network with topology = "sampled", or the variant'
            " without it"
        )
    if not (variant.torrc_relay or variant.ipsec):
        raise InputError(
            f"variant {variant.name}: {said}: it says nothing of relays, neither in [torrc.relay]"
            ' nor by ipsec: add the share to a variant that does, such as "pctcp+some-relays"'
        )
    relays = [node for node in nodes if node.kind == "relay"]
    order = {one.name: derived_seed(seed, "relays with the variant", one.name) for one in relays}
    if variant.first_relays == "heaviest":
        ordered = sorted(relays, key=lambda one: (-(one.weight or 0), order[one.name]))
    else:
        ordered = sorted(relays, key=lambda one: order[one.name])
    # A half is rounded up, so that two shares of equal steps are equally many relays apart.
    number = max(1, int(variant.relays * len(relays) + 0.5))
    chosen = {one.name for one in ordered[:number]}
    return tuple(one.name for one in relays if one.name in chosen)


def patches_of_some(variant: Variant) -> tuple[Path, ...]:
    """The patch without which a variant can't be at some relays only, if it needs one."""
    is_plain = PLAIN_CONNECTIONS in variant.torrc_relay
    return (PLAIN_TO_SOME,) if variant.relays is not None and is_plain else ()
