"""Uploads, and loads of several transfers, in short real runs; test_loads calculates by hand."""

from pathlib import Path

import pytest
from machine import run_scenario

from testbed.inside.traffic.models import MODELS

pytestmark = pytest.mark.experiment


def test_two_users_beside_other_traffic(tmp_path: Path) -> None:
    set_clients = ("--set", "parameters.clients=2")
    run = run_scenario(
        tmp_path, "ThreeContinentsBusy", "mctor-3", 20, "--traffic", "mctor-video", *set_clients
    )
    (figures,) = run.summary.by_traffic
    assert figures.direction == "download"
    assert figures.transfers.completed % MODELS["mctor-video"].at_once == 0
    assert figures.load_s and figures.load_s.mean
    assert figures.fairness and figures.fairness.jain_index > 0.9
    # Each user's six transfers take turns on three circuits, so each circuit carries two of a load.
    carried = run.transfers.filter("measured", "ok").group_by("client", "circuit").len()
    assert carried.height == 2 * 3
    assert set(carried["len"] % 2) == {0}
    # A load ends with its slowest transfer.
    assert figures.time_to_last_byte_s.mean and figures.load_s.mean
    assert figures.load_s.mean > figures.time_to_last_byte_s.mean
    rates = [rate for entry in run.summary.competing for rate in entry.stream_mb_per_s]
    assert rates == pytest.approx([5 / 8] * 2, rel=0.05)


def test_uploads(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, "NoDropping", "pctls", 6, "--traffic", "upload")
    (figures,) = run.summary.by_traffic
    assert figures.direction == "upload"
    whole = run.transfers.filter("ok", "measured")
    assert set(whole["sent_bytes"]) == {5_000_000}
    assert set(whole["received_bytes"]) == {0}
    # The payload has crossed the shared link, away from the clients.
    after, before = (
        run.links.filter(sender="middle1", receiver="exit1", when=when)["sent_bytes"][0]
        for when in ("after", "before")
    )
    assert after - before > whole["sent_bytes"].sum()
    assert figures.throughput_mb_per_s.mean and figures.throughput_mb_per_s.mean < 300 / 8
