"""Every scenario once, short, end to end: what each adds is there, and measured."""

import json
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import polars
import pytest
from machine import run_scenario

from testbed.asked.scenario import SCENARIOS, is_sampled
from testbed.basics.toml_file import PROJECT, names_in
from testbed.results import Run

pytestmark = pytest.mark.experiment

WITH_TESTS_OF_THEIR_OWN = {
    *("One", "Two", "Three"),
    *("SharedDropping", "TwoPaths", "ThreeContinents", "ThreeContinentsBusy"),
}
"""The first three are below, the others in test_experiment, test_tor_choices and
test_loads_for_real."""


def traffic_figures(finished: Run, traffic: str) -> dict[str, Any]:
    summary = json.loads((finished.directory / "summary.json").read_text())
    (figures,) = [each for each in summary["by_traffic"] if each["traffic"] == traffic]
    return dict(figures)


SAMPLED = {name for name in names_in(SCENARIOS) if is_sampled(SCENARIOS / f"{name}.toml")}
"""Their tests are in test_sampled and test_sampled_plan."""


@pytest.mark.parametrize(
    "scenario", sorted({*names_in(SCENARIOS)} - WITH_TESTS_OF_THEIR_OWN - SAMPLED)
)
def test_a_scenario(scenario: str, tmp_path: Path) -> None:
    """Any that is there, also one that nobody has written a test for."""
    finished = run_scenario(tmp_path, scenario, "pctls", 4)
    judged = {
        "bundles crossed as one" if link.there.bundles else "packets crossed one by one"
        for link in finished.plan.links
    }
    assert {check.name for check in finished.summary.checks} >= judged
    losses = [check for check in finished.summary.checks if check.name.startswith("loss from")]
    told = {tuple(check.name.split()[2::2]) for check in losses}
    lossy = [link.roles for link in finished.plan.links if link.there.loss]
    assert told == {*lossy, *(roles[::-1] for roles in lossy)}
    assert set(finished.transfers["client"]) == set(finished.plan.traffic_by_client)
    # Whatever began while it was measured was let end.
    assert finished.transfers.filter("measured")["ok"].all()


def test_one_has_a_bulk_client_and_one_that_is_paced(tmp_path: Path) -> None:
    finished = run_scenario(tmp_path, "One", "pctls", 12, "--traffic", "audio")
    assert finished.plan.traffic_by_client == {"client1": "bulk", "client2": "audio"}
    # What is at the top is the model's under test.
    audio = traffic_figures(finished, "audio")
    assert finished.summary.time_to_last_byte_s.median == audio["time_to_last_byte_s"]["median"]
    assert 5.0 < audio["time_to_last_byte_s"]["median"] < 5.6
    assert audio["streaming"]["judged_s"] >= 6
    assert audio["streaming"]["rate_mb_per_s"]["mean"] == pytest.approx(0.05, rel=0.05)
    assert traffic_figures(finished, "bulk")["streaming"] is None
    assert traffic_figures(finished, "bulk")["throughput_mb_per_s"]["mean"] > 1.0


def test_two_has_competing_streams_that_fill_the_queue(tmp_path: Path) -> None:
    finished = run_scenario(tmp_path, "Two", "vanilla", 12)
    (entry,) = finished.summary.competing
    assert (entry.sender, entry.receiver, entry.congestion_control) == ("exit1", "middle1", "cubic")
    assert len(entry.stream_mb_per_s) == 4
    begin_s = finished.measuring_start_s + 2  # by then the circuits have their share
    later = polars.col("time_s").is_between(begin_s, begin_s + 10)
    per_client = (
        finished.delivered.filter(later).group_by("client").agg(polars.mean("received_bytes"))
    )
    circuits_mb_per_s = sum(per_client["received_bytes"].to_list()) / 1e6
    acknowledged = polars.max("acknowledged_bytes") - polars.min("acknowledged_bytes")
    during_s = polars.max("time_s") - polars.min("time_s")
    streams = (
        finished.competing.filter(later, polars.col("node") == "exit1")
        .group_by("port")
        .agg(mb_per_s=acknowledged / during_s / 1e6)
    )
    assert streams.height == 4
    competing_mb_per_s = sum(streams["mb_per_s"].to_list())
    # 300 Mbit/s less the headers of Ethernet, IP and TCP are 35.9 MB/s: full, but not too full.
    assert 30 < competing_mb_per_s + circuits_mb_per_s < 35.9
    assert sum(entry.stream_mb_per_s) == pytest.approx(competing_mb_per_s, rel=0.1)
    # A full queue of 1000 packets takes 40 ms; TCP's small queues alone would hold some 4 ms.
    assert 25 < median(finished.competing.filter(node="exit1")["rtt_ms"].to_list()) < 42


def test_three_runs_on_until_its_slow_transfers_have_ended(tmp_path: Path) -> None:
    # A bulk transfer gets some 0.02 MB/s there: 5 MB would take the test minutes.
    short = (PROJECT / "scenarios" / "Three.toml").read_text().replace('= "bulk"', '= "audio"')
    # And a topology of the user's own.
    short = short.replace('= "two_clients"', '= "./mine.py"')
    shutil.copy(PROJECT / "topologies" / "two_clients.py", tmp_path / "mine.py")
    (tmp_path / "Three.toml").write_text(short)
    finished = run_scenario(tmp_path, str(tmp_path / "Three.toml"), "pctls", 100)
    assert finished.plan.topology == "mine"
    whole = finished.transfers.filter("measured")
    assert whole["ok"].all()
    assert set(whole["client"]) == {"client1", "client2"}
    ends_s = (whole["start_s"] + whole["time_to_last_byte_s"]).to_list()
    assert max(ends_s) > finished.measuring_start_s + 100
    # 2 Mbit/s between relays: 6 s of queue, and each stream a share of 0.25 MB/s.
    assert 0.1 < sum(finished.summary.competing[0].stream_mb_per_s) < 0.24
    assert max(finished.competing.filter(node="exit1")["rtt_ms"].to_list()) > 3000
