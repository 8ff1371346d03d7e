"""The calibration: what it judges right and wrong, and that in the machine it finds both."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from machine import run_inside
from rich.console import Console
from scipy.stats import binom

from testbed.errors import TestbedError
from testbed.lab.calibration import (
    CONFIDENCE,
    DirectionCounts,
    Measured,
    judge,
    lost_packets_interval,
    print_calibration,
    read_calibration,
)
from testbed.plan import Link

SENT = 110_000
WINDOW_S = 10_000 * 1514 * 8 / 300e6
"""In which 300 Mbit/s are 10 000 frames of 1514 bytes."""


def counts(loss: float = 0.001, lost: int = 110, **changes: object) -> DirectionCounts:
    link = Link(
        ends=("middle1", "exit1"),
        roles=("middle", "exit"),
        rate_bit_per_s=300_000_000,
        delay_ms=12.5,
        loss=loss,
        queue_packets=1000,
        netem_seeds=(1, 2),
    )
    right = DirectionCounts(
        sender="middle1",
        receiver="exit1",
        link=link,
        delays_ms=(12.501, 12.501, 12.502),
        rate_window_s=WINDOW_S,
        rate_packets=10_000,
        sent_segments=SENT,
        arrived_packets=SENT - lost,
        bundled_segments=0,
    )
    return right.model_copy(update=changes)


def wrong(rows: list[Measured]) -> list[str]:
    return [row.what for row in rows if not row.ok]


def test_a_right_direction_has_all_four_properties() -> None:
    rows = judge([counts()])
    assert wrong(rows) == []
    names = ["delay_ms", "rate_bit_per_s", "loss", "bundled_segments"]
    assert [row.what for row in rows if row.link == "middle1-exit1"] == names
    by_name = {row.what: row for row in rows}
    assert by_name["rate_bit_per_s"].observed == pytest.approx(300e6)
    assert by_name["loss"].observed == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"delays_ms": (12.61, 12.61, 12.61)}, "delay_ms"),
        ({"delays_ms": (12.39, 12.39, 12.39)}, "delay_ms"),
        ({"rate_packets": 10_110}, "rate_bit_per_s"),
        ({"rate_packets": 9_890}, "rate_bit_per_s"),
        ({"bundled_segments": 1}, "bundled_segments"),
    ],
)
def test_what_is_off_by_more_than_allowed_is_wrong(change: dict[str, Any], what: str) -> None:
    assert wrong(judge([counts(**change)])) == [what]


def test_what_is_off_by_less_is_right() -> None:
    near = counts(delays_ms=(12.59, 12.59, 12.59), rate_packets=9_910)
    assert wrong(judge([near])) == []


def test_a_rate_counted_without_frame_headers_would_be_found() -> None:
    """1514 bytes of frame are 1500 of IP: 0.93 %; without IP and UDP either, 2.8 %."""
    payload_only = round(10_000 * 1472 / 1514)
    assert wrong(judge([counts(rate_packets=payload_only)])) == ["rate_bit_per_s"]


def test_one_packet_lost_where_nothing_may_be_is_wrong() -> None:
    assert wrong(judge([counts(loss=0.0, lost=0)])) == []
    assert wrong(judge([counts(loss=0.0, lost=1)])) == ["loss"]
    # More arrived than were sent: something else was on the link.
    assert wrong(judge([counts(loss=0.0, lost=-1)])) == ["loss"]


def test_the_interval_of_lost_packets_is_the_binomial_one() -> None:
    least, most = lost_packets_interval(SENT, 0.001, CONFIDENCE)
    below, above = binom.cdf(least - 1, SENT, 0.001), binom.sf(most, SENT, 0.001)
    assert below <= 0.005 < binom.cdf(least, SENT, 0.001)
    assert above <= 0.005 < binom.sf(most - 1, SENT, 0.001)
    assert wrong(judge([counts(lost=most)])) == []
    # The direction, and the sum over this one direction.
    assert wrong(judge([counts(lost=most + 1)])) == ["loss", "loss"]


def test_many_directions_are_allowed_more_each_and_less_together() -> None:
    _least, most = lost_packets_interval(SENT, 0.001, CONFIDENCE)
    one_far_off = [counts(lost=110) for _ in range(23)] + [counts(lost=most + 1)]
    assert wrong(judge(one_far_off)) == []
    all_a_little_off = [counts(lost=120) for _ in range(24)]
    (pooled,) = [row for row in judge(all_a_little_off) if not row.ok]
    assert (pooled.link, pooled.packets) == ("all", 24 * SENT)


def test_losses_of_different_links_are_pooled_apart() -> None:
    rows = judge([counts(), counts(loss=0.01, lost=1100), counts(loss=0.0, lost=0)])
    assert [row.expected for row in rows if row.link == "all"] == [0.001, 0.01]
    assert wrong(rows) == []


def test_what_was_counted_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    file = tmp_path / "raw" / "calibration.jsonl"
    file.write_text(f"{counts().model_dump_json()}\n{counts(lost=0).model_dump_json()}\n")
    rows = read_calibration(tmp_path)
    assert rows == judge([counts(), counts(lost=0)])
    assert json.loads(json.dumps(asdict(rows[0])))["tolerance"] == [12.4, 12.6]


def test_a_calibration_that_was_cut_short_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"calibration\.jsonl is missing"):
        read_calibration(tmp_path)


def test_the_table_says_what_is_wrong() -> None:
    console = Console(file=io.StringIO(), width=200)
    assert print_calibration(console, judge([counts()]))
    assert not print_calibration(console, judge([counts(rate_packets=9_800)]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "300.00 / 300 " in text
    assert "294.00 / 300 " in text
    assert "0.1000 / 0.1 (" in text


SCENARIO = """
title = "Two clients, every kind of link"
topology = "two_clients"
traffic = "bulk"
duration = "5 min"
[links]
default = { rate = "300 Mbit/s" }
client-guard = { rate = "20 Mbit/s", delay = "3 ms", queue = "50 packets" }
middle-exit = { delay = "12.5 ms", loss = "0.1 %" }
"""

CALIBRATE = """
from pathlib import Path
from testbed.lab.calibration import run_calibration
from testbed.plan import make_plan

here = Path(__file__).parent
plan = make_plan(str(here.parent / "links.toml"), "vanilla")
run_calibration(plan, here{more})
"""


def calibrated(folder: Path, more: str) -> list[Measured]:
    (folder / "links.toml").write_text(SCENARIO)
    run_inside(CALIBRATE.format(more=more), folder / "machine")
    return read_calibration(folder / "machine")


@pytest.mark.experiment
def test_the_labs_links_do_what_the_scenario_says(tmp_path: Path) -> None:
    rows = calibrated(tmp_path, "")
    assert len([row for row in rows if row.what == "delay_ms"]) == 2 * 6
    assert [row for row in rows if not row.ok] == []
    (pooled,) = [row for row in rows if row.link == "all"]
    assert pooled.packets >= 2 * 100_000


@pytest.mark.experiment
def test_bundles_of_segments_are_found(tmp_path: Path) -> None:
    """The lab without its `gso_max_segs 1`: netem would drop bundles, not packets."""
    rows = calibrated(tmp_path, ", gso_max_segs=64")
    bundled = [row for row in rows if row.what == "bundled_segments"]
    assert len(bundled) == 2 * 6
    assert not any(row.ok for row in bundled)
