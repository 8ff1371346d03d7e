"""For tests: cells that a relay's scheduler sends, CREATED_FAST, as many as are asked for."""

import ssl
import struct
import threading
import time
from contextlib import suppress
from socket import create_connection

from testbed.inside.measurers.circuit import CELL_BYTES, PAYLOAD_BYTES

CREATE_FAST, CREATED_FAST, NETINFO = 5, 6, 8
_TICK_S = 0.01


class CreatedCircuits(threading.Thread):
    """Asks a relay for circuits at a rate, and counts the answers by second since the start.

    The link handshake is that of `testbed.inside.measurers.circuit`.
    """

    def __init__(self, port: int, cells_per_s: int) -> None:
        super().__init__(daemon=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._tls = context.wrap_socket(create_connection(("127.0.0.1", port)))
        self._each_tick = int(cells_per_s * _TICK_S)
        self.over = threading.Event()
        self.times: list[float] = []
        """When each answer came, on the monotonic clock."""

    def bytes_between(self, begin: float, end: float) -> int:
        """The bytes of answers in a time."""
        return CELL_BYTES * sum(begin <= one < end for one in self.times)

    def run(self) -> None:
        """Go on until it is over."""
        self._tls.sendall(struct.pack("!HBHH", 0, 7, 2, 4))
        there = b""
        while not there[-PAYLOAD_BYTES - 1 :].startswith(bytes([NETINFO])):
            there += self._tls.recv(1 << 16)  # it ends with NETINFO, and then waits for ours
        self._send([self._cell(0, NETINFO, struct.pack("!IBB4sB", 0, 4, 4, bytes(4), 0))])
        self._tls.settimeout(0)
        number, self._there = 0, bytearray()
        while not self.over.wait(_TICK_S):
            circuits = range(number, number + self._each_tick)
            number += self._each_tick
            self._send([self._cell(1 << 31 | 1 + one, CREATE_FAST, bytes(20)) for one in circuits])
            self._take()
        self._tls.close()

    def _take(self) -> None:
        """Count what has come; the beginning of the next cell stays."""
        with suppress(ssl.SSLWantReadError):
            while data := self._tls.recv(1 << 18):
                self._there += data
                whole = len(self._there) // CELL_BYTES * CELL_BYTES
                answers = self._there[4:whole:CELL_BYTES].count(CREATED_FAST)
                self.times += [time.monotonic()] * answers
                del self._there[:whole]

    def _send(self, cells: list[bytes]) -> None:
        self._tls.settimeout(10)
        self._tls.sendall(b"".join(cells))
        self._tls.settimeout(0)

    @staticmethod
    def _cell(circuit: int, command: int, payload: bytes) -> bytes:
        return struct.pack("!IB", circuit, command) + payload.ljust(PAYLOAD_BYTES, b"\0")
