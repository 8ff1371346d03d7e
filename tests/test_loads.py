"""Transfers that begin together, uploads, outliers and fairness, calculated by hand.

test_traffic_models tests the generators' configurations, test_loads_for_real has real runs.
"""

import polars
import pytest

from testbed.results.summarising import fairness
from testbed.results.values import between_fences, loads_s, throughput_mb_per_s


def transfers(*rows: tuple[str, float, float, bool]) -> polars.DataFrame:
    """Make a table of client, start, time to last byte, and whether the transfer was complete.

    Those that begin before 0 s aren't measured.
    """
    names = ("client", "start_s", "time_to_last_byte_s", "ok")
    return polars.DataFrame(
        [
            dict(zip(names, row, strict=True)) | {"stream_id": n, "measured": row[1] >= 0}
            for n, row in enumerate(rows)
        ]
    )


def test_a_load_lasts_until_its_last_transfer_has_ended() -> None:
    table = transfers(
        ("c1", 0.0, 2.0, True),
        ("c1", 0.001, 5.0, True),
        ("c2", 0.0, 1.0, True),
        ("c2", 0.0, 3.0, True),
        ("c1", 6.0, 1.0, True),
        ("c1", 6.0, 1.5, True),
    )
    assert loads_s(table, 2).to_list() == pytest.approx([5.001, 1.5, 3.0])


def test_a_load_with_a_failed_transfer_is_left_out_and_shifts_no_other() -> None:
    table = transfers(
        ("c1", 0.0, 2.0, True),
        ("c1", 0.0, 5.0, False),
        ("c1", 6.0, 1.0, True),
        ("c1", 6.0, 1.5, True),
        ("c1", 8.0, 1.0, True),
    )
    assert loads_s(table, 2).to_list() == [1.5]


def test_a_load_that_began_in_the_warm_up_is_left_out_and_shifts_no_other() -> None:
    table = transfers(
        ("c1", -0.001, 2.0, True),
        ("c1", 0.0, 5.0, True),
        ("c1", 6.0, 1.0, True),
        ("c1", 6.0, 1.5, True),
    )
    assert loads_s(table, 2).to_list() == [1.5]


def test_throughput_counts_payload_in_either_direction() -> None:
    table = polars.DataFrame(
        {
            "received_bytes": [5_000_000, 0, 4_000_000],
            "sent_bytes": [0, 5_000_000, None],  # None in older runs
            "time_to_last_byte_s": [2.0, 4.0, 4.0],
        }
    )
    assert table.select(throughput_mb_per_s()).to_series().to_list() == [2.5, 1.25, 1.0]


def test_tukeys_fences() -> None:
    """The quartiles are 2 and 4, so the fences are at -1 and 7."""
    values = polars.Series([1.0, 2.0, 3.0, 4.0, 7.1])
    assert between_fences(values).to_list() == [1.0, 2.0, 3.0, 4.0]
    assert between_fences(polars.Series([1.0, 2.0, 3.0, 4.0, 7.0])).len() == 5
    assert between_fences(polars.Series([], dtype=polars.Float64)).len() == 0


def test_fairness() -> None:
    table = polars.DataFrame({"client": ["c1", "c1", "c2"], "throughput_mb_per_s": [1.0, 3.0, 1.0]})
    found = fairness(table, ["c1", "c2"])
    assert found
    assert found.jain_index == pytest.approx((2 + 1) ** 2 / (2 * (4 + 1)))
    assert found.largest_difference == pytest.approx(0.5)
    starved = fairness(table, ["c1", "c2", "c3"])
    assert starved
    assert starved.largest_difference == 1
    assert fairness(table, ["c1"]) is None
    assert fairness(table.clear(), ["c1", "c2"]) is None
