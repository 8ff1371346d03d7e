"""`network`: what it prints, its map, and the input that it refuses."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
from drawn_networks import draw_scenario

from commands.__main__ import main
from testbed.network.summary import over_seeds, summary


def status_of(*words: str) -> int:
    return main(["network", *words])


def test_the_command_shows_what_a_seed_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("SmallNetwork", "--seed", "2") == 0
    shown = capsys.readouterr().out
    of = summary(draw_scenario("SmallNetwork", 2))
    assert "SmallNetwork, seed 2: 10 relays, 40 clients, 4 servers, 3 authorities" in shown
    assert "Traffic: 38 clients page, 2 clients bulk5mib" in shown
    assert re.search(r"Load: relay\d+ is expected to use [\d.]+ % of its rate", shown)
    assert of.round_trips
    assert f"median {of.round_trips.median_ms:.1f} ms" in shown
    rows = [line.split() for line in shown.splitlines()]
    guard = of.classes[0]
    assert ["guard", "4", "2544", f"{guard.weight_percent:.1f}", "57.3"] in [
        row[:5] for row in rows
    ]
    weights = [str(of.bandwidth_weights[name]) for name in ("Wgg", "Wgd", "Wmg")]
    assert ["of", "the", "drawn", "relays", *weights] in [row[:7] for row in rows]
    # All countries count, even those that aren't named.
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
    ("options", "expected"),
    [
        (("--seed", "3000000000"), "--seed 3000000000 is not a whole number from 0 to 2147483647"),
        (("--seed", "-1"), "--seed -1 is not a whole number"),
    ],
)
def test_seeds_that_no_run_can_have(
    options: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("SmallNetwork", *options) == 2
    assert expected in capsys.readouterr().err


def test_one_seed_or_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        status_of("SmallNetwork", "--seed", "2", "--seeds", "3")
    assert "not allowed with argument --seed" in capsys.readouterr().err


def test_parts_are_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("SmallNetwork", "--seeds", "3", "--parts", "2") == 2
    assert "--parts shows the network of one --seed: leave --seeds out" in capsys.readouterr().err


def test_the_map_shows_every_country_and_is_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        assert status_of("SmallNetwork", "--map", str(file)) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    text = files[0].read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    # Text in a figure stands as a comment beside its outlines.
    named = set(re.findall(r"<!-- ([a-z]{2}) -->", text))
    sites = {site.name for site in draw_scenario("SmallNetwork", 1).network.sites}
    assert named <= sites
    assert {"us", "de"} <= named
    assert status_of("SmallNetwork", "--map", str(tmp_path / "one.txt")) == 2
    assert "one.txt: figures are .svg or .png" in capsys.readouterr().err


def test_what_has_a_topology_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("One", "--seeds", "2") == 2
    assert 'scenarios/One.toml: topology = "two_clients": nothing is drawn' in (
        capsys.readouterr().err
    )
