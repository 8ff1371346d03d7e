"""For tests: a tiny SOCKS 5 proxy."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"


class SocksHandler(socketserver.BaseRequestHandler):
    """Ask for a user name and a password if there is one, connect, and copy both ways."""

    server: SocksServer

    def handle(self) -> None:
        version, count = self.exactly(2)
        assert version == 5
        method = 2 if self.server.password is not None else 0
        assert method in self.exactly(count)
        self.request.sendall(bytes([5, method]))
        if method:
            self.exactly(1)
            username = self.exactly(self.exactly(1)[0])
            password = self.exactly(self.exactly(1)[0])
            self.server.seen.append((username, password))
            refused = password != self.server.password
            self.request.sendall(bytes([1, refused]))
            if refused:
                return
        assert self.exactly(4) == b"\5\1\0\1"
        host, port = socket.inet_ntoa(self.exactly(4)), int.from_bytes(self.exactly(2), "big")
        if self.server.status:
            self.request.sendall(bytes([5, self.server.status, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        with socket.create_connection((host, port)) as onward:
            # One byte at a time: an answer may arrive in pieces.
            for byte in b"\5\0\0\1\x7f\0\0\1\1\1":
                self.request.sendall(bytes([byte]))
            copier = threading.Thread(target=copy, args=(self.request, onward))
            copier.start()
            copy(onward, self.request)
            copier.join()

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.request.recv(count - len(data))
            assert piece
            data += piece
        return data


class SocksServer(socketserver.ThreadingTCPServer):
    """A proxy that records the credentials that it gets in `seen`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, password: bytes | None, status: int) -> None:
        super().__init__((LOOPBACK, 0), SocksHandler)
        self.password = password
        self.status = status
        self.seen: list[tuple[bytes, bytes]] = []


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def socks_server(password: bytes | None = None, status: int = 0) -> Iterator[SocksServer]:
    with SocksServer(password, status) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def proxy_start(proxy: SocksServer, **more: str) -> dict[str, str]:
    return {"socksproxy": f"{LOOPBACK}:{proxy.server_address[1]}", **more}
