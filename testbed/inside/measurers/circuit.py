"""A measurement circuit: a connection to a relay, and the cells that come back on it.

It speaks Tor's link protocol as a client (tor-spec, "Negotiating and initializing channels"), and
the four commands that tor-configs/patches/measured.patch adds. It is non-blocking: a `Team` calls
`pump` whenever something may have changed.
"""

import hashlib
import hmac
import math
import os
import ssl
import struct
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from random import Random
from socket import SO_ERROR, SOL_SOCKET, socket

from testbed.basics.errors import TestbedError
from testbed.inside.measurers.keystream import decrypted

CELL_BYTES, HEADER_BYTES = 514, 5
PAYLOAD_BYTES = CELL_BYTES - HEADER_BYTES
_CIRCUIT = 0x80000001
_VERSIONS, _NETINFO = 7, 8
CREATE, CREATED, MEASURE, REPORT = 32, 33, 34, 35
_FIRST_VARIABLE = 128
_LINK_VERSIONS = (4, 5)
_SHA1_BYTES = 20
_KEY_BYTES = 16
_MOST_CELLS = 16
"""The cells of a record of TLS. 31 would fit, but of a record that it has begun a Tor reads all: it
would read two such records in a turn of its loop, and write no more than 32 cells."""
_CHUNK_S, _WINDOW_S = 0.1, 0.05
"""How much is sent at a time, and how much may be on its way beyond a round trip, as seconds of
the circuit's rate. That is some three times the relay's: what waits there comes back in bursts."""
_LONGEST_ROUND_TRIP_S = 1.0
_READ_BYTES = 1 << 18


class MeasurementError(TestbedError):
    """A relay that doesn't do what it should; the message says what."""


@dataclass
class Second:
    """What a circuit knows of one second: bytes that came back, and what the relay reports."""

    echoed: int = 0
    background: int | None = None


@dataclass
class Circuit:
    """One measurement circuit.

    Attributes:
        sock: a new one, of the measurer's network.
        relay: its name, for errors.
        identity: the digest of its identity key, 20 bytes.
        key: what measurers must know (MeasurementKey).
        rate: in bytes per second, cells on the wire of the connection.
        random: the source of everything random.
        probability: that of a cell to be checked.
        wants_reports: whether the relay is to report its clients' traffic here.
        seconds: what is known of each second since `begin`, when filling begins; of those before
            it, whose numbers are negative, only reports.
        end: when filling ends.
        round_trip_s: how long the relay took to answer the request for the circuit.
        _next_report: the second of the next report. A relay reports once a second, first while it
            is idle; later reports wait behind echoed cells, and two may come at once.
    """

    sock: socket
    relay: str
    identity: bytes
    key: str
    rate: float
    random: Random
    probability: float
    wants_reports: bool
    is_open: bool = False
    checked: int = 0
    forged: int = 0
    seconds: dict[int, Second] = field(default_factory=dict)
    begin: float | None = None
    end: float = math.inf
    round_trip_s: float = 0.0
    _asked_at: float = 0.0
    _next_report: int | None = None
    _tls: ssl.SSLSocket | None = None
    _is_secure: bool = False
    _greeted: bool = False
    _incoming: bytearray = field(default_factory=bytearray)
    _outgoing: bytearray = field(default_factory=bytearray)
    _secret: bytes = b""
    _cipher_key: bytes = b""
    _sent_cells: int = 0
    _received_cells: int = 0
    _next_check: int = 0
    _expected: deque[tuple[int, bytes]] = field(default_factory=deque)

    def connect(self, address: str, port: int) -> None:
        """Begin to connect."""
        self._next_check = self._gap()
        self.sock.setblocking(False)
        self.sock.connect_ex((address, port))

    def close(self) -> None:
        """Close the connection."""
        (self._tls or self.sock).close()

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return (self._tls or self.sock).fileno()

    def pump(self, now: float, is_readable: bool) -> None:
        """Do all that can be done now.

        Args:
            is_readable: whether something has come; asking costs a system call.

        Raises:
            MeasurementError: the relay has closed the connection, or says what it must not.
        """
        try:
            if not self._tls:
                if not self._is_connected():
                    return
                self._tls = _context().wrap_socket(self.sock, do_handshake_on_connect=False)
            if not self._is_secure:
                self._tls.do_handshake()
                self._is_secure = is_readable = True
                # Version 3 of the handshake: VERSIONS has a circuit ID of two bytes.
                versions = struct.pack(f"!{len(_LINK_VERSIONS)}H", *_LINK_VERSIONS)
                self._outgoing += struct.pack("!HBH", 0, _VERSIONS, len(versions)) + versions
            if is_readable:
                self._receive(now)
            self._send(now)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, ssl.SSLError) as error:
            raise MeasurementError(f"{self.relay}: the connection failed: {error}") from error

    def _is_connected(self) -> bool:
        """Whether the socket is connected; OSError if it can't be."""
        if error := self.sock.getsockopt(SOL_SOCKET, SO_ERROR):
            raise OSError(error, os.strerror(error))
        try:
            self.sock.getpeername()
        except OSError:
            return False
        return True

    def _receive(self, now: float) -> None:
        assert self._tls
        while True:
            try:
                data = self._tls.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise MeasurementError(f"{self.relay}: the relay has closed the connection")
            self._incoming += data
            self._take(now)

    def _take(self, now: float) -> None:
        """Handle all whole cells that are there."""
        place, there = 0, self._incoming
        whole = len(there) // CELL_BYTES
        if self.is_open and there[4 : whole * CELL_BYTES : CELL_BYTES].count(MEASURE) == whole:
            self._echoed(whole, memoryview(there), now)
            del there[: whole * CELL_BYTES]
            return
        while (length := self._length(place)) and place + length <= len(there):
            self._handle(bytes(there[place : place + length]), now)
            place += length
        del there[:place]

    def _length(self, place: int) -> int:
        """The length of the cell that begins at a place; 0 if too little of it is there."""
        there, width = self._incoming, 4 if self._greeted else 2
        if len(there) < place + width + 3:
            return 0
        command = there[place + width]
        if command == _VERSIONS or command >= _FIRST_VARIABLE:
            return width + 3 + int.from_bytes(there[place + width + 1 : place + width + 3], "big")
        return width + 1 + PAYLOAD_BYTES

    def _handle(self, cell: bytes, now: float) -> None:
        width = 4 if self._greeted else 2
        command, payload = cell[width], cell[width + 1 :]
        if command == _VERSIONS:
            self._greeted = True
        elif command == _NETINFO:
            self._ask(now)
        elif command == CREATED:
            self._created(payload)
            self.round_trip_s = min(now - self._asked_at, _LONGEST_ROUND_TRIP_S)
        elif command == MEASURE and self.is_open:
            self._echoed(1, memoryview(cell), now)
        elif command == REPORT and self.begin is not None:
            (background,) = struct.unpack_from("!Q", payload)
            if self._next_report is None:
                self._next_report = math.floor(now - self.begin)
            self.seconds.setdefault(self._next_report, Second()).background = background
            self._next_report += 1

    def _ask(self, now: float) -> None:
        """Answer a NETINFO, and ask for a circuit."""
        self._asked_at = now
        netinfo = struct.pack("!IBB4sB", 0, 4, 4, bytes(4), 0)
        self._outgoing += _cell(0, _NETINFO, netinfo)
        self._secret = self.random.randbytes(_SHA1_BYTES)
        asked = self._secret + bytes([self.wants_reports])
        proof = hmac.digest(self.key.encode(), asked + self.identity, "sha256")
        self._outgoing += _cell(_CIRCUIT, CREATE, asked + proof)

    def _created(self, payload: bytes) -> None:
        """Derive the key as for a CREATED_FAST (KDF-TOR), and see that the relay has the same."""
        theirs, proof = payload[:_SHA1_BYTES], payload[_SHA1_BYTES : 2 * _SHA1_BYTES]
        both = self._secret + theirs
        made = b"".join(hashlib.sha1(both + bytes([number])).digest() for number in range(2))
        if made[:_SHA1_BYTES] != proof:
            raise MeasurementError(f"{self.relay}: the relay has another key than its measurer")
        self._cipher_key = made[_SHA1_BYTES:][:_KEY_BYTES]
        self.is_open = True

    def _echoed(self, cells: int, there: memoryview, now: float) -> None:
        """Count cells that came back, and compare those whose content was kept."""
        while self._expected and self._expected[0][0] < self._received_cells + cells:
            number, sent = self._expected.popleft()
            place = (number - self._received_cells) * CELL_BYTES + HEADER_BYTES
            wanted = decrypted(self._cipher_key, number * PAYLOAD_BYTES, sent)
            self.checked += 1
            self.forged += bytes(there[place : place + PAYLOAD_BYTES]) != wanted
        there.release()
        self._received_cells += cells
        if self.begin is not None and now >= self.begin:
            second = self.seconds.setdefault(int(now - self.begin), Second())
            second.echoed += cells * CELL_BYTES

    def _send(self, now: float) -> None:
        assert self._tls
        while self._outgoing or self._fill(now):
            sent = self._tls.send(self._outgoing)
            del self._outgoing[:sent]

    def _fill(self, now: float) -> bool:
        """Make more cells if rate and window permit."""
        if self.begin is None or not self.begin <= now < self.end:
            return False
        cells = min(max(int(self.rate * _CHUNK_S / CELL_BYTES), 1), _MOST_CELLS)
        due = self.rate * (now - self.begin) / CELL_BYTES + cells
        in_flight_s = self.round_trip_s + _WINDOW_S
        window = max(self.rate * in_flight_s / CELL_BYTES, 2 * cells)
        on_their_way = self._sent_cells - self._received_cells
        if self._sent_cells + cells > due or on_their_way + cells > window:
            return False
        self._outgoing += self._cells(cells)
        return True

    def _cells(self, count: int) -> bytearray:
        """Cells of random bytes; the content of those to be checked is kept."""
        made = bytearray(self.random.randbytes(count * CELL_BYTES))
        for place, byte in enumerate(struct.pack("!IB", _CIRCUIT, MEASURE)):
            made[place::CELL_BYTES] = bytes([byte]) * count
        while self._next_check < self._sent_cells + count:
            begin = (self._next_check - self._sent_cells) * CELL_BYTES + HEADER_BYTES
            kept = bytes(made[begin : begin + PAYLOAD_BYTES])
            self._expected.append((self._next_check, kept))
            self._next_check += 1 + self._gap()
        self._sent_cells += count
        return made

    def _gap(self) -> int:
        """How many cells aren't checked before the next one is: geometric."""
        if self.probability >= 1:
            return 0
        return int(math.log(1 - self.random.random()) / math.log(1 - self.probability))


@cache
def _context() -> ssl.SSLContext:
    """TLS as all Tors speak it: the certificates prove nothing to a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _cell(circuit: int, command: int, payload: bytes) -> bytes:
    return struct.pack("!IB", circuit, command) + payload.ljust(PAYLOAD_BYTES, b"\0")
