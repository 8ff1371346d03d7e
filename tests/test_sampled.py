"""Networks drawn from a consensus: what stays of the whole, and that the seed decides it all."""

import hashlib
import json
import os
import re
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
from made_consensus import MadeRelay, document
from made_places import FILES, write_places
from scipy.stats import binomtest

from testbed import cli
from testbed.drawing import draw_scenario
from testbed.errors import InputError
from testbed.network import distilled
from testbed.network.bandwidth_weights import bandwidth_weights, totals
from testbed.network.consensus import Consensus
from testbed.network.drawn import Drawn
from testbed.network.model import RELAY_CLASSES, Network, Node
from testbed.network.places import read_places
from testbed.network.positions import relay_classes
from testbed.network.sampled import draw_network, shared_out, traffic_by_client
from testbed.network.summary import over_seeds, summary
from testbed.scenario import SCENARIOS, is_sampled
from testbed.toml_file import PROJECT, names_in

SEEDS = range(1, 11)
NUMBERS = {"middle": 0, "guard": 1, "exit": 2, "both": 3}
"""Of the classes, as `relay_classes` has them."""


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


def test_so_does_a_network_of_ten_relays() -> None:
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
    # 2022's middles had a third of the weight: nearly all guards stay guards.
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
    """One of each bin: the k-th heaviest of twenty guards is in the k-th twentieth of all."""
    for drawn in large:
        relays = drawn.consensus.relays
        guards = relays.filter(pl.Series(relay_classes(relays) == 1))["weight"].sort()
        bins = np.array_split(guards.to_numpy(), 20)[::-1]
        weights = sorted(node.weight or 0 for node in drawn.network.of_class("guard"))[::-1]
        for weight, one in zip(weights, bins, strict=True):
            # Some relays are in no country that is known: bins differ by a few relays.
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
            # 136 countries are 136 chances of an outlier: 0.1 % each is 13 % for one of them.
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


def test_relays_may_have_a_share_of_their_rates(tmp_path: Path) -> None:
    """All else stays as it is: whoever has a tenth is ten times as busy."""
    whole = draw(tmp_path, NETWORK).network
    tenth = draw(tmp_path, NETWORK + 'relay_rates = "10 %"\n').network
    for one, other in zip(whole.nodes, tenth.nodes, strict=True):
        share = 0.1 if one.kind == "relay" else 1
        for rate in ("rate_up_bit_per_s", "rate_down_bit_per_s"):
            expected = round(share * value) if (value := getattr(one, rate)) else None
            assert getattr(other, rate) == expected
        assert without_rates(one) == without_rates(other)
    assert [link.there.delay_ms for link in whole.links] == [
        link.there.delay_ms for link in tenth.links
    ]


def without_rates(node: Node) -> Node:
    return node.model_copy(update={"rate_up_bit_per_s": None, "rate_down_bit_per_s": None})


def test_ways_are_as_long_as_was_measured(large: list[Drawn]) -> None:
    """Between any two nodes of two countries that have been measured; in a country too."""
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
    # Without defaults: a network stays the same when links learn to do something more.
    network = drawn.network.model_dump(mode="json", exclude_defaults=True)
    content = [network, dict(drawn.traffic_by_client)]
    return json.dumps(content).encode()


def test_the_same_seed_gives_the_same_bytes_in_another_process(large: list[Drawn]) -> None:
    words = [sys.executable, "-m", "testbed.cli", "network", "Network19to1", "--json"]
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
    """Whatever NumPy and Polars are. If it is meant to be another one: say so in CHANGELOG."""
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


def test_loss_and_queue_are_the_scenarios(tmp_path: Path) -> None:
    drawn = draw(tmp_path, NETWORK + 'loss = "0.5 %"\nqueue = "50 packets"\nauthorities = 3\n')
    assert len(drawn.network.of_kind("authority")) == 3
    for link in drawn.network.links:
        between_sites = all(end.startswith("router-") for end in link.ends)
        for _, _, shape in link.directions():
            assert shape.loss == (0.005 if between_sites else 0)
            assert (shape.rate_bit_per_s is None) == between_sites
            assert shape.queue_packets == 50


@pytest.mark.parametrize(
    ("said", "discipline", "packets"),
    [
        ('queue_discipline = "fq_codel"', "fq_codel", 10_240),
        ('queue_discipline = "fq_codel"\nqueue = "50 packets"', "fq_codel", 50),
        ("", "fifo", 1000),
    ],
)
def test_hosts_may_have_another_queue(
    tmp_path: Path, said: str, discipline: str, packets: int
) -> None:
    for link in draw(tmp_path, f"{NETWORK}{said}\n").network.links:
        between_sites = all(end.startswith("router-") for end in link.ends)
        for _, _, shape in link.directions():
            assert shape.queue_discipline == ("fifo" if between_sites else discipline)
            assert shape.queue_packets == packets


# Bad input: a consensus made for the test, in made countries.

NETWORK = """
consensus = "consensus.parquet"
places = "places"
relays = 4
clients = 20
servers = 3
"""
GOOD = """
title = "A network"
topology = "sampled"
duration = "1 min"
[clients]
page = "95 %"
bulk5mib = "5 %"
[network]
"""
GEOIP = "".join(
    f"{first},{first + 255},{code}\n"
    for first, code in ((3221225984, "AA"), (3325256704, "BB"), (3405803776, "CC"))
)
"""192.0.2.0/24, 198.51.100.0/24 and 203.0.113.0/24 (RFC 5737), as in `made_consensus`."""
IN_PLACES = [
    MadeRelay(1000, "Fast Guard Stable V2Dir", "192.0.2.1"),
    MadeRelay(500, "Fast Guard", "192.0.2.2"),
    MadeRelay(300, "Exit Fast", "198.51.100.1"),
    MadeRelay(800, "Exit Fast Guard Stable V2Dir", "203.0.113.1"),
    MadeRelay(20, "", "203.0.113.9"),
    MadeRelay(30, "Fast", "192.0.2.9"),
]


def draw(
    folder: Path, network: str = NETWORK, *, relays: list[MadeRelay] | None = None, seed: int = 1
) -> Drawn:
    """Draw from a scenario's file in the folder, with what it needs beside it."""
    (folder / "geoip").write_text(GEOIP, encoding="utf-8")
    (folder / "document").write_text(document(relays or IN_PLACES), encoding="utf-8")
    [made] = distilled.distil([folder / "document"], folder, countries=folder / "geoip")
    made.rename(folder / "consensus.parquet")
    if not (folder / "places").exists():
        write_places(folder / "places")
    text = network if "title" in network else GOOD + network
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return draw_scenario(str(folder / "mine.toml"), seed)


def test_files_of_ones_own_are_drawn_from(tmp_path: Path) -> None:
    network = draw(tmp_path).network
    assert {node.country for node in network.of_kind("relay")} <= {"aa", "bb", "cc"}
    assert sorted(node.relay_class for node in network.of_kind("relay")) == sorted(RELAY_CLASSES)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            '"consensus.parquet"',
            '"2021-11-31"',
            'network.consensus = "2021-11-31": there is no consensus * did you mean "2021-11-30"?',
        ),
        ('"consensus.parquet"', '"geoip"', 'network.consensus = "geoip": * no consensus document'),
        ('"consensus.parquet"', '"."', 'network.consensus = ".": *'),
        (
            '"consensus.parquet"',
            '"document"',
            "network.consensus = *tells no relay's country: * ./run.py distil --geoip FILE",
        ),
        ("relays = 4", "relays = 7", "network.relays = 7: the consensus * has 6 with a weight"),
        ("relays = 4", "relays = 3", "network.relays = 3: take at least 4, one of each class: "),
        ("relays = 4", "relays = 0", "network.relays = 0 is wrong: it should be greater"),
        ("clients = 20", "clients = 10001", "network.clients = 10001 is wrong: it should be less"),
        ("relays = 4", 'relays = "4"', 'network.relays = "4" is wrong: it should be a valid int'),
        ("clients = 20", "", "the key network.clients is missing"),
        ("clients = 20", "client = 20", "unknown key network.client: did you mean "),
        ('"places"', '"nowhere"', "network.places: places: *nowhere/countries.csv: No such file"),
        ("servers = 3", 'servers = 3\nloss = "100 %"', 'network.loss = "100 %" loses every packet'),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "fq_codl"',
            'network.queue_discipline = "fq_codl" * did you mean "fq_codel"?',
        ),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "cake"\nqueue = "9 packets"',
            "network.queue is a key of the queue disciplines fifo, * here it is cake",
        ),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "sfq"\nqueue = "99999 packets"',
            "network.queue = 99999 packets: sfq holds at least 2, and here at most",
        ),
        (
            "relays = 4",
            'relays = 4\nrelay_rates = "0 %"',
            "network.relay_rates = 0 %: a relay of weight * would have 0 bit/s, where 1000 is",
        ),
        (
            'page = "95 %"',
            'page = "94 %"',
            "clients are 94 % + 5 % of the clients: the shares must add up to 100 %",
        ),
        ('page = "95 %"', 'pages = "95 %"', "clients.pages is no traffic model: did you mean "),
        ('page = "95 %"', "page = 0.95", "clients.page = 0.95 has no unit: write for example "),
        ("[network]", "[links]", "unknown key links: "),
    ],
)
def test_what_cannot_be_drawn_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = GOOD + NETWORK
    assert old in text
    with pytest.raises(InputError, match=re.escape(told).replace(r"\*", ".*")) as caught:
        draw(tmp_path, text.replace(old, new))
    message = str(caught.value)
    assert "mine.toml" in message
    assert "\n" not in message
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("flag", "relays"),
    [
        ("Exit", [one for one in IN_PLACES if "Exit" not in one.flags]),
        (
            "Exit",
            [MadeRelay(9, one.flags.replace("Exit", "BadExit Exit")) for one in IN_PLACES],
        ),
        ("Guard", [one for one in IN_PLACES if "Guard" not in one.flags]),
    ],
)
def test_without_exit_or_guard_nothing_is_drawn(
    tmp_path: Path, flag: str, relays: list[MadeRelay]
) -> None:
    told = rf'network\.consensus = ".*": none of its relays is a {flag}: no circuit'
    with pytest.raises(InputError, match=told):
        draw(tmp_path, relays=relays)


@pytest.mark.parametrize(
    ("others", "relays", "told"),
    [
        (["Guard Exit"], 2, "relays = 2: a circuit has 3 of them: take at least so many"),
        (["", "", ""], 3, "relays = 3: only one of those drawn is guard or exit, and no relay"),
    ],
)
def test_without_a_circuit_nothing_is_drawn(
    tmp_path: Path, others: list[str], relays: int, told: str
) -> None:
    """A private network's consensus may have two classes, or one."""
    flags = ["Guard Exit", "Guard Exit", *others]
    made = [MadeRelay(100, f"Fast {one}", "192.0.2.1") for one in flags]
    with pytest.raises(InputError, match=rf"mine.toml: network\.{told}"):
        draw(tmp_path, NETWORK.replace("relays = 4", f"relays = {relays}"), relays=made)
    of_all = draw(
        tmp_path, NETWORK.replace("relays = 4", f"relays = {len(made)}"), relays=made
    ).network.of_kind("relay")
    assert len(of_all) == len(made)


def test_a_site_without_a_way_is_told(tmp_path: Path) -> None:
    text = FILES["round-trips.csv"].replace("aa,cc,300.0\n", "")
    write_places(tmp_path / "places", round_trips=text)
    # By way of bb: all that the access links and two site links take.
    drawn = draw(tmp_path)
    assert drawn.routes.path("router-aa", "router-cc") == ["router-aa", "router-bb", "router-cc"]
    write_places(tmp_path / "places", round_trips=text.replace("bb,cc,150.0\n", ""))
    told = r"mine.toml: network\.places = .*: round-trips.csv: the site aa has no way to cc: add a"
    told += " line aa,cc,… .*, or take another seed$"
    with pytest.raises(InputError, match=told):
        draw(tmp_path)


def test_relays_of_no_weight_or_no_place_are_never_drawn(tmp_path: Path) -> None:
    outside = MadeRelay(10_000, "Fast Guard", "8.8.8.8")
    drawn = draw(tmp_path, relays=[*IN_PLACES, outside, MadeRelay(0, "Fast Guard", "192.0.2.7")])
    assert max(node.weight or 0 for node in drawn.network.of_kind("relay")) == 1000
    with pytest.raises(InputError, match=r"relays = 7: the consensus .* has 6 with a weight"):
        draw(tmp_path, NETWORK.replace("relays = 4", "relays = 7"), relays=[*IN_PLACES, outside])


# The command.


def status_of(*words: str) -> int:
    return cli.main(["network", *words])


def test_the_command_shows_what_a_seed_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("SmallNetwork", "--seed", "2") == 0
    shown = capsys.readouterr().out
    of = summary(draw_scenario("SmallNetwork", 2))
    assert "SmallNetwork, seed 2: 10 relays, 40 clients, 4 servers, 3 authorities" in shown
    assert "Traffic: 38 clients page, 2 clients bulk5mib" in shown
    assert of.round_trips
    assert f"median {of.round_trips.median_ms:.1f} ms" in shown
    rows = [line.split() for line in shown.splitlines()]
    guard = of.classes[0]
    assert ["guard", "4", "2544", f"{guard.weight_percent:.1f}", "57.3"] in [
        row[:5] for row in rows
    ]
    weights = [str(of.bandwidth_weights[name]) for name in ("Wgg", "Wgd", "Wmg")]
    assert ["of", "the", "drawn", "relays", *weights] in [row[:7] for row in rows]
    # All countries are counted, those not named too.
    table = [row for row in rows if len(row) > 5 and (len(row[0]) == 2 or row[1:2] == ["others"])]
    clients = [int(row[-3]) for row in table if row[-3].isdigit()]
    assert sum(clients) == 40


def test_the_command_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("SmallNetwork", "--seeds", "3", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    summaries = [summary(draw_scenario("SmallNetwork", seed)) for seed in (1, 2, 3)]
    expected = [vars(row) for row in over_seeds(summaries)]
    assert rows == expected
    guards = [one.classes[0].weight_percent for one in summaries]
    assert rows[0]["mean"] == pytest.approx(fmean(guards))
    assert (rows[0]["least"], rows[0]["greatest"]) == (min(guards), max(guards))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--seed", "3000000000"), "--seed 3000000000 is no whole number from 0 to 2147483647"),
        (("--seed", "-1"), "--seed -1 is no whole number"),
    ],
)
def test_seeds_that_no_run_can_have(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("SmallNetwork", *options) == 2
    assert told in capsys.readouterr().err


def test_one_seed_or_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        status_of("SmallNetwork", "--seed", "2", "--seeds", "3")
    assert "not allowed with argument --seed" in capsys.readouterr().err


def test_the_map_shows_every_country_and_is_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        assert status_of("SmallNetwork", "--map", str(file)) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    text = files[0].read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    # What is written in a figure stands as a comment beside its outlines.
    named = set(re.findall(r"<!-- ([a-z]{2}) -->", text))
    sites = {site.name for site in draw_scenario("SmallNetwork", 1).network.sites}
    assert named <= sites
    assert {"us", "de"} <= named
    assert status_of("SmallNetwork", "--map", str(tmp_path / "one.txt")) == 2
    assert "one.txt: figures are .svg or .png" in capsys.readouterr().err


def test_what_has_a_topology_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("One") == 2
    assert 'scenarios/One.toml: topology = "two_clients": nothing is drawn' in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "name", [name for name in names_in(SCENARIOS) if is_sampled(SCENARIOS / f"{name}.toml")]
)
def test_every_sampled_scenario_can_be_drawn(name: str) -> None:
    assert draw_scenario(name, 1).network.nodes
