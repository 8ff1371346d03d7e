"""The calibration: its judgements, and that it finds right and wrong links in the machine."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from machine import run_inside
from rich.console import Console
from scipy.stats import binom

from commands.calibrate import print_calibration
from testbed.basics.errors import TestbedError
from testbed.inside.calibration.counts import CalibratedDirection, LoadCounts
from testbed.plan.model import PlannedLink
from testbed.plan.network import Shape
from testbed.results.calibration import (
    CONFIDENCE,
    Measured,
    judge,
    lost_packets_interval,
    read_calibration,
)

SENT = 110_000
WINDOW_S = 10_000 * 1514 * 8 / 300e6
"""The time that 10 000 frames of 1514 bytes take at 300 Mbit/s."""


def counts(
    loss: float = 0.001, lost: int = 110, *, bundles: bool = False, **changes: object
) -> CalibratedDirection:
    shape = Shape(rate_bit_per_s=300_000_000, delay_ms=12.5, loss=loss, bundles=bundles)
    link = PlannedLink(
        ends=("middle1", "exit1"),
        roles=("middle", "exit"),
        there=shape,
        back=shape,
        netem_seeds=(1, 2),
    )
    right = CalibratedDirection(
        sender="middle1",
        receiver="exit1",
        link=link,
        delays_ms=(12.501, 12.501, 12.502),
        rate_window_s=WINDOW_S,
        rate_packets=10_000,
        sent_segments=SENT,
        passed_segments=SENT - lost,
        passed_bundles=SENT - lost,
        lost_by_link=lost,
        dropped_by_queue=0,
        arrived_packets=SENT - lost,
        bundled_segments=0,
    )
    return right.model_copy(update=changes)


def wrong(rows: list[Measured]) -> list[str]:
    return [row.what for row in rows if not row.ok]


def test_a_correct_direction_has_all_four_properties() -> None:
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
def test_deviations_beyond_the_tolerance_are_wrong(change: dict[str, Any], what: str) -> None:
    assert wrong(judge([counts(**change)])) == [what]


def test_smaller_deviations_are_right() -> None:
    near = counts(delays_ms=(12.59, 12.59, 12.59), rate_packets=9_910)
    assert wrong(judge([near])) == []


def test_a_rate_counted_without_frame_headers_would_be_found() -> None:
    """A frame of 1514 bytes has 1500 of IP, 0.93 % less; without IP and UDP it is 2.8 % less."""
    payload_only = round(10_000 * 1472 / 1514)
    assert wrong(judge([counts(rate_packets=payload_only)])) == ["rate_bit_per_s"]


def test_one_packet_lost_on_a_lossless_link_is_wrong() -> None:
    assert wrong(judge([counts(loss=0.0, lost=0)])) == []
    assert wrong(judge([counts(loss=0.0, lost=1)])) == ["loss"]
    # More arrived than were sent: something else was on the link.
    assert wrong(judge([counts(loss=0.0, lost=-1)])) == ["loss"]


def test_the_interval_of_lost_packets_is_binomial() -> None:
    least, most = lost_packets_interval(SENT, 0.001, CONFIDENCE)
    below, above = binom.cdf(least - 1, SENT, 0.001), binom.sf(most, SENT, 0.001)
    assert below <= 0.005 < binom.cdf(least, SENT, 0.001)
    assert above <= 0.005 < binom.sf(most - 1, SENT, 0.001)
    assert wrong(judge([counts(lost=most)])) == []
    # One for the direction, and one for the sum over this only direction.
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


def test_packets_dropped_by_the_queue_are_not_losses_of_the_link() -> None:
    assert wrong(judge([counts(arrived_packets=SENT - 110 - 500, dropped_by_queue=500)])) == []


def in_bundles(lost: int = 55, segments_lost: int = 110, **changes: object) -> CalibratedDirection:
    """Return counts of bundles with two segments on average, of which every thousandth is lost."""
    passed = SENT // 2 - lost
    right = counts(bundles=True).model_copy(
        update={
            "lost_by_link": lost,
            "passed_bundles": passed,
            "arrived_packets": passed,
            "passed_segments": SENT - segments_lost,
            "bundled_segments": SENT // 2,
        }
    )
    return right.model_copy(update=changes)


def test_bundles_are_lost_as_one() -> None:
    rows = judge([in_bundles()])
    assert wrong(rows) == []
    by_name = {row.what: row for row in rows if row.link != "all"}
    assert by_name["loss"].packets == SENT // 2
    assert by_name["loss"].observed == pytest.approx(0.001)
    assert by_name["segment_loss"].observed == pytest.approx(0.001)
    assert by_name["segments_per_bundle"].observed == pytest.approx(2)
    assert "bundled_segments" not in by_name


def test_the_interval_of_lost_bundles_counts_bundles() -> None:
    least, most = lost_packets_interval(SENT // 2, 0.001, CONFIDENCE)
    assert most / (SENT // 2) > lost_packets_interval(SENT, 0.001, CONFIDENCE)[1] / SENT
    assert wrong(judge([in_bundles(lost=least), in_bundles(lost=most)])) == []
    assert wrong(judge([in_bundles(lost=most + 1)])) == ["loss", "loss"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"arrived_packets": SENT // 2 - 54}, "divided_bundles"),
        ({"segments_lost": 110 + 300}, "segment_loss"),
        ({"passed_bundles": SENT - 110, "arrived_packets": SENT - 110}, "segments_per_bundle"),
    ],
)
def test_bundles_that_did_not_cross_as_one_are_wrong(change: dict[str, Any], what: str) -> None:
    assert what in wrong(judge([in_bundles(**change)]))


def test_segments_are_not_counted_where_the_queue_drops_bundles() -> None:
    """A queue counts dropped bundles, and not their segments."""
    rows = judge([in_bundles(dropped_by_queue=3)])
    assert "segment_loss" not in [row.what for row in rows]


def loaded(most_ms: float = 40.0) -> CalibratedDirection:
    load = LoadCounts(
        queue_delays_ms=(*[10.0] * 100, *[30.0] * 99, most_ms),
        datagram_delays_ms=(14.5, 14.5, 14.5),
        window_s=1.0,
        sent_bytes=37_500_000,
        dropped_by_queue=25,
    )
    return counts(load=load)


def test_the_queue_under_a_full_load_is_shown_and_compared_with_its_length() -> None:
    rows = judge([loaded()])
    assert wrong(rows) == []
    seen = {row.what: row.observed for row in rows}
    assert (seen["queue_delay_ms"], seen["queue_delay_p95_ms"]) == (20.0, 30.0)
    assert seen["datagram_delay_ms"] == pytest.approx(2.0)
    assert seen["carried"] == pytest.approx(1.0)
    assert seen["queue_drops"] == pytest.approx(25 / (25 + 37_500_000 / 1514), rel=1e-4)
    # A thousand frames at 300 Mbit/s take 40.4 ms.
    assert wrong(judge([loaded(most_ms=41.5)])) == ["queue_delay_max_ms"]
    console = Console(file=io.StringIO(), width=80)
    print_calibration(console, rows)
    assert "fifo   middle1 to exit1  20.00   30.00" in console.file.getvalue()  # type: ignore[attr-defined]


def test_counts_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    file = tmp_path / "raw" / "calibration.jsonl"
    file.write_text(f"{counts().model_dump_json()}\n{counts(lost=0).model_dump_json()}\n")
    rows = read_calibration(tmp_path)
    assert rows == judge([counts(), counts(lost=0)])
    assert json.loads(json.dumps(asdict(rows[0])))["tolerance"] == [12.4, 12.6]


def test_an_incomplete_calibration_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"calibration\.jsonl is missing"):
        read_calibration(tmp_path)


def test_the_table_marks_what_is_wrong() -> None:
    console = Console(file=io.StringIO(), width=200)
    for rows in (judge([counts()]), judge([counts(rate_packets=9_800)])):
        print_calibration(console, rows)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "300.00 / 300 " in text
    assert "294.00 / 300 " in text
    assert text.count("All links are as the scenario says.") == 1
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
exit-server = { queue_in_sender = true }
"""

CALIBRATE = """
from pathlib import Path
from testbed.inside.calibration.counting import run_calibration
from testbed.asked.plans import make_plan

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
    """Without `gso_max_segs 1` netem would drop bundles and not packets."""
    rows = calibrated(tmp_path, ", gso_max_segs=64")
    bundled = [row for row in rows if row.what == "bundled_segments"]
    assert len(bundled) == 2 * 6
    assert not any(row.ok for row in bundled)


QUEUES = """
from pathlib import Path
from testbed.inside.calibration.counting import run_calibration
from testbed.asked.plans import make_plan

here = Path(__file__).parent
plan = make_plan(str(here.parent / "links.toml"), "vanilla")
kinds = [
    {"queue_discipline": "fq_codel", "queue_packets": 10_240},
    {"queue_discipline": "codel", "queue_parameters": {"target_us": 20_000}},
    {"queue_discipline": "pie"},
    {"queue_discipline": "cake", "queue_packets": 10_240, "delay_ms": 12.5},
    {"queue_discipline": "sfq", "queue_packets": 127, "queue_parameters": {"perturb_s": 5}},
    {"bundles": True, "loss": 0.01},
]
links = []
for link, kind in zip(plan.links, kinds, strict=True):
    said = {"rate_bit_per_s": 10_000_000, "loss": 0.0, "queue_in_sender": False} | kind
    shape = link.there.model_copy(update=said)
    links.append(link.model_copy(update={"there": shape, "back": shape}))
run_calibration(plan.model_copy(update={"links": tuple(links)}), here)
"""


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    """The calibration of a link for each queue discipline, and of one with bundles."""
    folder = tmp_path_factory.mktemp("queues")
    (folder / "links.toml").write_text(SCENARIO)
    run_inside(QUEUES, folder / "machine")
    return read_calibration(folder / "machine")


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("queue", "least_ms", "most_ms"),
    [
        # Much of it is what four streams without delay have under way at least: a few packets
        # each, which take 1.2 ms.
        ("fq_codel", 2, 30),
        ("codel", 10, 50),
        ("pie", 5, 30),
        ("cake", 2, 15),
        # Limited only by its length: 127 packets of 1.2 ms.
        ("sfq", 100, 154),
    ],
)
def test_each_queue_discipline_keeps_its_delay(
    queues: list[Measured], queue: str, least_ms: float, most_ms: float
) -> None:
    """The link keeps its delay, too: packets in the delay line are not in the queue."""
    rows = [row for row in queues if row.queue == queue]
    assert [row for row in rows if not row.ok] == []
    assert {row.what for row in rows} >= {"delay_ms", "rate_bit_per_s", "loss"}
    medians_ms = [row.observed for row in rows if row.what == "queue_delay_ms"]
    assert len(medians_ms) == 2
    assert all(least_ms <= median_ms <= most_ms for median_ms in medians_ms), medians_ms
    others_ms = [row.observed for row in rows if row.what == "datagram_delay_ms"]
    if queue in ("fq_codel", "cake", "sfq"):  # each flow has its own queue
        assert all(other_ms < least_ms for other_ms in others_ms), others_ms


@pytest.mark.experiment
def test_bundles_cross_as_one_and_are_lost_as_one(queues: list[Measured]) -> None:
    rows = [row for row in queues if row.queue == "fifo"]
    assert [row for row in rows if not row.ok] == []
    assert len([row for row in rows if row.what == "segments_per_bundle"]) == 2
