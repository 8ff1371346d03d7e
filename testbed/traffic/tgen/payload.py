"""Payload: what is sent, where it is received, and its MD5 at the price of a comparison.

Who sends how much and when lives in `stream`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

RECEIVE_BYTES = 256 * 1024
SEND_BYTES = 1024 * 1024

_LETTER = ord("t")

# One buffer of each kind for the whole process: nothing is kept in them between two events.
RECEIVE_BUFFER = memoryview(bytearray(RECEIVE_BYTES))
SEND_BUFFER = memoryview(bytes([_LETTER]) * SEND_BYTES)


def sent_digest(size_bytes: int) -> str:
    """The MD5, in hexadecimal, of the `size_bytes` of payload that this program sends."""
    return _digest_of_letter(_LETTER, size_bytes)


class PayloadDigest:
    """The MD5 of received payload.

    TGen's payload repeats a letter, ours the same one throughout. As long as that holds, looking
    at each byte (a memcmp) replaces hashing it, which is some thirty times dearer, and the MD5 of
    so many letters is known from the transfer before. The first other byte begins real hashing.
    """

    def __init__(self) -> None:
        self._letter: int | None = None
        self._count = 0
        self._md5: hashlib._Hash | None = None

    def update(self, data: memoryview) -> None:
        """Take account of the next bytes (at most `RECEIVE_BYTES` of them)."""
        if self._md5 is None:
            if self._letter is None:
                self._letter = data[0]
            if _repeated(self._letter).startswith(data):
                self._count += len(data)
                return
            self._md5 = _hash_of_letter(self._letter, self._count)
        self._md5.update(data)

    def hexdigest(self) -> str:
        """The MD5 of all bytes so far, in hexadecimal."""
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
