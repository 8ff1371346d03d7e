"""Estimates of a batch's time, its display, and its dry run."""

import argparse
import os
from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from batch_stand_in import begun, changed, run_batch
from made_runs import Made
from rich.console import Console

from commands._batches import at_once
from testbed import batch
from testbed.asked.expected_load import expected_rates
from testbed.asked.plans import make_plan
from testbed.basics.ending import VALID
from testbed.batch.display import Display, in_words
from testbed.batch.estimate import elapsed_s
from testbed.batch.notes import Note
from testbed.batch.standings import Standing, lacking
from testbed.machines.watching import Step
from testbed.results.summary import CompetingSummary, Summary, TrafficSummary
from testbed.runs.runner import plan_need
from testbed.setup.builds import Build
from testbed.setup.ready import Ready


def earlier(megabytes: float, seconds: float, **changes: object) -> Summary:
    """A summary of a run of 10 s in which each of two clients got half of the MB."""
    summary = Summary.model_validate(Made(duration_s=10.0).summary())
    cost = summary.cost.model_copy(
        update={"delivered_mb": megabytes, "wall_s": 2 * seconds, "cpu_s": seconds}
    )
    figures = TrafficSummary.model_construct(traffic="bulk", clients=("client1", "client2"))
    return summary.model_copy(update={"cost": cost, "by_traffic": (figures,), **changes})


LINE = [(10, 25), (100, 70)]
"""Megabytes and processor seconds: 20 s and 0.5 s per MB."""


def test_a_longer_run_is_set_up_once_and_costs_as_much_a_second() -> None:
    estimator = batch.Estimator([earlier(*LINE[0]), earlier(*LINE[1], variant="pctls")])
    expected = estimator.expected(make_plan("NoDropping", "vanilla", duration=30))
    assert expected
    assert (expected.cpu_s, expected.wall_s) == pytest.approx((35, 70))
    assert expected.basis == "same"


def test_a_warm_up_costs_as_much_a_second_as_measuring() -> None:
    same = earlier(*LINE[0], scenario="SmallNetwork", traffic="page", warm_up_s=10.0)
    estimator = batch.Estimator([same, earlier(*LINE[1])])
    plan = make_plan("SmallNetwork", "vanilla", duration=30)
    expected = estimator.expected(plan)
    assert expected
    assert expected.cpu_s == pytest.approx(20 + (plan.warm_up_s + 30) * (25 - 20) / 20)


def test_competing_streams_cost_but_are_no_set_up() -> None:
    line = [earlier(*one) for one in LINE]
    stream = CompetingSummary(
        sender="server", receiver="guard1", congestion_control="cubic", stream_mb_per_s=(1.0,)
    )
    dear = [earlier(mb, 2 * cpu_s, scenario="Two", competing=(stream,)) for mb, cpu_s in LINE]
    estimator = batch.Estimator([*line, *dear])
    expected = estimator.expected(make_plan("Two", "vanilla", duration=30, traffic="bulk"))
    assert expected
    assert expected.cpu_s == pytest.approx(20 + 30 * ((50 - 20) + (140 - 20)) / 20)


def test_what_is_not_known_gets_what_its_traffic_allows_or_as_much_as_any_client_did() -> None:
    plan = make_plan("SmallNetwork", "vanilla", duration=10)
    rates_mb_per_s = expected_rates(plan).values()
    pages = [one for one in rates_mb_per_s if one < 0.5]
    assert (len(pages), len(rates_mb_per_s)) == (38, 40)
    estimator = batch.Estimator([earlier(2, 21), earlier(10, 25)])  # a client had 0.5 MB/s at most
    expected = estimator.expected(plan)
    assert expected
    assert expected.cpu_s == pytest.approx(20 + 0.5 * plan.traffic_s * (sum(pages) + 2 * 0.5))
    assert expected.basis == "guess"


def test_nothing_is_expected_without_an_earlier_run() -> None:
    assert batch.Estimator([]).expected(make_plan("NoDropping", "vanilla")) is None


def test_elapsed() -> None:
    assert elapsed_s([3, 3, 3], 2) == 6
    assert elapsed_s([1, 5, 1, 1], 2) == 5
    assert elapsed_s([], 2) == 0
    assert [in_words(s) for s in (40, 400, 12_000)] == ["40 s", "7 min", "3 h 20 min"]


@pytest.mark.slow
def test_of_a_seed_what_takes_longest_is_begun_first(mine: Path) -> None:
    plans = batch.read_batch("./mine.toml").plans
    standings = batch.look_up(plans, Path("results/mine"))
    runs = [earlier(10, 25, scenario="Mine"), earlier(100, 70, scenario="Mine", variant="pctls")]
    order = lacking(standings, batch.Estimator(runs), again_invalid=False)
    names = [f"{one.plan.variant} {one.plan.seed}" for one in order]
    assert names == ["pctls 1", "vanilla 1", "pctls 2", "vanilla 2"]
    assert lacking(standings, batch.Estimator([]), again_invalid=False) == standings


def test_the_time_left_counts_the_warm_up(tmp_path: Path) -> None:
    plan = make_plan("SmallNetwork", "vanilla", duration=10)
    note, built = Note(tmp_path / "note"), Build(tmp_path)
    note.ask(plan, tmp_path / "run", Ready(built, {plan_need(plan): built}))
    console = Console(file=StringIO(), force_terminal=True, width=200, color_system=None)
    same = earlier(10, 25, scenario="SmallNetwork", traffic="page", warm_up_s=30.0)
    wanted = [(Standing(plan, tmp_path / "run"), note)]
    display = Display(console, wanted, batch.Estimator([same]), at_once=1, tries=1)
    for step, left in ((Step(0.0, "warming up", 20.0, 30.0), 25), (MEASURED_HALF, 6)):
        note.step(step)
        with display.shown():
            display.update()
        assert f"about {left} s left" in cast(StringIO, console.file).getvalue()


MEASURED_HALF = Step(0.0, "measuring", 5.0, 10.0)


def test_the_display_on_a_terminal(tmp_path: Path) -> None:
    wanted, built = [], Build(tmp_path)
    for seed in (1, 2, 3):
        plan = make_plan("NoDropping", "vanilla", seed=seed, duration=10)
        note = Note(tmp_path / "notes" / str(seed))
        note.ask(plan, tmp_path / str(seed), Ready(built, {plan_need(plan): built}))
        wanted.append((Standing(plan, tmp_path / str(seed)), note))
    (_, done), (_, running), (_, failed) = wanted
    done.ended(valid=True)
    running.step(MEASURED_HALF)
    failed.failed("the guest's kernel panicked\nits last words")
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=200, color_system=None)
    # A run takes 50 s of wall time, of which the running one has measured half.
    estimator = batch.Estimator([earlier(10, 25)])
    display = Display(console, wanted, estimator, at_once=2, tries=1)
    with display.shown():
        display.update()
    shown = screen.getvalue()
    assert "1 of 3 done, 1 running, 1 failed, about 25 s left" in shown
    assert "NoDropping, bulk, vanilla, seed 2" in shown
    assert "measuring: 5/10 virtual s" in shown
    assert "failed, try 1 of 1: NoDropping, bulk, vanilla, seed 3: the guest's kernel" in shown
    assert "last words" not in shown


@pytest.mark.parametrize(("cores", "kernels", "runs"), [(8, 1, 8), (8, 3, 2), (2, 4, 1)])
def test_as_many_runs_at_once_as_have_a_core_for_each_kernel(
    cores: int, kernels: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(cores)))
    plans = {
        Path(str(number)): make_plan("NoDropping", "vanilla", changes={"kernels": number})
        for number in (1, kernels)
    }
    wanted = batch.Batch("mine", "Mine", plans)
    given = argparse.Namespace(executor="local", cores=None)
    for option in ("jobs", "slurm_account", "slurm_partition", "time_limit"):
        setattr(given, option, None)
    assert at_once(given, wanted) == runs
    given.cores = 5
    assert at_once(given, wanted) == 5


@pytest.mark.usefixtures("no_report")
def test_a_dry_run_changes_nothing(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(mine.rglob("*"))
    assert run_batch("--dry-run", "--cores", "2") == VALID
    assert "4 runs; how long they take is not known" in capsys.readouterr().out
    assert sorted(mine.rglob("*")) == before
    changed("[1, 2]", "[1]")
    assert run_batch() == VALID
    changed("[1]", "[1, 2]")
    capsys.readouterr()
    assert run_batch("--dry-run", "--cores", "2") == VALID
    # The stand-in's runs take 8 s of wall time and 7.5 s of processor time each.
    assert "2 runs, 2 at once: about 8 s at the pace of earlier runs, 8 s if each" in (
        capsys.readouterr().out
    )
    assert len(begun()) == 2


def test_failed_tries_are_told_in_their_order(tmp_path: Path) -> None:
    note = Note(tmp_path)
    for number in range(1, 12):
        note.failed(f"try {number}")
    assert note.failures() == [f"try {number}" for number in range(1, 12)]
