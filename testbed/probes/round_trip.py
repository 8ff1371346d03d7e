"""The circuit round trip, probed through the very circuits that carry the load.

Only the probe and its row; the rate of probing is the experiment's.
"""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from testbed.lab.network import Lab
from testbed.policies.interface import PROBE_PORT
from testbed.recording import Record

PROBE_INTERVAL_S = 1.0
"""Per client. A probe is three cells of 514 bytes, against a load of megabytes a second."""

PROBE_TIMEOUT_S = 60.0
"""Longer than a stream's window of 249 kB takes at 10 kB/s, and a queue of 6 s besides."""

_SOCKS_SUCCEEDED = 0


@dataclass(frozen=True)
class RoundTrip:
    """A row of round_trips.parquet.

    Attributes:
        sent_s: Unix time at which the client's Tor was asked.
        round_trip_ms: None if no answer came that counts; `error` then says why.
    """

    sent_s: float
    client: str
    round_trip_ms: float | None
    error: str | None


async def probe_steadily(
    client: str, socks: Path, server: str, start_s: float, end_s: float, record: Record
) -> None:
    """Probe one client's circuit every `PROBE_INTERVAL_S`, whether or not the last one is back.

    What is probed: the client's Tor is asked for a stream to the server's `PROBE_PORT`, and
    the stream is closed once it is open. A BEGIN cell goes the circuit's way to the exit, the
    exit connects to the server and answers with a CONNECTED cell, which comes back behind
    whatever the circuit has queued there.

    What the number contains: both ways through every link and through every Tor's and kernel's
    queues, and the exit's connection (one round trip on the exit-server link). Neither cell
    counts towards Tor's flow-control windows, so that a full window does not delay the probe,
    and a full queue does. (A refused port would save the stream's END cell, but Tor's exit
    reports some refusals as reason MISC, upon which the client tries again.)

    Args:
        socks: the client's SOCKS port, a UNIX socket.
        server: the server's IPv4 address.
        start_s, end_s: Unix times of the first probe and after the last.
    """
    probes: set[asyncio.Task[None]] = set()
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        probes.add(asyncio.create_task(_probe(client, socks, server, record)))
        probes = {probe for probe in probes if not probe.done()}
        at_s += PROBE_INTERVAL_S
    await asyncio.gather(*probes)


@asynccontextmanager
async def probe_target(lab: Lab) -> AsyncIterator[None]:
    """The servers' ends of the probes, as long as the context lasts: they read until the end."""

    async def discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with AsyncExitStack() as stack:
        for server in lab.plan.of_kind("server"):
            address = (str(server.address), PROBE_PORT)
            listening = lab.inside(server.name, partial(socket.create_server, address))
            await stack.enter_async_context(await asyncio.start_server(discard, sock=listening))
        yield


async def _probe(client: str, socks: Path, server: str, record: Record) -> None:
    sent_s = time.time()
    round_trip_ms, error = None, None
    try:
        round_trip_ms = await asyncio.wait_for(round_trip_ms_of(socks, server), PROBE_TIMEOUT_S)
    except (OSError, EOFError, ValueError, TimeoutError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    record.round_trips.add(asdict(RoundTrip(sent_s, client, round_trip_ms, error)))


async def round_trip_ms_of(socks: Path, server: str) -> float:
    """One circuit round trip through a SOCKS port (RFC 1928), in milliseconds.

    Raises:
        ValueError: the answer was not a stream.
        OSError, EOFError: the SOCKS port did not answer.
    """
    reader, writer = await asyncio.open_unix_connection(str(socks))
    try:
        writer.write(b"\x05\x01\x00")
        await reader.readexactly(2)
        address = bytes(int(part) for part in server.split("."))
        request = b"\x05\x01\x00\x01" + address + struct.pack(">H", PROBE_PORT)
        start_s = time.monotonic()
        writer.write(request)
        reply = await reader.readexactly(4)
        took_ms = (time.monotonic() - start_s) * 1000
    finally:
        writer.close()
    if reply[1] != _SOCKS_SUCCEEDED:
        raise ValueError(f"SOCKS reply {reply[1]}, not {_SOCKS_SUCCEEDED} (succeeded)")
    return took_ms
