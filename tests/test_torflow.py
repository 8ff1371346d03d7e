"""TorFlow: slices of relays, circuits through them, weights of their downloads, and a real scan."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random

import pytest

from analysis.runs import Found
from commands.__main__ import main
from flashflow.errors import capacity_error, weight_error, weight_ratios
from flashflow.torflow import filtered, rated, ratios, size_bytes, slices
from study.printed import AllPrinted, Printed
from testbed.asked.measurers import scanning_plan
from testbed.asked.plans import make_plan
from testbed.basics.toml_file import PROJECT
from testbed.inside.measurers.slices import SliceScan
from testbed.network.bandwidth_file import read_bandwidth_file
from testbed.plan.model import Plan
from testbed.plan.scan import ScannedRelay, Slice

KIB, MIB = 1024, 1024**2
HIGH = {"relay": "relay1", "true_bit_per_s": 60e6}
LOW = {"relay": "relay2", "true_bit_per_s": 40e6}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return scanning_plan("SmallNetwork", 10**9, seed=1)


def test_a_client_measures_and_relays_count_what_they_carry(plan: Plan) -> None:
    assert plan.clients == ["measurer1"]
    assert plan.node("measurer1").rate_down_bit_per_s == 10**9
    assert plan.tor.torrc_relay["CountPrivateBandwidth"] == ["1"]
    assert not plan.tor.patches
    assert not plan.traffic_by_client
    busy = scanning_plan("SmallNetwork", 10**9, seed=1, clients=3)
    assert list(busy.traffic_by_client) == ["client2", "client3", "client4"]
    plain = make_plan("SmallNetwork", "vanilla").of_kind("relay")
    assert [one.weight for one in plan.of_kind("relay")] == [one.weight for one in plain]


@pytest.mark.parametrize(
    ("percentile", "size"),
    [(0, 8 * MIB), (5, 4 * MIB), (10, 2 * MIB), (39.9, MIB), (40, 512 * KIB), (99, 128 * KIB)],
)
def test_fast_relays_have_large_downloads(percentile: float, size: int) -> None:
    assert size_bytes(percentile) == size


def test_slices_have_relays_of_similar_weights(plan: Plan) -> None:
    [whole] = slices(plan)
    weights = {relay.name: relay.weight or 0 for relay in plan.of_kind("relay")}
    assert sorted(whole.relays) == sorted(weights)
    assert [weights[one] for one in whole.relays] == sorted(weights.values(), reverse=True)
    assert set(whole.exits) == {one.name for one in plan.of_kind("relay") if "exit" in one.flags}
    assert set(whole.entries) == weights.keys() - set(whole.exits)
    parts = slices(plan, 4)
    assert [len(part.relays) for part in parts] == [3, 4, 3]
    assert [part.size_bytes for part in parts] == [8 * MIB, MIB, 256 * KIB]
    assert sum((part.relays for part in parts), ()) == whole.relays
    for part in parts:
        own_exits = tuple(one for one in part.relays if one in whole.exits)
        # A slice without exits takes those of the whole network.
        assert part.exits == (own_exits or whole.exits)


def slice_of(entries: int, exits: int) -> Slice:
    first = tuple(f"entry{one}" for one in range(entries))
    last = tuple(f"exit{one}" for one in range(exits))
    return Slice(relays=(*first, *last), entries=first, exits=last, size_bytes=1)


def test_each_relay_is_in_as_many_circuits_as_asked() -> None:
    scan = SliceScan(slice_of(6, 2), 5, Random(1))
    assert scan.needed == 30
    while not scan.is_done:
        scan.note(scan.next_path(), 2.0)
    assert {relay: len(rates) for relay, rates in scan.rates.items()} == {
        **{f"entry{one}": 5 for one in range(6)},
        **{f"exit{one}": 15 for one in range(2)},
    }


def test_a_slice_without_success_comes_to_an_end() -> None:
    scan = SliceScan(slice_of(2, 2), 5, Random(1))
    tries = 0
    while not scan.is_done:
        scan.note(scan.next_path(), None)
        tries += 1
    assert tries == 40
    assert not any(scan.rates.values())
    assert sum(scan.failed.values()) == 80


def test_the_filtered_mean_leaves_slow_downloads_out() -> None:
    assert filtered([1.0, 2.0, 6.0, 7.0]) == 6.5
    assert filtered([3.0, 3.0, 3.0]) == 3.0
    assert filtered([0.1, 0.1, 0.1]) == pytest.approx(0.1)


def test_the_larger_ratio_counts() -> None:
    """Means 3, 2 and 1, whose mean is 2; filtered 4, 2 and 1, whose mean is 7/3."""
    found = ratios({"a": [1.0, 5.0, 3.0], "b": [2.0], "c": [1.0], "d": []})
    # a's downloads of 3 and 5 are at or above its mean of 3.
    assert found == pytest.approx(
        {"a": max(3 / 2, 4 / (7 / 3)), "b": max(1, 2 / (7 / 3)), "c": max(1 / 2, 1 / (7 / 3))}
    )
    assert ratios({"a": []}) == {}


def scanned(relay: str, observed: int, *rates: float) -> ScannedRelay:
    return ScannedRelay(
        relay=relay,
        fingerprint="A" * 40,
        observed_bytes_per_s=observed,
        streams_bytes_per_s=rates,
        failed=1,
    )


def test_weights_are_what_relays_observed_times_their_ratios() -> None:
    relays = [
        scanned("fast", 4_000_000, 3e6),
        scanned("slow", 1_000_000, 1e6),
        scanned("none", 500_000),
    ]
    true = {"fast": 64e6, "slow": 16e6, "none": 8e6}
    fast, slow, none = rated(relays, true)
    assert (fast.ratio, slow.ratio, none.ratio) == (1.5, 0.5, None)
    assert (fast.weight, slow.weight, none.weight) == (6000, 500, None)
    assert (fast.observed_bit_per_s, fast.error_percent) == (32e6, -50)
    assert (fast.stream_bit_per_s, fast.filtered_bit_per_s) == (24e6, 24e6)
    # Right would be four fifths and a fifth.
    assert fast.weight_ratio == pytest.approx(6000 / 6500 / 0.8)
    assert slow.weight_ratio == pytest.approx(500 / 6500 / 0.2)
    assert none.record()["weight_ratio"] is None


def test_errors_are_those_of_the_paper() -> None:
    true = [60.0, 30.0, 10.0]
    assert capacity_error([45.0, 30.0, 5.0], true) == pytest.approx(0.2)
    assert weight_ratios([1, 1, 2], true) == pytest.approx([0.25 / 0.6, 0.25 / 0.3, 5])
    assert weight_error([1, 1, 2], true) == pytest.approx((0.35 + 0.05 + 0.4) / 2)
    assert weight_error([6, 3, 1], true) == pytest.approx(0)


def test_a_topology_has_no_relays_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torflow", "NoDropping"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "its clients reach one relay each" in line


def test_the_study_has_errors_over_networks() -> None:
    spec = spec_from_file_location("weights", PROJECT / "studies" / "weights" / "figures.py")
    assert spec
    assert spec.loader
    figures = module_from_spec(spec)
    spec.loader.exec_module(figures)
    slow_start = [2e6] * 6 + [36e6] * 4
    by_flashflow = [
        {**HIGH, "bit_per_s": 54e6, "seconds_bit_per_s": [54e6] * 10},
        {**LOW, "bit_per_s": 36e6, "seconds_bit_per_s": slow_start},
    ]
    by_torflow = [
        {**HIGH, "observed_bit_per_s": 20e6, "weight": 3},
        {**LOW, "observed_bit_per_s": 30e6, "weight": 7},
    ]
    results = {"flashflow": by_flashflow, "torflow": by_torflow}
    printed = AllPrinted(
        [f"{name}-{seed}" for name in results for seed in (1, 2, 3)],
        {
            f"{name}-{seed}": Printed(f"{name} --seed {seed}", None, 1.0, relays)
            for name, relays in results.items()
            for seed in (1, 2, 3)
        },
    )
    made = figures.tables(Found({}, []), printed)
    assert made["errors"].rows == (
        ("FlashFlow", "capacity", "14", "10.0 ± 0.0"),
        ("FlashFlow", "weight", "4", "0.0 ± 0.0"),
        ("TorFlow", "capacity", "-", "50.0 ± 0.0"),
        ("TorFlow", "weight", "29", "30.0 ± 0.0"),
    )
    assert not made["clients"].rows
    fields = figures.fields(Found({}, []), printed)
    assert fields["underweighted"] == "50 %"
    assert (fields["far_below"], fields["far_below_at_the_end"]) == (3, 0)


@pytest.mark.experiment
def test_a_network_is_scanned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each relay has its downloads, and says that it has carried something, but not too much."""
    file = tmp_path / "measured.v3bw"
    network = ["--set", "network.relays=4", "--set", "network.relay_rates=20 %"]
    words = ["torflow", "SmallNetwork", *network, "--times", "2", "--json", "--v3bw", str(file)]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["relay"] for one in found] == [f"relay{number}" for number in (1, 2, 3, 4)]
    for one in found:
        assert one["downloads"] >= 2, one
        assert one["failed"] == 0, one
        assert 0 < one["stream_bit_per_s"] < one["true_bit_per_s"], one
        # At least one download in ten seconds.
        assert 0 < one["observed_bit_per_s"] <= one["true_bit_per_s"], one
    weights = {name: one.weight for name, one in read_bandwidth_file(file).by_nickname().items()}
    assert weights == {one["relay"]: one["weight"] for one in found}
    for one in found:
        assert one["weight"] == round(one["observed_bit_per_s"] / 8000 * one["ratio"])
