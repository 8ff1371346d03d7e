"""Checks of a run's tables, both ways: losses, bundles, and whether samples cover the duration."""

from dataclasses import replace
from pathlib import Path

import polars
import pytest
from made_record import (
    finished,
    raw_rows,
    socket_sample,
)

from testbed.asked.plans import make_plan
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S, Plan
from testbed.results import (
    Check,
    MachineFacts,
)
from testbed.results.checks.crossings import crossing_checks
from testbed.results.checks.losses import loss_checks
from testbed.results.link_directions import DirectionCounts, directions


def direction(plan: Plan, sent: int, lost: int, **changes: object) -> DirectionCounts:
    """The counts of the lossy link, with packets of 1000 bytes."""
    (link,) = plan.links_between("middle", "exit")
    counts = DirectionCounts(
        shape=link.there,
        sender="middle1",
        receiver="exit1",
        roles=("middle", "exit"),
        sent_packets=sent,
        sent_bytes=1000 * sent,
        lost_packets=lost,
        overflowed_packets=0,
        bundled_segments=0,
        received_packets=sent,
        received_bytes=1000 * sent,
        readings_apart_s=0.0,
    )
    return replace(counts, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lost", "ok"),
    # Of 10 000 packets at 0.1 %, none is lost with 0.999^10000 = 4.5e-5, less than the tail of
    # 5e-5; one or none with 5.0e-4. So the least is 1. At the other end, Poisson's P(X > 24) is
    # 4.7e-5 for a mean of 10 and P(X > 23) 1.2e-4: the most is 24.
    [(0, False), (1, True), (10, True), (24, True), (25, False)],
)
def test_loss_within_its_interval(plan: Plan, lost: int, ok: bool) -> None:
    (check,) = loss_checks([direction(plan, 10_000 - lost, lost)])
    assert check.name == "loss from middle to exit"
    assert check.expected.startswith("1 to 24 of 10000 packets")
    assert check.ok is ok


def test_loss_is_judged_over_the_links_of_two_roles(plan: Plan) -> None:
    busy, quiet = direction(plan, 4_990, 10), direction(plan, 100, 90)
    (check,) = loss_checks([busy, quiet, busy])
    assert check.observed == "20 of 10000 packets (0.2000%); 1 with fewer than 1000 not judged"
    (check,) = loss_checks([quiet])
    assert check.ok is None
    assert check.observed == "no direction with 1000 packets"


def test_bundles_are_found(plan: Plan) -> None:
    def check(**changed: int) -> Check:
        (found,) = crossing_checks([direction(plan, 20_000, 0, **changed)])
        return found

    assert check().ok
    # In two readings of 5 ms each, 100 Mbit/s carry 125 packets of 1000 bytes.
    assert check(received_packets=19_875).ok
    lacking = check(received_packets=19_874)
    assert not lacking.ok
    assert lacking.observed == "middle1 to exit1: 20000 sent, 19874 arrived"
    assert not check(received_bytes=20_000 * 1515).ok
    assert not check(bundled_segments=2).ok


def test_a_link_may_carry_more_where_readings_are_further_apart(plan: Plan) -> None:
    def holds(received: int) -> bool:
        ahead = direction(plan, 20_000, 0, received_packets=received, readings_apart_s=0.0125)
        return bool(next(crossing_checks([ahead])).ok)

    # 100 Mbit/s carry 156.25 packets of 1000 bytes in 12.5 ms.
    assert holds(20_157)
    assert not holds(20_158)


@pytest.mark.parametrize("taken_bytes", [0, 14])  # an interface may count frames without header
def test_small_packets_may_arrive_between_readings(plan: Plan, taken_bytes: int) -> None:
    def holds(more: int, bytes_each: int) -> bool:
        received = 20_000 + more
        size = 20_000 * 1000 + more * bytes_each - taken_bytes * received
        one = direction(plan, 20_000, 0, received_packets=received, received_bytes=size)
        return bool(next(crossing_checks([one])).ok)

    # In 10 ms 100 Mbit/s carry 125,000 bytes: 125 packets of the mean size, or 500 of 250 bytes.
    assert holds(500, 250)
    assert not holds(500, 251)
    assert not holds(500, 53)  # no packet is as small
    assert not holds(-126, 60)  # what is lost has no excuse


def test_readings_are_apart_until_the_next_senders_turn() -> None:
    """In another part, arrivals are counted as of the instant at which parts began to read."""
    plan = make_plan("NoDropping", "vanilla", changes={"kernels": 2})
    rows = raw_rows(plan)["links"]
    turns = {node: number for number, node in enumerate(dict.fromkeys(r["sender"] for r in rows))}
    for row in rows:
        slower = 2 if row["when"] == "after" else 1
        row["time_s"] = 1000.0 + slower * turns[row["sender"]]
    part_of = {node: number for number, nodes in enumerate(plan.parts) for node in nodes}
    found = {
        (one.sender, one.receiver): one.readings_apart_s
        for one in directions(plan, polars.DataFrame(rows))
    }
    assert {part_of[a] == part_of[b] for a, b in found} == {True, False}
    for (sender, receiver), apart_s in found.items():
        in_part = sorted(turns[node] for node in turns if part_of[node] == part_of[sender])
        this = in_part.index(turns[sender])
        until = in_part[min(this + 1, len(in_part) - 1)]
        since = turns[sender] if part_of[receiver] == part_of[sender] else in_part[0]
        assert apart_s == (1 + 2) * (until - since)


def test_bundles_may_leave_a_senders_own_card(plan: Plan) -> None:
    bundling = direction(plan, 20_000, 0, bundled_segments=2)
    in_sender = bundling.shape.model_copy(update={"queue_in_sender": True})
    assert list(crossing_checks([replace(bundling, shape=in_sender)])) == []


def test_full_queues_are_reported_and_allowed(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    """They are a note, and no check. The link did not lose what the queue dropped."""
    links = raw_rows(plan)["links"]
    for row in links:
        if (row["when"], row["sender"]) == ("after", "server1"):
            row |= {"overflowed_packets": 7, "dropped_packets": 7}
        if (row["when"], row["sender"], row["receiver"]) == ("after", "middle1", "exit1"):
            row |= {"overflowed_packets": 300, "dropped_packets": 320}
    summary = finished(tmp_path / "run", plan, facts, links=links)
    assert summary.valid
    note = "packets dropped by queues: 300 from middle to exit, 7 from server to exit"
    assert summary.notes[0] == note
    assert not [check for check in summary.checks if "queue" in check.name]
    (loss,) = [check for check in summary.checks if check.name == "loss from middle to exit"]
    assert loss.observed == "20 of 20320 packets (0.0984%)"
    assert "queue" not in finished(tmp_path / "other", plan, facts).notes[0]


def sampled(*ends_s: tuple[float, float]) -> list[float]:
    """The times of samples that were steady in each of some intervals."""
    return [
        start_s + LEAST_SAMPLE_INTERVAL_S * number
        for start_s, end_s in ends_s
        for number in range(round((end_s - start_s) / LEAST_SAMPLE_INTERVAL_S))
    ]


@pytest.mark.parametrize(
    ("times_s", "covered"),
    [
        (sampled((0, 10)), "10.00 s"),
        (sampled((0, 4), (4.3, 10.3)), "10.30 s"),  # one was late
        (sampled((0, 9.5)), "9.50 s"),  # the tolerance is 1 %, but at least a sample
        (sampled((0, 8.5)), "8.50 s"),
        (sampled((0, 11)), "11.00 s"),
        (sampled((0, 4), (6, 10)), "8.00 s"),  # a gap
        (sampled((0, 2), (3, 5), (6, 10)), "8.00 s"),
        (sampled((0, 4)) + [7.99] * 8 + sampled((8, 10)), "6.01 s"),  # all late ones at once
        ([], "0.00 s"),
    ],
)
def test_the_clock_covers_the_duration(
    tmp_path: Path, plan: Plan, facts: MachineFacts, times_s: list[float], covered: str
) -> None:
    sockets = [socket_sample(at_s, node) for at_s in times_s for node in plan.shared_link or ()]
    summary = finished(tmp_path / "run", plan, facts, sockets=sockets)
    (check,) = [check for check in summary.checks if check.name.startswith("samples of")]
    assert check.observed == covered
    assert check.ok is summary.valid is (9.5 <= float(covered.split()[0]) <= 10.5)


def test_both_ends_of_the_shared_link_are_sampled(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    sockets = [socket_sample(at_s, "middle1") for at_s in sampled((0, 10))]
    assert not finished(tmp_path / "run", plan, facts, sockets=sockets).valid
