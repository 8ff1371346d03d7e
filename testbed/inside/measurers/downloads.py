"""Downloads through chosen circuits of a Tor client, and the server that they come from."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from stem import CircStatus, ControllerError, StreamStatus
from stem.control import EventType
from stem.response.events import CircuitEvent, StreamEvent

from testbed.inside.lab.network import Lab
from testbed.inside.tor import socks
from testbed.inside.tor.configuration import socks_proxy
from testbed.inside.tor.process import RunningTor

PORT = 8443
"""The port from which everything is downloaded."""

_SIZE = struct.Struct(">Q")
_CHUNK = bytes(2**16)
_BUILD_TIMEOUT_S = 90.0
"""Longer than the CircuitBuildTimeout of clients, after which Tor reports a failure."""

_OPTIONS = {
    "__LeaveStreamsUnattached": "1",
    "__DisablePredictedCircuits": "1",
    "LearnCircuitBuildTimeout": "0",
    "MaxCircuitDirtiness": "1 day",
    # A stream whose CONNECTED cell is late is slow, not lost.
    "CircuitStreamTimeout": "10 minutes",
}


async def serve(lab: Lab, server: str) -> asyncio.Server:
    """Serve downloads at a node: a client says how many bytes it wants, and gets them."""

    def listen() -> socket.socket:
        return socket.create_server(("", PORT), backlog=100)

    return await asyncio.start_server(_send, sock=lab.inside(server, listen))


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        (left,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        while left:
            writer.write(_CHUNK[:left])
            left -= min(left, len(_CHUNK))
            await writer.drain()
    writer.close()


class Downloads:
    """A client's circuits and downloads; all methods belong to the loop's thread."""

    def __init__(self, lab: Lab, tor: RunningTor, server: str) -> None:
        self._inside = partial(lab.inside, tor.node.name, partial(socket.socket))
        self._controller = tor.controller
        self._proxy = socks_proxy(tor.node)
        self._request = socks.request(server, PORT)
        self._loop = asyncio.get_running_loop()
        self._building: dict[str, asyncio.Future[bool]] = {}
        self._circuits: dict[int, str] = {}
        """The circuit of each stream, by the port that it comes from."""

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Decide on the circuits of the client's streams."""
        self._controller.set_options(_OPTIONS)
        self._controller.add_event_listener(self._on_circuit, EventType.CIRC)
        self._controller.add_event_listener(self._on_stream, EventType.STREAM)
        yield
        self._controller.remove_event_listener(self._on_circuit)
        self._controller.remove_event_listener(self._on_stream)

    async def rate(
        self, fingerprints: Sequence[str], size_bytes: int, longest_s: float
    ) -> float | None:
        """Download through a circuit of its own, which is then closed.

        Args:
            fingerprints: the circuit's relays.

        Returns:
            Bytes per second from the moment at which the stream is open; None if the circuit or
            the download failed.
        """
        circuit = await self._built(fingerprints)
        if circuit is None:
            return None
        try:
            async with asyncio.timeout(longest_s):
                return await self._download(circuit, size_bytes)
        except (OSError, EOFError, TimeoutError):
            return None
        finally:
            self._close(circuit)

    async def _built(self, fingerprints: Sequence[str]) -> str | None:
        try:
            number = str(self._controller.new_circuit([*fingerprints], await_build=False))
        except ControllerError:
            return None
        built = self._building[number] = self._loop.create_future()
        try:
            async with asyncio.timeout(_BUILD_TIMEOUT_S):
                if await built:
                    return number
        except TimeoutError:
            self._close(number)
        finally:
            del self._building[number]
        return None

    def _close(self, circuit: str) -> None:
        with suppress(ControllerError):  # it has ended already
            self._controller.close_circuit(circuit)

    async def _download(self, circuit: str, size_bytes: int) -> float:
        with self._inside() as sock:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, self._proxy)
            port = sock.getsockname()[1]
            self._circuits[port] = circuit
            try:
                await self._open(sock)
                begin_s = time.monotonic()
                await self._loop.sock_sendall(sock, _SIZE.pack(size_bytes))
                await self._receive(sock, size_bytes)
                return size_bytes / (time.monotonic() - begin_s)
            finally:
                del self._circuits[port]

    async def _open(self, sock: socket.socket) -> None:
        """Ask Tor for the stream; returns when the exit has reached the server."""
        await self._loop.sock_sendall(sock, socks.GREETING)
        await self._receive(sock, socks.CHOICE_BYTES)
        await self._loop.sock_sendall(sock, self._request)
        reply = await self._receive(sock, socks.REPLY_BYTES)
        if reply[1] != socks.SUCCEEDED:
            raise OSError(f"SOCKS reply {reply[1]}")

    async def _receive(self, sock: socket.socket, size_bytes: int) -> bytes:
        """Receive so many bytes; returns the last of them that came together."""
        received = b""
        while size_bytes:
            received = await self._loop.sock_recv(sock, min(size_bytes, len(_CHUNK)))
            if not received:
                raise EOFError
            size_bytes -= len(received)
        return received

    def _on_circuit(self, event: CircuitEvent) -> None:
        """Called in the thread that handles events."""
        if event.status in (CircStatus.BUILT, CircStatus.FAILED, CircStatus.CLOSED):
            is_built = event.status == CircStatus.BUILT
            self._loop.call_soon_threadsafe(self._note, event.id, is_built)

    def _note(self, circuit: str, is_built: bool) -> None:
        built = self._building.get(circuit)
        if built and not built.done():
            built.set_result(is_built)

    def _on_stream(self, event: StreamEvent) -> None:
        """Called in the thread that handles events."""
        circuit = self._circuits.get(event.source_port or 0)
        if event.status == StreamStatus.NEW and circuit:
            with suppress(ControllerError):  # either has ended meanwhile
                self._controller.attach_stream(event.id, circuit)
