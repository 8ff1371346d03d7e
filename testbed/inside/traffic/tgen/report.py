"""A stream's counts and times, and the fields of TGen's log lines that report them.

`sending` and `receiving` count; `traffic.tgen_log` reads the lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.inside.traffic.tgen.transport import TransportTimes


@dataclass
class StreamDirection:
    """One direction of a stream: state as TGen names it, sizes in bytes.

    `requested` is the payload asked for: 0 for none, None for as much as the packet model makes.
    """

    state: str
    requested: int | None
    payload: int = 0
    total: int = 0

    def progress(self) -> str:
        """Return the share of the requested payload, as TGen writes it."""
        if self.requested:
            return f"{self.payload / self.requested * 100:.2f}%"
        known = self.requested == 0 or self.state.endswith("SUCCESS")
        return "100.00%" if known else "?"


@dataclass
class StreamTimes:
    """Times at which a stream reached each step, in µs of the monotonic clock; 0 if not yet."""

    command: int = 0
    response: int = 0
    first_byte_received: int = 0
    last_byte_received: int = 0
    checksum_received: int = 0
    first_byte_sent: int = 0
    last_byte_sent: int = 0
    checksum_sent: int = 0


def bytes_field(received: StreamDirection, sent: StreamDirection) -> str:
    """Compose the `bytes [...]` field."""
    return (
        f"[total-bytes-recv={received.total},total-bytes-send={sent.total},"
        f"payload-bytes-recv={received.payload},payload-bytes-send={sent.payload},"
        f"payload-progress-recv={received.progress()},payload-progress-send={sent.progress()}]"
    )


def times_field(transport: TransportTimes, stream: StreamTimes, now_us: int) -> str:
    """Compose the `times [...]` field. Each `usecs-to-` counts from the stream's creation.

    A step that was not reached is -1. `created-ts` and `now-ts` are on the monotonic clock.
    """
    start = transport.start
    steps = {
        "socket-create": transport.socket_create,
        "socket-connect": transport.socket_connect,
        "proxy-init": transport.proxy_init,
        "proxy-choice": transport.proxy_choice,
        "proxy-request": transport.proxy_request,
        "proxy-response": transport.proxy_response,
        "command": stream.command,
        "response": stream.response,
        "first-byte-recv": stream.first_byte_received,
        "last-byte-recv": stream.last_byte_received,
        "checksum-recv": stream.checksum_received,
        "first-byte-send": stream.first_byte_sent,
        "last-byte-send": stream.last_byte_sent,
        "checksum-send": stream.checksum_sent,
    }
    elapsed = (f"usecs-to-{step}={t - start if t > 0 else -1}" for step, t in steps.items())
    return f"[created-ts={start},{','.join(elapsed)},now-ts={now_us}]"
