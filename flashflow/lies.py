"""How relays of the lab lie to those who measure them, and in which slots they are slow (5)."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from testbed.basics.errors import InputError
from testbed.basics.seeds import BITS, derived_seed
from testbed.basics.units import share_fraction
from testbed.plan.measurement import LIES

SLOW = 0.1
"""What a relay with its capacity in some slots only has in the others, as a share of it."""

LEAST_SLOW_BIT_PER_S = 8 * 75 * 1024
"""Tor takes no lower BandwidthRate of a relay."""

Lie = str | float
"""One of `LIES`, or the share of the slots in which a relay has its capacity."""


def lies_of(said: Iterable[str], relays: Sequence[str]) -> dict[str, Lie]:
    """The lie of each relay that has one.

    Args:
        said: such as "relay1=background", "relay*=undecrypted" or "relay2=40 %".

    Raises:
        InputError: a pattern names no relay, or what comes after it is no lie.
    """
    lies: dict[str, Lie] = {}
    for text in said:
        pattern, _, what = text.partition("=")
        named = [relay for relay in relays if fnmatchcase(relay, pattern.strip())]
        if not named:
            raise InputError(
                f'--liar {text}: "{pattern}" names no relay: there are {relays[0]} to {relays[-1]}'
            )
        lies.update(dict.fromkeys(named, _lie(text, what.strip())))
    return lies


def _lie(text: str, what: str) -> Lie:
    if what in LIES:
        return what
    try:
        return share_fraction(what)
    except ValueError:
        raise InputError(
            f"--liar {text}: write {', '.join(LIES)}, or the share of the slots in which the relay"
            ' has its capacity, such as "40 %"'
        ) from None


def patched(lies: Mapping[str, Lie]) -> dict[str, str]:
    """Those that Tor itself tells (TestingMeasurementLie)."""
    return {relay: lie for relay, lie in lies.items() if isinstance(lie, str)}


def limits(
    lies: Mapping[str, Lie], true_bit_per_s: Mapping[str, float], seed: int, slot: str
) -> dict[str, float]:
    """The rates in bit/s of the relays that are slow in a slot, by a coin for each of them.

    Args:
        slot: what distinguishes it from other slots.
    """
    slow = {}
    for relay, share in lies.items():
        if isinstance(share, str):
            continue
        coin = derived_seed(seed, "capacity at times", relay, slot) / 2**BITS
        if coin >= share:
            slow[relay] = max(SLOW * true_bit_per_s[relay], LEAST_SLOW_BIT_PER_S)
    return slow
