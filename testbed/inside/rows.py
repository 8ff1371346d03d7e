"""The rows that a run records, each defined here and nowhere else.

A class is a row, a field a column, and its annotation says what the column means. The tables'
schemas, their writing and reading, and their documentation follow from that (`inside.recording`,
`results.tables`, `./run.py reference tables`). A new column is a field; a new table is a class and
its line in `TABLES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

Later = "older runs lack this column"
"""Marks a column that is read as nulls from runs made before it was recorded."""

Time = Annotated[float, "Unix time of the machine's clock"]


@dataclass(frozen=True)
class TransferRow:
    """One of TGen's streams, including those that began after measuring.

    Times to a step are TGen's `usecs-to-…` in seconds, from the start; null if the transfer did
    not get that far.
    """

    client: str
    stream_id: Annotated[int, "TGen's number of the stream"]
    port: Annotated[int | None, "of the generator's socket", Later]
    start_s: Annotated[float, "Unix time at which the client was about to make the socket"]
    time_to_socket_create_s: Annotated[float | None, "until the client had a socket", Later]
    time_to_socket_connect_s: Annotated[float | None, "until it was connected to its Tor", Later]
    time_to_proxy_init_s: Annotated[float | None, "until it had sent the SOCKS greeting", Later]
    time_to_proxy_choice_s: Annotated[float | None, "until it had read Tor's method", Later]
    time_to_proxy_request_s: Annotated[
        float | None, "until it had sent the SOCKS request; Tor's BEGIN cell follows", Later
    ]
    time_to_proxy_response_s: Annotated[
        float | None, "until it had read the answer; Tor had the CONNECTED cell", Later
    ]
    time_to_command_s: Annotated[float | None, "until it had written TGen's request", Later]
    time_to_response_s: Annotated[float | None, "until it had read the server's answer", Later]
    time_to_first_byte_s: Annotated[float | None, "until it had read the payload's first byte"]
    time_to_last_byte_s: Annotated[
        float | None,
        "until it had read its last byte, or the server's confirmation of an upload's",
    ]
    time_to_checksum_s: Annotated[float | None, "until it had read the payload's checksum", Later]
    received_bytes: Annotated[int, "payload"]
    sent_bytes: Annotated[int, "payload", Later]
    ok: Annotated[bool, "whether all of it arrived and the checksum was right"]
    error: Annotated[str | None, "TGen's name of the failure"]
    measured: Annotated[bool, "whether it began while the run measured"]
    circuit: Annotated[str | None, "Tor's number of the circuit that carried it", Later] = None
    path: Annotated[str | None, "the names of that circuit's relays, joined by commas", Later] = (
        None
    )


@dataclass(frozen=True)
class CircuitChange:
    """One of Tor's circuit events at a client."""

    time_s: Annotated[float, "Unix time at which the event came over the control port"]
    client: str
    circuit: Annotated[str, "Tor's number"]
    status: Annotated[str, "LAUNCHED, EXTENDED, BUILT, FAILED or CLOSED"]
    round: Annotated[
        str,
        '"first" for circuits that only open the relays\' connections, "measured" for those that'
        ' carry the traffic, "other" for what Tor built by itself',
    ]
    since_extend_s: Annotated[
        float,
        "time since the testbed requested the circuit (null if it didn't), or since Tor launched it"
        " as a leg of a linked set, which can't be requested",
    ]
    hops: Annotated[str, "fingerprints of the relays so far, joined by commas"]
    reason: Annotated[str | None, "why it failed or closed"]
    for_streams: Annotated[
        bool | None, "whether it is for streams, and not for the directory or onion services", Later
    ] = None


@dataclass(frozen=True)
class StreamChange:
    """One of Tor's stream events at a client; streams to port 9 are probes."""

    time_s: Annotated[float, "Unix time at which the event came over the control port"]
    client: str
    stream: Annotated[str, "Tor's number"]
    status: Annotated[str, "NEW, SUCCEEDED or FAILED (control-spec)"]
    circuit: Annotated[str | None, "the one that carries it"]
    path: Annotated[str | None, "the names of that circuit's relays, joined by commas"]
    target: Annotated[str, "address and port"]
    source_port: Annotated[
        int | None,
        "of the generator's socket, if NEW; it identifies the transfer's stream",
        Later,
    ]
    rule: Annotated[
        str | None, "by which a policy chose the circuit; null if NEW, and without a rule", Later
    ] = None
    circuits: Annotated[int | None, "among how many open circuits the rule chose", Later] = None


@dataclass(frozen=True)
class RoundTrip:
    """A probe of a client's circuit."""

    sent_s: Annotated[float, "Unix time at which the probe was handed to the client's Tor"]
    client: str
    round_trip_ms: Annotated[float | None, "null without a valid answer"]
    error: Annotated[str | None, "why there was no valid answer"]


@dataclass(frozen=True)
class Delivered:
    """The bytes that a client's generator moved since its last heartbeat, a second earlier.

    All bytes of its sockets count, which are a little more than the payload.
    """

    time_s: Annotated[float, "Unix time of the heartbeat"]
    client: str
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class SocketSample:
    """The kernel's view of one end of a TCP connection; what happens between samples isn't seen."""

    time_s: Time
    node: Annotated[str, "the node at this end"]
    peer: Annotated[str, "the node at the other end"]
    port: Annotated[int, "TCP port at this end"]
    peer_port: Annotated[
        int, "TCP port at the other end; both ports together identify the connection"
    ]
    cwnd_segments: Annotated[int, "congestion window"]
    ssthresh_segments: Annotated[int, "slow-start threshold"]
    rtt_ms: Annotated[float, "smoothed"]
    min_rtt_ms: Annotated[float, "the smallest that the kernel has seen"]
    retransmitted_segments: Annotated[int, "total so far"]
    lost_segments: Annotated[int, "considered lost at the moment"]
    acknowledged_bytes: Annotated[int, "total so far"]
    received_bytes: Annotated[int, "total so far"]
    unsent_bytes: Annotated[int, "handed to the kernel and not yet sent"]


@dataclass(frozen=True)
class CompetingSample(SocketSample):
    """A row like those of `sockets`, of a competing stream's connection, at either end."""


@dataclass(frozen=True)
class QueueSample:
    """A circuit's cells towards the client in one second, at a recorded relay.

    `waited_ms` / `removed_cells` is the mean wait; by Little's law `waited_ms` / 1000 is the mean
    number of waiting cells. A circuit has the same number at both ends of a connection, which joins
    the relays' rows. They come from Tor's CELL_STATS events (control-spec, 4.1.21).
    """

    time_s: Annotated[float, "Unix time at which Tor reported the past second"]
    relay: Annotated[str, "the relay with the queue"]
    queue: Annotated[str, "Tor's number of the circuit on the connection"]
    connection: Annotated[str, "Tor's number of the connection"]
    next_queue: Annotated[
        str | None, "the circuit's number towards the server; null at the exit", Later
    ]
    next_connection: Annotated[str | None, "the connection towards the server", Later]
    removed_cells: Annotated[int, "cells that left the queue for the connection"]
    waited_ms: Annotated[int, "the sum of these cells' times in the queue, in steps of 10 ms"]


@dataclass(frozen=True)
class RelaySample:
    """Connections, sockets and memory of a recorded relay, every two seconds or less often."""

    time_s: Time
    relay: str
    connections: Annotated[int, "established TCP connections with other Tors"]
    most_opened_to_one: Annotated[int, "the most of these that it opened to a single relay", Later]
    sockets: Annotated[int, "sockets of all kinds that Tor has open"]
    tor_memory_bytes: Annotated[
        int, "resident anonymous memory, without the program and its libraries"
    ]
    socket_memory_bytes: Annotated[
        int,
        "kernel memory for these connections: data received and not read, or written and not"
        " acknowledged, with headers, and the kernel's reserve",
    ]
    scheduler_runs: Annotated[
        int | None,
        "how often its scheduler (KIST) has handed cells to the kernel, total so far; null unless"
        " the variant counts them (`scheduler-runs`)",
        Later,
    ] = None


@dataclass(frozen=True)
class ProcessorSecond:
    """What a processor that takes time did since its previous row, a second earlier.

    Other nodes have no rows.
    """

    time_s: Time
    node: Annotated[str, "the node whose programs share it"]
    lasted_s: Annotated[float, "the time since the previous row"]
    busy_s: Annotated[float, "how long it was busy in that time"]
    waited_s: Annotated[float, "how long programs slept until it had done what they asked for"]
    read_bytes: Annotated[int, "what programs read from TCP connections at its cost"]
    written_bytes: Annotated[int, "what they wrote at its cost"]
    calls: Annotated[int, "system calls that moved these bytes"]


@dataclass(frozen=True)
class LinkCount:
    """The counts of one direction of a link before or after the traffic, or as measuring begins.

    The sender's are those of its queueing disciplines, the receiver's those of its interface. The
    latter are null between two sites, as a site has one interface for all others.
    """

    time_s: Annotated[float, "Unix time at which the row's reading began"]
    when: Annotated[str, '"before", "after", or "measuring" if a warm-up comes before that']
    sender: str
    receiver: str
    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    overflowed_packets: Annotated[int, "those of the dropped packets that the queue dropped", Later]
    bundled_segments: Annotated[int, "segments minus bundles"]
    received_packets: int | None
    received_bytes: int | None


@dataclass(frozen=True)
class Progress:
    """How far the run is, for the host that watches it."""

    time_s: Time
    step: str
    done_s: Annotated[float, "virtual seconds since the step began"]
    of_s: Annotated[float, "how many it will take; 0 if unknown"]


@dataclass(frozen=True)
class Note:
    """A sentence that may explain a result."""

    time_s: Time
    text: str


TABLES: Mapping[str, type] = {
    "transfers": TransferRow,
    "circuits": CircuitChange,
    "streams": StreamChange,
    "round_trips": RoundTrip,
    "delivered": Delivered,
    "sockets": SocketSample,
    "competing": CompetingSample,
    "queues": QueueSample,
    "relays": RelaySample,
    "processors": ProcessorSecond,
    "links": LinkCount,
}
"""The rows of each table of a run."""

LATER_TABLES = ("streams", "relays", "processors")
"""Tables that older runs lack; they are read as empty."""

FROM_LOGS = ("transfers", "delivered")
"""The tables made from the generators' logs; the experiment records the rows of the others."""
