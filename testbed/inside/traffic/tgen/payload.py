"""Payload: the buffers of sent and received bytes, and MD5 at the price of a comparison."""

from __future__ import annotations

import hashlib
from functools import lru_cache

RECEIVE_BYTES = 256 * 1024
SEND_BYTES = 1024 * 1024

_LETTER = ord("t")

# The whole process has one buffer of each kind: nothing is kept in them between two events.
RECEIVE_BUFFER = memoryview(bytearray(RECEIVE_BYTES))
SEND_BUFFER = memoryview(bytes([_LETTER]) * SEND_BYTES)


def sent_digest(size_bytes: int) -> str:
    """Return the MD5 of `size_bytes` of this program's payload, in hexadecimal."""
    return _digest_of_letter(_LETTER, size_bytes)


class PayloadDigest:
    """The MD5 of received payload.

    TGen's payload repeats letters; ours is one letter throughout. While all bytes are that letter,
    comparing them (a memcmp) replaces hashing them, which is some thirty times slower, and the MD5
    of that many letters is known from the last transfer. The first other byte starts real hashing.
    """

    def __init__(self) -> None:
        self._letter: int | None = None
        self._count = 0
        self._md5: hashlib._Hash | None = None

    def update(self, data: memoryview) -> None:
        """Add the next bytes (at most `RECEIVE_BYTES`)."""
        if self._md5 is None:
            if self._letter is None:
                self._letter = data[0]
            if _repeated(self._letter).startswith(data):
                self._count += len(data)
                return
            self._md5 = _hash_of_letter(self._letter, self._count)
        self._md5.update(data)

    def hexdigest(self) -> str:
        """Return the MD5 of all bytes so far, in hexadecimal."""
        if self._md5 is not None:
            return self._md5.hexdigest()
        return _digest_of_letter(self._letter or 0, self._count)


@lru_cache(maxsize=2)
def _repeated(letter: int) -> bytes:
    return bytes([letter]) * RECEIVE_BYTES


@lru_cache(maxsize=16)
def _digest_of_letter(letter: int, count: int) -> str:
    return _hash_of_letter(letter, count).hexdigest()


def _hash_of_letter(letter: int, count: int) -> hashlib._Hash:
    md5 = hashlib.md5(usedforsecurity=False)
    whole, rest = divmod(count, RECEIVE_BYTES)
    block = _repeated(letter)
    for _ in range(whole):
        md5.update(block)
    md5.update(block[:rest])
    return md5
