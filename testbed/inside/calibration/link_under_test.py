"""Measures one link with datagrams, under overload, with TCP, and under a full load."""

import math
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.calibration.counts import CalibratedDirection, LoadCounts, link_name
from testbed.inside.lab.links import LinkCounters
from testbed.inside.lab.network import Lab
from testbed.plan.model import PlannedLink
from testbed.plan.network import FULL_SIZE_PACKET_BYTES
from testbed.plan.queue_disciplines import FIFO

DELAY_DATAGRAMS = 20
RATE_PACKETS = 10_000
LOSSY_PACKETS = 105_000
LOSSLESS_PACKETS = 10_000
EXCESS = 1.05
"""How much more than the rate is offered to measure it."""
WARM_UP_PACKETS = 2_000
"""How long the overload lasts before the rate is measured, in packets' times."""
LOAD_STREAMS = 4
LOAD_SAMPLES = 200
LOAD_INTERVAL_S = 0.025
LEAST_LOAD_WARM_UP_S = 3.0
WARM_UP_EMPTYINGS = 10
"""The full load: TCP streams in one direction, sampled for five seconds.

A FIFO must be full before. Filling it takes several times as long as emptying it: CUBIC leaves slow
start long before the queue is full (HyStart, RFC 9406), and then grows slowly.

A datagram is sent with each sample, as a flow with little traffic.
"""
MOST_WAITING_PACKETS = 1000
"""Assumed for queues with a discipline, whose own limits are meant for the fastest links."""
MOST_STREAMS = 8
STREAM_PACKETS = 44
"""Packets in one stream's largest window of 64 kB."""
_IPERF_PORT = 5201
_SO_TIMESTAMPNS = 35
"""Linux's number (include/uapi/asm-generic/socket.h); Python has no name for it."""
_DATAGRAM_BYTES = 1472
_SEGMENT_BYTES = 1448
"""Payload of a full-size packet: of UDP, and of TCP with timestamps."""
_START_TRIES = 3
_POLL_INTERVAL_S = 0.05
_PATIENCE_S = 30.0


class LinkUnderTest:
    """A link with both of its directions, and the streams that measure it."""

    def __init__(self, lab: Lab, link: PlannedLink, log: int) -> None:
        first, second = link.ends
        self._lab = lab
        self._link = link
        self._shape = link.there
        rates = [shape.rate_bit_per_s or 0 for shape in (link.there, link.back)]
        self._rate_bit_per_s, self._greatest_rate_bit_per_s = min(rates), max(rates)
        self._log = log
        self._paths = (lab.path(first, second), lab.path(second, first))

    def counts(self, *, with_load: bool) -> list[CalibratedDirection]:
        """Measure both directions; `with_load` adds the queue under a full load."""
        ends = (self._link.ends, self._link.ends[::-1])
        delays_ms = [self._delays_ms(*one) for one in ends]
        window_s, rate_packets = self._rate_window()
        tcp = self._tcp_counts()
        load = [self._under_load(number) if with_load else None for number in range(2)]
        return [
            CalibratedDirection(
                sender=sender,
                receiver=receiver,
                link=self._link,
                delays_ms=delays_ms[number],
                rate_window_s=window_s,
                rate_packets=rate_packets[number],
                bundled_segments=self._counters()[number].bundled_segments,
                load=load[number],
                **tcp[number],
            )
            for number, (sender, receiver) in enumerate(ends)
        ]

    def _delays_ms(self, first: str, second: str) -> tuple[float, ...]:
        """Send datagrams one by one, each with the time at which it was sent."""
        delays_ms = []
        with (
            self._datagram_socket(first) as sender,
            self._datagram_socket(second) as receiver,
        ):
            sender.connect(receiver.getsockname())
            receiver.settimeout(self._shape.delay_ms / 1000 + 1.0)
            for _ in range(DELAY_DATAGRAMS):
                sender.send(struct.pack("!q", time.monotonic_ns()))
                try:
                    (sent_ns,) = struct.unpack("!q", receiver.recv(8))
                except TimeoutError:
                    continue  # lost
                delays_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
        if not delays_ms:
            raise TestbedError(
                f"link {link_name(self._link)}: no datagram of {DELAY_DATAGRAMS} arrived from"
                f" {first} at {second}"
            )
        return tuple(delays_ms)

    def _datagram_socket(self, node: str) -> socket.socket:
        address = self._lab.plan.node(node).address

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((address, 0))
            return made

        return self._lab.inside(node, make)

    def _rate_window(self) -> tuple[float, list[int]]:
        """Measure an overload: its seconds, and the packets that arrived in each direction."""
        payload_share = _DATAGRAM_BYTES / FULL_SIZE_PACKET_BYTES
        offered_bit_per_s = round(self._greatest_rate_bit_per_s * payload_share * EXCESS)
        options = ["-u", "-b", str(offered_bit_per_s), "-l", str(_DATAGRAM_BYTES)]
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._rate_bit_per_s
        with self._streams(["--bidir", *options]):
            time.sleep(WARM_UP_PACKETS * packet_s)
            start_s, before = time.monotonic(), self._arrived_packets()
            time.sleep(RATE_PACKETS * packet_s)
            end_s, after = time.monotonic(), self._arrived_packets()
        return end_s - start_s, _differences(after, before)

    def _tcp_counts(self) -> list[dict[str, int]]:
        """Count what TCP sends in each direction, what the link does with it, and what arrives.

        The link is empty when the count begins and when it ends.
        """
        wanted = LOSSY_PACKETS if self._shape.loss > 0 else LOSSLESS_PACKETS
        before = self._settled()
        with self._streams(["--bidir", *self._windows()]) as still_run:
            self._wait_until_moved(before, wanted, still_run)
        after = self._settled()
        return [
            {name: count - then[name] for name, count in now.items()}
            for now, then in zip(after, before, strict=True)
        ]

    def _under_load(self, number: int) -> LoadCounts:
        """Measure one direction's queue under TCP's full load."""
        (direction,), rate_bit_per_s = self._paths[number], self._rate_bit_per_s
        options = ["-P", str(LOAD_STREAMS), *(["-R"] if number else [])]
        waiting_bytes = []
        with (
            self._streams(options),
            self._datagram_socket(direction.sender) as sender,
            self._datagram_socket(direction.receiver) as receiver,
        ):
            sender.connect(receiver.getsockname())
            receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            receiver.setblocking(False)
            time.sleep(max(LEAST_LOAD_WARM_UP_S, WARM_UP_EMPTYINGS * self._emptied_s()))
            start_s, before = time.monotonic(), self._lab.counters(direction)
            for _ in range(LOAD_SAMPLES):
                waiting_bytes.append(self._lab.counters(direction).waiting_bytes)
                sender.send(struct.pack("!q", time.time_ns()))
                time.sleep(LOAD_INTERVAL_S)
            window_s, after = time.monotonic() - start_s, self._lab.counters(direction)
            time.sleep(self._emptied_s())
            datagram_delays_ms = tuple(_received_ms(receiver))
        self._settled()
        return LoadCounts(
            queue_delays_ms=tuple(8000 * waiting / rate_bit_per_s for waiting in waiting_bytes),
            datagram_delays_ms=datagram_delays_ms,
            window_s=window_s,
            sent_bytes=after.sent_bytes - before.sent_bytes,
            dropped_by_queue=after.overflowed_packets - before.overflowed_packets,
        )

    def _windows(self) -> list[str]:
        """Return iperf3's options for streams that together fill at most a third of the queue.

        Another third is for the acknowledgements of the other direction's streams.
        """
        packets = max(2, self._shape.holds_packets // 3)
        streams = min(MOST_STREAMS, math.ceil(packets / STREAM_PACKETS))
        window_bytes = min(STREAM_PACKETS, packets // streams) * _SEGMENT_BYTES
        return ["-P", str(streams), "-w", str(window_bytes)]

    def _wait_until_moved(
        self, before: list[dict[str, int]], wanted: int, still_run: Callable[[], bool]
    ) -> None:
        """Wait until both directions have sent `wanted` segments since `before`."""
        most, progress_s = 0, time.monotonic()
        then = [counts["sent_segments"] for counts in before]
        while (least := min(_differences(self._sent_segments(), then))) < wanted:
            now_s = time.monotonic()
            if least > most:
                most, progress_s = least, now_s
            elif now_s - progress_s > _PATIENCE_S or not still_run():
                raise self._failure(f"its streams ended or stalled after {least} segments")
            time.sleep(_POLL_INTERVAL_S)

    @contextmanager
    def _streams(self, options: Sequence[str]) -> Iterator[Callable[[], bool]]:
        """Run iperf3 in the context, which begins once packets flow in both directions.

        iperf3 begins a UDP stream with a datagram in each direction that it never repeats, so on a
        lossy link it must sometimes be restarted. It is killed at the end, as an iperf3 that ends
        by itself waits for its streams and keeps reading the clock.

        Yields:
            A function that says whether it still runs.
        """
        client, server = self._link.ends
        server_address = str(self._lab.plan.node(server).address)
        listen = ["iperf3", "-s", "-1", "-p", str(_IPERF_PORT)]
        stream = ["iperf3", "-c", server_address, "-p", str(_IPERF_PORT), "-t", "86400"]
        for _ in range(_START_TRIES):
            with self._program(server, listen):
                self._lab.wait_for_server(server, _IPERF_PORT)
                with self._program(client, [*stream, *options]) as process:
                    if self._flows(process):
                        yield lambda: process.poll() is None
                        return
        raise self._failure(f"iperf3 didn't start in {_START_TRIES} tries")

    @contextmanager
    def _program(self, node: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        with self._lab.start(node, command, output=self._log) as process:
            try:
                yield process
            finally:
                process.kill()

    def _flows(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the streams' packets flow in both directions; return whether they do."""
        before = self._arrived_packets()
        rate_packets_per_s = self._rate_bit_per_s / (8 * FULL_SIZE_PACKET_BYTES)
        # iperf3's own messages are fewer packets than this.
        wanted = 100
        deadline_s = time.monotonic() + 10.0 + wanted / rate_packets_per_s
        while time.monotonic() < deadline_s and process.poll() is None:
            if min(_differences(self._arrived_packets(), before)) >= wanted:
                return True
            time.sleep(_POLL_INTERVAL_S)
        return False

    def _settled(self) -> list[dict[str, int]]:
        """Wait until the counts of TCP and the link stop growing, and return them by direction."""
        seen = self._counted()
        while True:
            time.sleep(_POLL_INTERVAL_S + self._emptied_s())
            now = self._counted()
            if now == seen:
                return now
            seen = now

    def _counted(self) -> list[dict[str, int]]:
        """Read the counts of both directions, by the names of `CalibratedDirection`."""
        return [
            {
                "sent_segments": sent,
                "passed_segments": counters.sent_packets,
                "passed_bundles": counters.sent_bundles,
                "lost_by_link": counters.dropped_packets - counters.overflowed_packets,
                "dropped_by_queue": counters.overflowed_packets,
                "arrived_packets": arrived,
            }
            for sent, counters, arrived in zip(
                self._sent_segments(), self._counters(), self._arrived_packets(), strict=True
            )
        ]

    def _emptied_s(self) -> float:
        """An upper bound of the time in which a full link empties."""
        packets = self._shape.holds_packets
        if self._shape.queue_discipline != FIFO:
            packets = min(packets, MOST_WAITING_PACKETS)
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._rate_bit_per_s
        return self._shape.delay_ms / 1000 + packets * packet_s

    def _counters(self) -> list[LinkCounters]:
        return [_together([self._lab.counters(one) for one in path]) for path in self._paths]

    def _sent_segments(self) -> list[int]:
        return [_tcp_segments_out(self._lab, end) for end in self._link.ends]

    def _arrived_packets(self) -> list[int]:
        return [self._lab.arrivals(path[-1])[0] for path in self._paths]

    def _failure(self, what: str) -> TestbedError:
        name = link_name(self._link)
        return TestbedError(f"link {name}: {what}: see logs/iperf3-{name}.log")


def _together(steps: Sequence[LinkCounters]) -> LinkCounters:
    """Combine the counts of a path: packets passed by its last direction, and all losses."""
    return replace(
        steps[-1],
        dropped_packets=sum(one.dropped_packets for one in steps),
        overflowed_packets=sum(one.overflowed_packets for one in steps),
        bundled_segments=sum(one.bundled_segments for one in steps),
    )


def _received_ms(receiver: socket.socket) -> Iterator[float]:
    """Read the datagrams waiting in a socket with time stamps, and yield their delays."""
    while True:
        try:
            sent, notes, _, _ = receiver.recvmsg(8, 64)
        except BlockingIOError:
            return
        ((_, _, arrived),) = notes
        seconds, nanoseconds = struct.unpack("@qq", arrived)
        yield (seconds * 10**9 + nanoseconds - struct.unpack("!q", sent)[0]) / 1e6


def _tcp_segments_out(lab: Lab, node: str) -> int:
    """Count the segments that a node's TCP has sent; `OutSegs` excludes retransmissions."""
    # /proc/net would be that of the process, which is in another namespace than this thread.
    text = lab.inside(node, Path("/proc/thread-self/net/snmp").read_text)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    counters = dict(zip(names, values, strict=True))
    return int(counters["OutSegs"]) + int(counters["RetransSegs"])


def _differences(after: Iterable[int], before: Iterable[int]) -> list[int]:
    return [now - then for now, then in zip(after, before, strict=True)]
