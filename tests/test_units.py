"""Quantities: accepted texts and their values, refused texts and the advice."""

from collections.abc import Callable

import pytest

from testbed.basics import units


@pytest.mark.parametrize(
    ("read", "text", "number"),
    [
        (units.rate_bit_per_s, "300 Mbit/s", 300_000_000),
        (units.rate_bit_per_s, "300Mbit/s", 300_000_000),
        (units.rate_bit_per_s, "0.1 Gbit / s", 100_000_000),
        (units.rate_bit_per_s, "1 MB/s", 8_000_000),
        (units.rate_bit_per_s, "1 kbit/s", 1_000),
        (units.rate_bit_per_s, "33.3 kbit/s", 33_300),
        (units.delay_ms, "12.5 ms", 12.5),
        (units.delay_ms, "0 ms", 0.0),
        (units.delay_ms, "500 us", 0.5),
        (units.delay_ms, "500 µs", 0.5),
        (units.delay_ms, "0.1 s", 100.0),
        (units.loss_fraction, "0.1 %", 0.001),
        (units.loss_fraction, "0.1%", 0.001),
        (units.loss_fraction, "0 %", 0.0),
        (units.loss_fraction, "1e-3 percent", 1e-5),
        (units.duration_s, "5 min", 300.0),
        (units.duration_s, "5 minutes", 300.0),
        (units.duration_s, "1.5 h", 5400.0),
        (units.duration_s, "90 s", 90.0),
        (units.queue_packets, "1000 packets", 1000),
        (units.bundle_segments, "2 segments", 2),
        (units.queue_packets, "1 packet", 1),
        (units.interval_us, "5 ms", 5000),
        (units.interval_us, "0.1 s", 100_000),
        (units.size_bytes, "1514 B", 1514),
        (units.size_bytes, "32 MB", 32_000_000),
    ],
)
def test_reads(read: Callable[[object], float], text: str, number: float) -> None:
    assert read(text) == number


@pytest.mark.parametrize(
    ("read", "value", "advice"),
    [
        (units.rate_bit_per_s, "300", 'has no unit: write for example "300 Mbit/s"'),
        (units.rate_bit_per_s, 300, 'has no unit: write for example "300 Mbit/s"'),
        (units.rate_bit_per_s, "300 mbit/s", '"m" is milli: for megabit write "300 Mbit/s"'),
        (units.rate_bit_per_s, "300 mB/s", '"m" is milli: for megabit write "300 MB/s"'),
        (units.rate_bit_per_s, "300 Mbps", 'unknown unit "Mbps": write for example "300 Mbit/s"'),
        (units.rate_bit_per_s, "300 Mb/s", 'unknown unit "Mb/s": write for example "300 Mbit/s"'),
        (units.rate_bit_per_s, "300 MHz", "unknown unit"),
        (units.rate_bit_per_s, "300 Mbit", "is an amount of data, not a rate"),
        (units.rate_bit_per_s, "5 min", "is a time, not a rate"),
        (units.rate_bit_per_s, "10 packets/s", "is something else, not a rate"),
        (units.rate_bit_per_s, "0 bit/s", 'below the least possible, "1 kbit/s"'),
        (units.rate_bit_per_s, "999 bit/s", 'below the least possible, "1 kbit/s"'),
        (units.rate_bit_per_s, "-1 Mbit/s", "is negative"),
        (units.rate_bit_per_s, "1e300 Mbit/s", "above the most possible"),
        (units.rate_bit_per_s, "nan Mbit/s", "is not a finite number"),
        (units.rate_bit_per_s, "inf Mbit/s", "is not a finite number"),
        (units.rate_bit_per_s, True, "is not a number with a unit"),
        (units.rate_bit_per_s, ["300 Mbit/s"], "is not a number with a unit"),
        (units.delay_ms, "12,5 ms", "is not a number with a unit"),
        (units.delay_ms, "5 min 30 s", "is not a number with a unit"),
        (units.delay_ms, "12.5", 'has no unit: write for example "12.5 ms"'),
        (units.delay_ms, "-0.1 ms", "is negative"),
        (units.delay_ms, "61 s", 'above the most possible, "60 s"'),
        (units.delay_ms, float("nan"), "is not a finite number"),
        (units.loss_fraction, "100 %", "loses every packet"),
        (units.loss_fraction, "101 %", "above the most possible"),
        (units.loss_fraction, "-1 %", "is negative"),
        (units.loss_fraction, "0.001", 'has no unit: write for example "0.001 %"'),
        (units.loss_fraction, "1e-9 %", "too small for the kernel"),
        (units.loss_fraction, "5 ms", "is a time, not a share"),
        (units.duration_s, "0 s", "below the least possible"),
        (units.duration_s, "5 m", 'unknown unit "m": write for example "5 min"'),
        (units.duration_s, "", "is not a number with a unit"),
        (units.duration_s, "1 month", "unknown unit"),
        (units.bundle_segments, "2 packets", "is a number of packets"),
        (units.queue_packets, "1000", 'has no unit: write for example "1000 packets"'),
        (units.queue_packets, "0.5 packets", "below the least possible"),
        (units.queue_packets, "1.5 packets", "is not a whole number of packets"),
        (units.queue_packets, "0 packets", "below the least possible"),
        (units.interval_us, "10.5 us", "is not a whole number of microseconds"),
        (units.interval_us, "5 B", "is an amount of data, not a time"),
        (units.size_bytes, "1.5 B", "is not a whole number of bytes"),
        (units.size_bytes, "1514", 'has no unit: write for example "1514 B"'),
        (units.queue_packets, "40 ms", "is a time, not a number of packets"),
    ],
)
def test_refuses(read: Callable[[object], float], value: object, advice: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(value)
    assert advice in str(caught.value)


def test_advice_is_accepted_itself() -> None:
    """The text that an error recommends must be accepted."""
    for read, value in (
        (units.rate_bit_per_s, "300 mbit/s"),
        (units.rate_bit_per_s, "300"),
        (units.delay_ms, "12,5"),
        (units.loss_fraction, "0.1"),
        (units.duration_s, "5"),
        (units.queue_packets, "7"),
    ):
        with pytest.raises(ValueError) as caught:
            read(value)
        read(str(caught.value).split('"')[-2])
