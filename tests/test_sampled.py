"""Networks drawn from the live network's consensuses: the properties that they keep, and seeds."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import polars as pl
import pytest
from drawn_networks import draw_scenario
from scipy.stats import binomtest

from testbed.asked.scenario import SCENARIOS, is_sampled
from testbed.basics.toml_file import PROJECT, names_in
from testbed.network import distilled
from testbed.network.bandwidth_weights import bandwidth_weights, totals
from testbed.network.consensus import Consensus
from testbed.network.drawn import Drawn
from testbed.network.places import read_places
from testbed.network.positions import relay_classes
from testbed.network.sampled import draw_network, shared_out, traffic_by_client
from testbed.network.summary import summary
from testbed.plan.network import RELAY_CLASSES, Network

SEEDS = range(1, 11)


NUMBERS = {"middle": 0, "guard": 1, "exit": 2, "both": 3}
"""The numbers of the classes in `relay_classes`."""


@pytest.fixture(scope="module")
def large() -> list[Drawn]:
    return [draw_scenario("Network19to1", seed) for seed in SEEDS]


def test_there_are_as_many_as_the_scenario_says(large: list[Drawn]) -> None:
    for drawn in large:
        kinds = Counter(node.kind for node in drawn.network.nodes)
        assert (kinds["relay"], kinds["client"], kinds["server"]) == (50, 500, 50)
        assert kinds["router"] == len(drawn.network.sites)
        # As in the consensus: 2544, 409, 1048 and 2399 of 6400 relays.
        counts = [len(drawn.network.of_class(one)) for one in RELAY_CLASSES]
        assert counts == [20, 3, 8, 19]


def test_each_class_keeps_its_share_of_the_weight(large: list[Drawn]) -> None:
    for of_class in zip(*(summary(drawn).classes for drawn in large), strict=True):
        whole = of_class[0].consensus_weight_percent
        shares = [one.weight_percent for one in of_class]
        assert max(abs(share - whole) for share in shares) < 1.5, of_class[0].relay_class
        assert fmean(shares) == pytest.approx(whole, abs=0.5)


def test_a_network_of_ten_relays_keeps_its_shares() -> None:
    for seed in SEEDS:
        for one in summary(draw_scenario("SmallNetwork", seed)).classes:
            assert one.weight_percent == pytest.approx(one.consensus_weight_percent, abs=5)


@pytest.mark.parametrize("name", ["2021-11-30", "2022-11-19", "2026-04-18"])
def test_other_consensuses_keep_their_shares_too(tmp_path: Path, name: str) -> None:
    text = (SCENARIOS / "Network19to1.toml").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("2021-11-30", name), encoding="utf-8")
    drawn = draw_scenario(str(file), 1)
    assert drawn.consensus.name == name
    for one in summary(drawn).classes:
        assert one.weight_percent == pytest.approx(one.consensus_weight_percent, abs=1.5)
    # In 2022 middles had a third of the weight, so nearly all guards stay guards.
    wgg = drawn.bandwidth_weights["Wgg"]
    assert wgg == pytest.approx(drawn.consensus.bandwidth_weights["Wgg"], abs=150)


def test_relays_are_the_consensuss_own_and_none_is_drawn_twice(large: list[Drawn]) -> None:
    drawn = large[0]
    relays = drawn.consensus.relays
    names = {number: name for name, number in NUMBERS.items()}
    classes = [names[int(number)] for number in relay_classes(relays)]
    there = Counter(zip(classes, relays["weight"], relays["country"], strict=True))
    found = Counter(
        (node.relay_class, node.weight, node.country) for node in drawn.network.of_kind("relay")
    )
    assert all(there[key] >= count for key, count in found.items())


def test_relays_are_of_all_sizes(large: list[Drawn]) -> None:
    """There is one from each bin: the k-th heaviest of twenty guards is in the k-th twentieth."""
    for drawn in large:
        relays = drawn.consensus.relays
        guards = relays.filter(pl.Series(relay_classes(relays) == 1))["weight"].sort()
        bins = np.array_split(guards.to_numpy(), 20)[::-1]
        weights = sorted(node.weight or 0 for node in drawn.network.of_class("guard"))[::-1]
        for weight, one in zip(weights, bins, strict=True):
            # Some relays are in no known country, so bins differ by a few relays.
            assert 0.9 * one.min() <= weight <= 1.1 * one.max()


def test_bandwidth_weights_are_those_of_the_drawn_relays(large: list[Drawn]) -> None:
    for drawn in large:
        relays = drawn.network.of_kind("relay")
        as_consensus = pl.DataFrame(
            {
                "weight": [relay.weight for relay in relays],
                "guard": ["guard" in relay.flags for relay in relays],
                "exit": ["exit" in relay.flags for relay in relays],
                "bad_exit": [False] * len(relays),
            }
        )
        consensus = replace(drawn.consensus, relays=as_consensus)
        assert drawn.bandwidth_weights == bandwidth_weights(totals(consensus))
        for name in ("Wgg", "Wmg"):
            whole = drawn.consensus.bandwidth_weights[name]
            assert drawn.bandwidth_weights[name] == pytest.approx(whole, abs=200)


def test_users_are_where_tors_users_are(large: list[Drawn]) -> None:
    """Each country's clients and servers, over all seeds, within a binomial interval of 99.9 %."""
    nodes = [node for drawn in large for node in drawn.network.nodes]
    for kind in ("client", "server"):
        countries = Counter(node.country for node in nodes if node.kind == kind)
        for code, country in large[0].places.countries.items():
            test = binomtest(countries[code], countries.total(), country.users_share)
            # 136 countries are 136 chances of an outlier: 0.1 % for each is 13 % for any.
            assert test.pvalue > 0.0005, (kind, code, countries[code], country.users_share)


def test_rates_are_those_of_weights_and_countries(large: list[Drawn]) -> None:
    drawn = large[0]
    for node in drawn.network.nodes:
        country = drawn.places.countries[node.country or ""]
        rates = node.rate_up_bit_per_s, node.rate_down_bit_per_s
        match node.kind:
            case "relay":
                assert set(rates) == {drawn.places.relay_rate_bit_per_s(node.weight or 0)}
            case "client":
                assert rates == (country.rate_up_bit_per_s, country.rate_down_bit_per_s)
            case "router":
                assert rates == (None, None)
            case _:
                assert rates == (1_000_000_000, 1_000_000_000)


def test_routes_take_as_long_as_was_measured(large: list[Drawn]) -> None:
    """Between any two nodes of two countries with a measured round trip, and within a country."""
    drawn = large[0]
    hosts = [node for node in drawn.network.nodes if node.kind != "router"][::7]
    measured = 0
    for first in hosts:
        for second in hosts:
            one, other = sorted((first.country or "", second.country or ""))
            pair = one, other
            if one == other or pair not in drawn.places.round_trips_ms:
                continue
            measured += 1
            round_trip_ms = drawn.routes.round_trip_ms(first.name, second.name)
            assert round_trip_ms == pytest.approx(drawn.places.round_trips_ms[pair], abs=0.01)
    assert measured > 5000
    us = [node.name for node in hosts if node.country == "us"]
    within_ms = 4 * drawn.places.access_delay_ms["us"]
    assert drawn.routes.round_trip_ms(us[0], us[1]) == pytest.approx(within_ms, abs=0.01)
    assert drawn.routes.rate_bit_per_s("client1", "relay1") == min(
        drawn.network.node("client1").rate_up_bit_per_s or 0,
        drawn.network.node("relay1").rate_down_bit_per_s or 0,
    )


def as_bytes(drawn: Drawn) -> bytes:
    # Without defaults a network stays the same when links get new settings.
    network = drawn.network.model_dump(mode="json", exclude_defaults=True)
    content = [network, dict(drawn.traffic_by_client)]
    return json.dumps(content).encode()


def test_the_same_seed_gives_the_same_bytes_in_another_process(large: list[Drawn]) -> None:
    words = [sys.executable, "-m", "commands", "network", "Network19to1", "--json"]
    outputs = [
        subprocess.run(
            words, cwd=PROJECT, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    content = json.loads(outputs[0])
    assert Network.model_validate(content["network"]) == large[0].network
    assert content["traffic_by_client"] == large[0].traffic_by_client


def test_the_same_seed_gives_the_same_network_as_ever() -> None:
    """It doesn't depend on NumPy and Polars. An intended change belongs into CHANGELOG."""
    digest = hashlib.sha256(as_bytes(draw_scenario("SmallNetwork", 1))).hexdigest()
    assert digest[:16] == "0e8ad95d6765f32f"


def test_another_seed_gives_another_network(large: list[Drawn]) -> None:
    assert len({as_bytes(drawn) for drawn in large}) == len(large)
    chosen: list[Callable[[Drawn], object]] = [
        lambda one: [node for node in one.network.nodes if node.kind == "relay"],
        lambda one: [node for node in one.network.nodes if node.kind == "client"],
        lambda one: [node for node in one.network.nodes if node.kind == "server"],
        lambda one: one.traffic_by_client,
    ]
    for of in chosen:
        assert of(large[0]) != of(large[1])


def test_more_clients_leave_the_others_where_they_are() -> None:
    consensus, places = large_consensus(), read_places()
    few, many = (
        draw_network(consensus, places, relays=10, clients=clients, servers=2, seed=1)
        for clients in (5, 50)
    )
    assert many.of_kind("client")[:5] == few.of_kind("client")
    assert many.of_kind("relay") == few.of_kind("relay")


def large_consensus() -> Consensus:
    return distilled.read_distilled(distilled.CONSENSUSES / "2021-11-30.parquet", "2021-11-30")


def test_traffic_is_shared_out_exactly(large: list[Drawn]) -> None:
    assert Counter(large[0].traffic_by_client.values()) == {"page": 475, "bulk5mib": 25}
    bulk = {"a": 1 / 3, "b": 2 / 3}
    clients = [f"client{number}" for number in range(10)]
    assert Counter(traffic_by_client(bulk, clients, 1).values()) == {"a": 3, "b": 7}


def test_sharing_out() -> None:
    assert shared_out(10, {"a": 64, "b": 164, "c": 375, "d": 397}, least=1) == {
        **{"a": 1, "b": 1, "c": 4, "d": 4},
    }
    assert shared_out(4, {"a": 1, "b": 1000, "c": 1, "d": 1}, least=1) == dict.fromkeys("abcd", 1)
    assert shared_out(5, {"a": 0.0, "b": 1.0}) == {"a": 0, "b": 5}


@pytest.mark.parametrize(
    "name", [name for name in names_in(SCENARIOS) if is_sampled(SCENARIOS / f"{name}.toml")]
)
def test_every_sampled_scenario_can_be_drawn(name: str) -> None:
    assert draw_scenario(name, 1).network.nodes
