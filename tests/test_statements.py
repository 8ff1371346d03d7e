"""The paper's statements on two clients, and their verdicts from runs.

The run directories are made here; no experiment runs.
"""

from pathlib import Path

import pytest
from made_runs import Made

from analysis.runs import find_runs
from study.hydra.published import TWO_CLIENTS
from study.hydra.statements import FAILS, HOLDS, OPEN, judged_statements
from study.hydra.tables import statements


def write_both(
    results: Path,
    scenario: str,
    traffic: str,
    vanilla_s: float,
    pctls_s: float,
    *,
    stream_trip_ms: float | None = 100.0,
) -> None:
    """Write three runs of each variant with these mean times; the pairs' ratios are 0.4 % apart."""
    for variant, time_s, spread in (("vanilla", vanilla_s, 0.002), ("pctls", pctls_s, -0.002)):
        for seed in (1, 2, 3):
            stream_ms = {
                "vanilla": stream_trip_ms,
                "pctls": None if stream_trip_ms is None else 80.0 + seed,
            }
            Made(
                *(variant, scenario, seed, traffic),
                time_s=time_s * (1 + spread * (seed - 2)),
                round_trip_ms=100.0 * (1 if variant == "vanilla" else 0.5 + 0.01 * seed),
                stream_round_trip_ms=stream_ms[variant],
                window=120 if variant == "vanilla" else 100 + seed,
            ).write(results)


def verdicts(results: Path) -> dict[str, str]:
    found = judged_statements(find_runs(results))
    return {statement.text: statement.verdict for statement in found}


def test_statements_that_hold(tmp_path: Path) -> None:
    for traffic, vanilla_s, pctls_s in (
        *(("audio", 5.0, 4.9), ("video", 6.0, 6.1)),
        *(("web", 2.0, 3.0), ("bulk", 9.0, 4.0)),
    ):
        write_both(tmp_path, "Two", traffic, vanilla_s, pctls_s)
    for traffic, vanilla_s, pctls_s in (("audio", 6.0, 5.0), ("video", 9.0, 5.0), ("bulk", 30, 5)):
        write_both(tmp_path, "Three", traffic, vanilla_s, pctls_s)
    assert verdicts(tmp_path) == {
        "Two: the round trip is shorter with pctls": HOLDS,
        "Two: audio and video take nearly equally long": HOLDS,
        "Two: web is faster with vanilla": HOLDS,
        "Two: bulk is faster with pctls": HOLDS,
        "Two: the sending congestion window is around 120 segments": HOLDS,
        "Three: the round trip is shorter with pctls": HOLDS,
        "Three: every model is faster with pctls": HOLDS,
        "Three: the longer the transfer, the more it gains with pctls": HOLDS,
        "Three: the sending congestion window is ten segments or more": HOLDS,
    }
    numbers = {one.text: one.numbers for one in judged_statements(find_runs(tmp_path))}
    assert "bulk -56 % (-" in numbers["Two: bulk is faster with pctls"]


@pytest.mark.parametrize(
    ("vanilla_ms", "verdict", "numbers"),
    [
        (100.0, HOLDS, "stream round trip: bulk -18 % (-"),
        (70.0, FAILS, "stream round trip: bulk +17 % (+"),
        (None, HOLDS, "stream round trip not recorded; circuit round trip: bulk -48 % (-"),
    ],
)
def test_the_round_trip_is_the_streams_where_it_was_recorded(
    tmp_path: Path, vanilla_ms: float | None, verdict: str, numbers: str
) -> None:
    """The circuit's round trip is shorter with pctls in each case."""
    for traffic in TWO_CLIENTS["Two"]:
        write_both(tmp_path, "Two", traffic, 5.0, 4.0, stream_trip_ms=vanilla_ms)
    statement = judged_statements(find_runs(tmp_path))[0]
    assert (statement.text, statement.verdict) == (
        "Two: the round trip is shorter with pctls",
        verdict,
    )
    assert statement.numbers.startswith(numbers)


def test_statements_that_do_not_hold(tmp_path: Path) -> None:
    for traffic, vanilla_s, pctls_s in (("audio", 5.0, 6.0), ("video", 5.0, 6.0), ("web", 5, 4)):
        write_both(tmp_path, "Two", traffic, vanilla_s, pctls_s)
    for traffic, vanilla_s, pctls_s in (
        *(("audio", 5.0, 1.0), ("video", 6.0, 3.0)),
        *(("web", 7.0, 6.0), ("bulk", 8.0, 9.0)),
    ):
        write_both(tmp_path, "One", traffic, vanilla_s, pctls_s)
    found = verdicts(tmp_path)
    assert found["Two: audio and video take nearly equally long"] == FAILS
    assert found["Two: web is faster with vanilla"] == FAILS
    assert found["One: every model is faster with pctls"] == FAILS
    assert found["One: the longer the transfer, the more it gains with pctls"] == FAILS


def test_statements_that_need_more_runs(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls"):
        Made(variant, "One").write(tmp_path)
    assert set(verdicts(tmp_path).values()) == {OPEN}
    write_both(tmp_path / "more", "One", "bulk", 9.0, 4.0)
    assert set(verdicts(tmp_path / "more").values()) == {OPEN}  # one model of four
    assert statements.table(find_runs(tmp_path)).rows[0][1] == OPEN


def test_gains_too_close_to_be_told_apart(tmp_path: Path) -> None:
    for traffic, vanilla_s, pctls_s in (("audio", 5.0, 4.0), ("video", 6.0, 4.79), ("bulk", 9, 4)):
        write_both(tmp_path, "Three", traffic, vanilla_s, pctls_s)
    found = verdicts(tmp_path)
    assert found["Three: every model is faster with pctls"] == HOLDS
    assert found["Three: the longer the transfer, the more it gains with pctls"] == OPEN


def test_statements_are_on_runs_of_the_same_duration(tmp_path: Path) -> None:
    write_both(tmp_path, "Two", "bulk", 9.0, 4.0)
    for seed in (1, 2, 3):
        Made("vanilla", "Two", seed, duration_s=600, time_s=0.1).write(tmp_path)
    assert verdicts(tmp_path)["Two: bulk is faster with pctls"] == HOLDS
