"""`flashflow`: schedules of the live network, liars, and the input that it refuses."""

import json

import pytest

from commands.__main__ import main
from flashflow.parameters import PAPER


def test_the_live_networks_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flashflow", "--schedule", "2021-11-30", "2026-04-18"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["published", "6419", "608", "3", "599", "599", "5.0"] in [row[:7] for row in rows]
    assert ["2021-11-30", "6400", "746", "4", "551", "551", "4.6"] in [row[:7] for row in rows]
    assert ["2026-04-18", "10261", "1575", "6", "776", "776", "6.5"] in [row[:7] for row in rows]


def test_the_same_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["flashflow", "--schedule", "2021-11-30", "--factor", "2.84", "--teams", "3", "--json"]
    outputs = []
    for seed in ("1", "1", "2"):
        assert main([*words, "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]
    [one] = json.loads(outputs[0])
    least = 2.84 * one["total_bit_per_s"] / one["team_bit_per_s"]
    assert least <= one["least_slots"] <= one["slots"] <= 1.01 * least + 1
    assert one["busy_percent"] == pytest.approx(100 * least / PAPER.slots)
    assert one["left_out"] == 0
    assert one["hours"] == pytest.approx(one["slots"] / 120)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--measurers 1Gbit/s,2Gbit/s", "they have 3000 Mbit/s, and the largest relay of 2021-11"),
        ("--measurers 1Gbit", '"1Gbit" is an amount of data, not a rate'),
        ("--measurers 0Gbit/s", "0Gbit/s"),
        ("--factor 0.5", "0.5 is not from 1 to 100"),
        ("--factor nan", "nan is not from 1 to 100"),
        ("--teams 0", "0 is below 1"),
        ("--teams 21", "--teams 21: take at most 20"),
        ("--seconds 5", "--seconds measures a scenario's relays: name a scenario"),
        ("--relays relay1", "--relays measures a scenario's relays: name a scenario"),
        ("--guess 5Mbit/s", "--guess measures a scenario's relays: name a scenario"),
        ("--guess 5Mbit", '"5Mbit" is an amount of data, not a rate'),
        ("--set network.relays=4", "--set measures a scenario's relays: name a scenario"),
        ("--clients 4", "--clients measures a scenario's relays: name a scenario"),
        ("--clients -1", "-1 is below 0"),
        ("--ratio 10%", "--ratio measures a scenario's relays: name a scenario"),
        ("--ratio 0%", "0% is not a whole number of percent from 1 to 90"),
        ("--ratio 91%", "91% is not a whole number of percent from 1 to 90"),
        ("--ratio 2.5%", "2.5% is not a whole number of percent from 1 to 90"),
        ("--liar relay1=background", "--liar measures a scenario's relays: name a scenario"),
        ("--check 0.1", "--check measures a scenario's relays: name a scenario"),
        ("--check 0", "0 is not above 0 and at most 1"),
        ("--check many", '"many" is not a number'),
        ("--seed -1", "--seed -1 is not a whole number"),
    ],
)
def test_input_that_is_refused(
    options: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["flashflow", "--schedule", "2021-11-30", *options.split()])
    except SystemExit as error:
        status = int(str(error.code))
    assert status == 2
    [line] = [one for one in capsys.readouterr().err.splitlines() if expected in one]
    assert line.startswith("run.py")


def test_liars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flashflow", "--liars"]) == 0
    out = capsys.readouterr().out
    [row] = [line for line in out.splitlines() if "result / capacity" in line]
    assert row.split()[-4:] == ["1.33", "at", "most", "1.33"]
    assert main(["flashflow", "--liars", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    [at_10] = [row["value"] for row in rows if "at 10 Mbit/s" in row["what"]]
    assert at_10 == pytest.approx(0.678, abs=0.001)
