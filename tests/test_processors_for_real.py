"""Real runs in which a relay's processor takes time."""

from pathlib import Path

import polars
import pytest
from machine import run_scenario

pytestmark = pytest.mark.experiment

RATE = "50 Mbit/s"


def test_a_busy_middle_carries_its_rate(tmp_path: Path) -> None:
    setting = f"nodes.middle1.processor={RATE}"
    run = run_scenario(tmp_path, "NoDropping", "pctls+scheduler-runs", 10, "--set", setting)
    assert run.summary.valid
    # In the seconds in which all clients' files end together it waits for the next ones.
    full = run.processors.filter(polars.col("busy_s") > 0.999 * polars.col("lasted_s"))
    assert full.height >= 5
    rates = 8 * full["read_bytes"] / full["lasted_s"] / 1e6
    assert rates.min() == pytest.approx(50, abs=0.5)
    assert rates.max() == pytest.approx(50, abs=0.5)
    intervals_ms = {one.relay: one.scheduler_interval_ms or 0 for one in run.summary.relays}
    # KIST's own interval is 2 ms, rounded to milliseconds; a busy relay comes to it less often.
    assert min(intervals_ms.values()) > 1.5
    assert intervals_ms["middle1"] > 2 * intervals_ms["guard1"]


def test_circuits_take_longer_by_their_onionskins(tmp_path: Path) -> None:
    settings = (f"nodes.{role}.processor.per_onionskin=50 ms" for role in ("guard", "exit"))
    options = [word for setting in settings for word in ("--set", setting)]
    free = run_scenario(tmp_path / "free", "One", "vanilla", 5)
    slow = run_scenario(tmp_path / "slow", "One", "vanilla", 5, *options)
    times_ms = [run.summary.circuit_build_time_ms.median or 0 for run in (free, slow)]
    # The guard's one onionskin and the exit's, one after the other, at two workers each.
    assert times_ms[1] - times_ms[0] == pytest.approx(100, abs=10)
