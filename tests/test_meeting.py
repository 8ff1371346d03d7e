"""Meetings of the parts of a plan, over loopback: all hear the same, and go on at once."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from testbed.inside.lab import meeting
from testbed.inside.lab.meeting import AHEAD_NS, ENDS_AT_NS, Meeting
from testbed.inside.lab.nodes import Nodes

PARTS = 3
HIGH_PORT = 34_417


class OnLoopback:
    """Stands in for a lab whose switches are this host."""

    def inside(self, _node: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401
        return make()


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each part have an address of its own on loopback."""
    monkeypatch.setattr(meeting, "meeting_address", lambda part: f"127.0.0.{10 + part}")
    monkeypatch.setattr(meeting, "PORT", HIGH_PORT)


def met_by_all(act: Callable[[Meeting, int], Any]) -> list[Any]:
    """What each part returns from a meeting; the last part comes late."""

    def of(part: int) -> Any:  # noqa: ANN401
        time.sleep(0.05 * part)
        one = Meeting(PARTS, part)
        with one.held(cast(Nodes, OnLoopback())):
            return act(one, part)

    with ThreadPoolExecutor(PARTS) as pool:
        return list(pool.map(of, range(PARTS)))


def test_all_hear_what_each_part_says() -> None:
    def twice(one: Meeting, part: int) -> Any:  # noqa: ANN401
        return one.exchange({"part": part}), asyncio.run(one.exchange_meanwhile([part]))

    heard = met_by_all(twice)
    assert heard == PARTS * [([{"part": 0}, {"part": 1}, {"part": 2}], [[0], [1], [2]])]


def test_all_go_on_at_the_same_instant() -> None:
    def instants(one: Meeting, part: int) -> Any:  # noqa: ANN401
        time.sleep(0.1 * part)
        before_ns = time.time_ns()
        return before_ns, one.meet(), asyncio.run(one.meet_meanwhile()), time.time()

    found = met_by_all(instants)
    first, second = found[0][1:3]
    assert {(one, other) for _, one, other, _ in found} == {(first, second)}
    latest_ns = max(before_ns for before_ns, *_ in found)
    assert round(first * 1e6) >= (latest_ns + AHEAD_NS) // 1000
    assert round(first * 1e6) % (ENDS_AT_NS // 1000) == 0
    assert second > first
    assert min(ended_s for *_, ended_s in found) >= second


def test_one_part_meets_nobody() -> None:
    alone = Meeting(1, 0)
    with alone.held(cast(Nodes, OnLoopback())):
        assert alone.exchange("said") == ["said"]
        assert alone.meet() is None
        assert asyncio.run(alone.meet_meanwhile()) is None
        assert asyncio.run(alone.exchange_meanwhile(1)) == [1]
