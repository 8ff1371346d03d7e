"""How all that is random in a run follows from its seed: by a hash, one for each purpose.

Neighbouring seeds so have nothing in common, nor have two uses of one seed.
"""

import hashlib

BITS = 63
"""Of a derived seed, unless a user of it takes fewer: netem takes 64, signed readers of JSON 63."""


def derived_seed(seed: int, purpose: str, *of: str, bits: int = BITS) -> int:
    """A seed for one purpose: the first `bits` of the SHA-256 of purpose, seed and whose it is.

    Args:
        seed: the run's.
        purpose: a word, such as "netem".
        of: what tells the uses of one purpose apart, such as the ends of a link.
        bits: at most 64.
    """
    text = " ".join([purpose, str(seed), *of])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - bits)


def netem_seeds(ends: tuple[str, str], seed: int) -> tuple[int, int]:
    """The seeds of the losses in a link's two directions: away from its first end, and back."""
    first, second = ends
    return derived_seed(seed, "netem", first, second), derived_seed(seed, "netem", second, first)
