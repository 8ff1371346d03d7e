"""What a client says to Tor's SOCKS port to have a stream (RFC 1928), and what Tor answers."""

import socket
import struct

GREETING = b"\x05\x01\x00"
"""Version 5, and one way to authenticate: none."""
CHOICE_BYTES = 2
"""How long the answer to it is."""
SUCCEEDED = 0
"""The second byte of the reply to a request, if the stream is open."""
REPLY_BYTES = 10
"""How long a reply is that has an IPv4 address."""


def request(address: str, port: int) -> bytes:
    """The request for a stream to a port of an IPv4 address.

    Raises:
        OSError: it isn't such an address.
    """
    return b"\x05\x01\x00\x01" + socket.inet_aton(address) + struct.pack(">H", port)
