"""Derives all seeds in a run from the run's own, by a hash for each purpose.

So neither neighbouring seeds nor two uses of one seed are correlated.
"""

import hashlib

BITS = 63
"""The default length of a derived seed: netem takes 64 bits, but JSON's signed integers only 63."""


def derived_seed(seed: int, purpose: str, *of: str, bits: int = BITS) -> int:
    """A seed for one purpose: the first `bits` bits of the SHA-256 of purpose, seed and `of`.

    Args:
        seed: the run's seed.
        purpose: a word, such as "netem".
        of: words that distinguish the uses of one purpose, such as the ends of a link.
        bits: at most 64.
    """
    text = " ".join([purpose, str(seed), *of])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - bits)


def netem_seeds(ends: tuple[str, str], seed: int) -> tuple[int, int]:
    """The seeds of a link's losses: from its first end to its second, and back."""
    first, second = ends
    return derived_seed(seed, "netem", first, second), derived_seed(seed, "netem", second, first)
