"""Streaming figures calculated by hand: judged seconds, short seconds, and stalls.

No experiment runs here; the models' pacing is tested in test_traffic_models.
"""

import polars

from testbed.results.streaming import Seconds, judged_seconds
from testbed.results.tables import SCHEMAS

RATE = 50_000


def judged(
    received: dict[float, int], *spans: tuple[float, float], ok: bool = True, measured: bool = True
) -> Seconds:
    """Judge heartbeats (bytes by time) and transfers (times of first and last byte)."""
    transfers = polars.DataFrame(
        [
            {
                "client": "client2",
                "stream_id": number,
                "start_s": first_s - 0.2,
                "time_to_first_byte_s": 0.2,
                "time_to_last_byte_s": last_s - first_s + 0.2,
                "received_bytes": 250_000,
                "ok": ok,
                "error": None,
                "measured": measured,
            }
            for number, (first_s, last_s) in enumerate(spans)
        ],
        schema=SCHEMAS["transfers"],
    )
    delivered = polars.DataFrame(
        [
            {"time_s": time_s, "client": client, "received_bytes": count, "sent_bytes": 0}
            for time_s, count in received.items()
            # Another client's seconds must not count.
            for client, count in (("client2", count), ("client1", 1))
        ],
        schema=SCHEMAS["delivered"],
    )
    return judged_seconds(transfers, delivered, "client2", RATE)


def test_only_seconds_wholly_inside_a_transfer_are_judged() -> None:
    # The first second ends 0.4 s after the first byte; the last has the last byte and a gap.
    received = {1.0: 20_000, 2.0: 50_000, 3.0: 51_100, 4.0: 49_640, 5.0: 40_000}
    assert judged(received, (0.6, 4.5)) == Seconds((50_000, 51_100, 49_640), ())


def test_consecutive_short_seconds_are_one_stall() -> None:
    received = {2.0: 50_000, 3.0: 10_000, 4.0: 0, 5.0: 90_000, 6.0: 47_499, 7.0: 47_500}
    found = judged(received, (0.5, 7.5))
    assert found.stalls_s == (2, 1)
    assert found.short_s == 3


def test_a_gap_between_transfers_ends_a_stall() -> None:
    received = {2.0: 10_000, 3.0: 10_000, 4.0: 0, 5.0: 10_000, 6.0: 50_000}
    # The fourth second has the end of one transfer and the beginning of the other.
    assert judged(received, (0.5, 3.2), (3.9, 6.5)).stalls_s == (2, 1)


def test_failed_and_unmeasured_transfers_are_not_judged() -> None:
    received = {2.0: 0, 3.0: 0}
    assert judged(received, (0.5, 4.5), ok=False) == Seconds((), ())
    assert judged(received, (0.5, 4.5), measured=False) == Seconds((), ())
