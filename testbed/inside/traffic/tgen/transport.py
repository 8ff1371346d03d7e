"""A stream's connection: the socket, and the SOCKS 5 handshake if there is a proxy.

States and errors have TGen's names, as in log lines. `stream` uses the connection once it is open.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from testbed.inside.traffic.tgen.loop import BROKEN, READ, WRITE, Loop
from testbed.inside.traffic.tgen.options import Peer

_SOCKS_VERSION = 5
_NO_AUTHENTICATION = 0
_USER_AND_PASSWORD = 2
_IPV4, _NAME, _IPV6 = 1, 3, 4


MakeSocket = Callable[[], socket.socket]


def new_socket() -> socket.socket:
    """Make a non-blocking TCP socket."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


@dataclass
class TransportTimes:
    """Times at which each step was reached, in µs of the monotonic clock; -1 if it was not."""

    start: int
    socket_create: int
    socket_connect: int = -1
    proxy_init: int = -1
    proxy_choice: int = -1
    proxy_request: int = -1
    proxy_response: int = -1


@dataclass(frozen=True)
class Proxy:
    """A SOCKS proxy and credentials for it; without a username there is no authentication."""

    peer: Peer
    username: str | None = None
    password: str | None = None


class HandshakeError(Exception):
    """Raised if the connection or the proxy's handshake fails; the transport's error says how."""


class Transport:
    """A non-blocking TCP connection that becomes open once it can carry the stream."""

    def __init__(
        self,
        sock: socket.socket,
        times: TransportTimes,
        remote: Peer,
        proxy: Proxy | None,
        state: str,
    ) -> None:
        self.sock = sock
        self.descriptor = sock.fileno()
        self.times = times
        self.state = state
        self.error = "NONE"
        self._remote = remote
        self._proxy = proxy
        self._local = Peer(*sock.getsockname())
        self._outgoing = b""
        self._incoming = b""

    @classmethod
    def connect(
        cls, loop: Loop, remote: Peer, proxy: Proxy | None, make_socket: MakeSocket
    ) -> Transport:
        """Begin to connect.

        Raises:
            OSError: connecting failed at once (unknown name, no route).
        """
        loop.refresh()
        start = loop.now_us
        sock = make_socket()
        times = TransportTimes(start, loop.now_us)
        try:
            result = sock.connect_ex((proxy.peer if proxy else remote).address)
            if result not in (0, errno.EINPROGRESS):
                raise OSError(result, os.strerror(result))
            return cls(sock, times, remote, proxy, "CONNECT")
        except OSError:
            sock.close()
            raise

    @classmethod
    def accepted(cls, loop: Loop, sock: socket.socket, remote: Peer) -> Transport:
        """Take a connection that a peer has made."""
        sock.setblocking(False)
        return cls(sock, TransportTimes(loop.now_us, loop.now_us), remote, None, "SUCCESS_OPEN")

    @property
    def is_open(self) -> bool:
        """Whether the stream may use the socket."""
        return self.state.startswith("SUCCESS")

    def on_event(self, loop: Loop, events: int) -> int:
        """Take the next steps of connecting, and return the events to wait for.

        Raises:
            HandshakeError: connecting failed; `state` and `error` say why.
        """
        try:
            if self.state == "CONNECT":
                return self._on_connected(loop, events)
            if self._outgoing:
                return self._send(loop, b"")
            return self._on_readable(loop)
        except OSError:
            raise self._failed("READ") from None

    def mark_timeout(self, error: str) -> None:
        """Note that the handshake took too long ('STALLOUT' or 'TIMEOUT')."""
        self.error = error

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def describe(self) -> str:
        """Describe the transport in brackets, as in a log line."""
        proxy = _described(self._proxy.peer) if self._proxy else "NULL:0.0.0.0:0"
        return (
            f"[fd={self.descriptor},local={_described(self._local)},proxy={proxy},"
            f"remote={_described(self._remote)},state={self.state},error={self.error}]"
        )

    def _failed(self, error: str) -> HandshakeError:
        self.state, self.error = "ERROR", error
        return HandshakeError(error)

    def _on_connected(self, loop: Loop, events: int) -> int:
        if events & BROKEN or self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise self._failed("CONNECT")
        if not events & WRITE:
            return WRITE
        self.times.socket_connect = loop.now_us
        if self._proxy is None:
            self.state = "SUCCESS_OPEN"
            return READ | WRITE
        method = _NO_AUTHENTICATION if self._proxy.username is None else _USER_AND_PASSWORD
        self.state = "INIT"
        return self._send(loop, bytes([_SOCKS_VERSION, 1, method]))

    def _send(self, loop: Loop, data: bytes) -> int:
        self._outgoing += data
        try:
            self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]
        except BlockingIOError:
            return WRITE
        if self._outgoing:
            return WRITE
        if self.state == "INIT":
            self.times.proxy_init = loop.now_us
            self.state = "CHOICE"
        elif self.state == "AUTH_REQUEST":
            self.state = "AUTH_RESPONSE"
        elif self.state == "REQUEST":
            self.times.proxy_request = loop.now_us
            self.state = "RESPONSE_STATUS"
        return READ

    def _on_readable(self, loop: Loop) -> int:
        wanted = self._wanted_bytes()
        try:
            # Read no more than the answer: what follows belongs to the stream.
            data = self.sock.recv(wanted - len(self._incoming))
        except BlockingIOError:
            return READ
        if not data:
            raise self._failed("READ")
        self._incoming += data
        if len(self._incoming) < self._wanted_bytes():
            return READ
        answer, self._incoming = self._incoming, b""
        if self.state == "CHOICE":
            return self._on_choice(loop, answer)
        if self.state == "AUTH_RESPONSE":
            return self._on_authenticated(loop, answer)
        return self._on_response(loop, answer)

    def _wanted_bytes(self) -> int:
        if self.state != "RESPONSE_STATUS":
            return 2
        # Version, status, reserved, type of address, address (whose first byte is a name's length),
        # port (RFC 1928, section 6). A refusal may be shorter.
        if len(self._incoming) >= 2 and self._incoming[:2] != bytes([_SOCKS_VERSION, 0]):
            return len(self._incoming)
        if len(self._incoming) < 5:
            return 5
        lengths = {_IPV4: 4, _NAME: 1 + self._incoming[4], _IPV6: 16}
        return 4 + lengths.get(self._incoming[3], 1) + 2

    def _on_choice(self, loop: Loop, answer: bytes) -> int:
        assert self._proxy is not None
        self.times.proxy_choice = loop.now_us
        wanted = _NO_AUTHENTICATION if self._proxy.username is None else _USER_AND_PASSWORD
        if answer != bytes([_SOCKS_VERSION, wanted]):
            raise self._failed("CHOICE")
        if wanted == _NO_AUTHENTICATION:
            return self._request(loop)
        username = (self._proxy.username or "").encode()[:255] or b"\0"
        password = (self._proxy.password or "").encode()[:255] or b"\0"
        self.state = "AUTH_REQUEST"
        lengths = bytes([1, len(username)]), bytes([len(password)])
        return self._send(loop, lengths[0] + username + lengths[1] + password)

    def _on_authenticated(self, loop: Loop, answer: bytes) -> int:
        if answer[1] != 0:
            raise self._failed("AUTH")
        return self._request(loop)

    def _request(self, loop: Loop) -> int:
        try:
            address = bytes([_IPV4]) + ipaddress.IPv4Address(self._remote.host).packed
        except ipaddress.AddressValueError:
            name = self._remote.host.encode("idna")[:255]
            address = bytes([_NAME, len(name)]) + name
        self.state = "REQUEST"
        port = struct.pack("!H", self._remote.port)
        return self._send(loop, bytes([_SOCKS_VERSION, 1, 0]) + address + port)

    def _on_response(self, loop: Loop, answer: bytes) -> int:
        if answer[0] != _SOCKS_VERSION:
            raise self._failed("VERSION")
        if answer[1] != 0:
            raise self._failed("STATUS")
        if answer[3] not in (_IPV4, _NAME, _IPV6):
            raise self._failed("ADDR")
        # The bound address is only the proxy's own end (RFC 1928). It is ignored, as by upstream
        # since 1.1.2.
        self.times.proxy_response = loop.now_us
        self.state = "SUCCESS_OPEN"
        return READ | WRITE


def _described(peer: Peer) -> str:
    # TGen's name:address:port. Upstream asks the resolver for names; a lab has none.
    if peer.host == "127.0.0.1":
        return f"localhost:127.0.0.1:{peer.port}"
    try:
        ipaddress.IPv4Address(peer.host)
    except ipaddress.AddressValueError:
        return f"{peer.host}:0.0.0.0:{peer.port}"
    return f"NULL:{peer.host}:{peer.port}"
