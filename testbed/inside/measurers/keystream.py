"""Tor's relay cipher, AES-128 in counter mode, by the OpenSSL that Python's ssl has loaded."""

import ctypes
from functools import cache

BLOCK_BYTES = 16


@cache
def _crypto() -> ctypes.CDLL:
    import _ssl  # its library is loaded already, in the version that the environment has

    library = ctypes.CDLL(_ssl.__file__)
    for name in ("EVP_CIPHER_CTX_new", "EVP_aes_128_ctr"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def decrypted(key: bytes, offset: int, data: bytes) -> bytes:
    """What a relay makes of data that begin at an offset of the bytes which it has decrypted.

    Args:
        key: 16 bytes; the counter begins at 0.
    """
    crypto = _crypto()
    context = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
    try:
        block, skipped = divmod(offset, BLOCK_BYTES)
        plain = bytes(skipped) + data
        made = ctypes.create_string_buffer(len(plain) + BLOCK_BYTES)
        length = ctypes.c_int()
        counter = block.to_bytes(BLOCK_BYTES, "big")
        cipher = ctypes.c_void_p(crypto.EVP_aes_128_ctr())
        if not (
            crypto.EVP_EncryptInit_ex(context, cipher, None, key, counter)
            and crypto.EVP_EncryptUpdate(context, made, ctypes.byref(length), plain, len(plain))
        ):
            raise RuntimeError("OpenSSL can't encrypt with AES-128 in counter mode")
        return made.raw[skipped : length.value]
    finally:
        crypto.EVP_CIPHER_CTX_free(context)
