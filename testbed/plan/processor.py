"""A node's processor as plain data: what it costs to move bytes through TCP connections.

`asked.processors` reads it from a scenario; kernel patch 0011 carries it out.
"""

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

PS_PER_S = 10**12
NS_PER_S = 10**9
BITS = 8


class Processor(BaseModel):
    """The time that a node's programs need for what they read from TCP connections and write.

    All programs of a node share one processor, which does one thing after the other. Loopback
    connections and those on the management network are free.

    Attributes:
        read_ps_per_byte, write_ps_per_byte: picoseconds for each byte.
        call_ns: nanoseconds for each system call that moves bytes.
        connection_ns: nanoseconds for the first bytes that are read from a connection, as they
            begin a TLS handshake.
        onionskin_ns: nanoseconds for each onionskin. Tor's workers spend them, beside the
            processor of all else.
        workers: their number; None: two, Tor's least.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    read_ps_per_byte: NonNegativeInt = 0
    write_ps_per_byte: NonNegativeInt = 0
    call_ns: NonNegativeInt = 0
    connection_ns: NonNegativeInt = 0
    onionskin_ns: NonNegativeInt = 0
    workers: PositiveInt | None = None

    def cost_s(self, read_bytes: int, written_bytes: int, calls: int) -> float:
        """The time in seconds for bytes that so many calls moved, without new connections."""
        bytes_ps = read_bytes * self.read_ps_per_byte + written_bytes * self.write_ps_per_byte
        return bytes_ps / PS_PER_S + calls * self.call_ns / NS_PER_S


def ps_per_byte(rate_bit_per_s: int) -> int:
    """The time for a byte, in picoseconds, that gives a rate."""
    return round(BITS * PS_PER_S / rate_bit_per_s)
