"""The circuit round trip, probed through the very circuits that carry the load.

`inside.measuring` starts the probes of all clients.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from testbed.inside.lab.network import Lab
from testbed.inside.policies.interface import PROBE_PORT
from testbed.inside.recording import Record
from testbed.inside.rows import RoundTrip
from testbed.inside.tor import socks as socks_port
from testbed.inside.tor.network import TorNetwork

PROBE_INTERVAL_S = 1.0
"""For each client. A probe is three cells of 514 bytes, against a load of megabytes a second."""

PROBE_TIMEOUT_S = 60.0
"""Longer than a stream's window of 249 kB takes at 10 kB/s, plus a queue of 6 s."""

_SHORTEST_REPLY_BYTES = 4
"""Version, status, reserved, type of address."""

REPORTING_S = 2.5
"""Enough for a report on the last second's cells, which Tor gives once a second."""


async def probe_steadily(
    client: str, socks: Path, server: str, start_s: float, end_s: float, record: Record
) -> None:
    """Probe one client's circuit every `PROBE_INTERVAL_S`, whether or not the last probe is back.

    A probe asks the client's Tor for a stream to the server's `PROBE_PORT`, and closes the stream
    once it is open. A BEGIN cell goes along the circuit to the exit; the exit connects to the
    server and answers with a CONNECTED cell, which comes back behind whatever the circuit has
    queued there.

    The round trip contains both directions of every link, the queues of every Tor and kernel, and
    the exit's connection (one round trip on the exit-server link). Neither cell counts towards
    Tor's flow-control windows, so a full queue delays the probe, but a full window does not. (A
    refused port would save the stream's END cell, but Tor's exit reports some refusals as reason
    MISC, upon which the client tries again.)

    Args:
        socks: the client's SOCKS port, a UNIX socket.
        server: the server's IPv4 address.
        start_s, end_s: the Unix times of the first probe, and after the last one.
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
async def probe_target(lab: Lab, answer: bytes = b"") -> AsyncIterator[None]:
    """Serve the servers' ends of the probes within the context; they read until the end.

    Args:
        answer: what they say to each probe first, at once.
    """

    async def discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(answer)
            await reader.read()
        writer.close()

    async with AsyncExitStack() as stack:
        for server in lab.plan.here("server"):
            address = (str(server.address), PROBE_PORT)
            listening = lab.inside(server.name, partial(socket.create_server, address))
            await stack.enter_async_context(await asyncio.start_server(discard, sock=listening))
        yield


async def probe_all_circuits(lab: Lab, network: TorNetwork, answer: bytes = b"") -> None:
    """Send a probe through each circuit of each client here, and wait for Tor to report its cells.

    The other parts of the plan do so at the same time.

    Args:
        answer: the server's answer to each probe, which is awaited.
    """
    plan = lab.plan
    async with probe_target(lab, answer):
        await lab.meeting.meet_meanwhile()
        probes = [
            asyncio.wait_for(
                round_trip_ms_of(
                    network[client].files.probe_socket,
                    str(plan.node(plan.server_of(client)).address),
                    answer_bytes=len(answer),
                ),
                PROBE_TIMEOUT_S,
            )
            for client in (node.name for node in plan.here("client"))
            for _ in range(plan.tor.parallel_circuits)
        ]
        await asyncio.gather(
            *probes, return_exceptions=True
        )  # circuits that don't answer aren't seen
        await lab.meeting.meet_meanwhile()
        await asyncio.sleep(REPORTING_S)


async def _probe(client: str, socks: Path, server: str, record: Record) -> None:
    sent_s = time.time()
    round_trip_ms, error = None, None
    try:
        round_trip_ms = await asyncio.wait_for(round_trip_ms_of(socks, server), PROBE_TIMEOUT_S)
    except (OSError, EOFError, ValueError, TimeoutError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    record.add(RoundTrip(sent_s, client, round_trip_ms, error))


async def round_trip_ms_of(socks: Path, server: str, answer_bytes: int = 0) -> float:
    """One circuit round trip through a SOCKS port (RFC 1928), in milliseconds.

    Args:
        answer_bytes: how much of the server's answer to await, after the round trip.

    Raises:
        ValueError: the answer was not a stream.
        OSError, EOFError: the SOCKS port did not answer, or not all of the server's answer came.
    """
    reader, writer = await asyncio.open_unix_connection(str(socks))
    try:
        writer.write(socks_port.GREETING)
        await reader.readexactly(socks_port.CHOICE_BYTES)
        request = socks_port.request(server, PROBE_PORT)
        start_s = time.monotonic()
        writer.write(request)
        reply = await reader.readexactly(_SHORTEST_REPLY_BYTES)
        took_ms = (time.monotonic() - start_s) * 1000
        if answer_bytes and reply[1] == socks_port.SUCCEEDED:
            rest_bytes = socks_port.REPLY_BYTES - _SHORTEST_REPLY_BYTES
            await reader.readexactly(rest_bytes + answer_bytes)
    finally:
        writer.close()
    if reply[1] != socks_port.SUCCEEDED:
        raise ValueError(f"SOCKS reply {reply[1]}, not {socks_port.SUCCEEDED} (succeeded)")
    return took_ms
