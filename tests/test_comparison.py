"""`compare`, and the plans that it makes and compares, with a stand-in that leaves records."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from command_line import (
    COMPARE,
    QUEUE_VARIANT,
    FakeMachine,
    StoppedClock,
    refused,
    status_of,
    with_machine,
)

from analysis import metrics
from analysis.metrics.networks import OF_NETWORKS
from analysis.metrics.transfers import LOAD_TIME
from testbed.asked.plans import make_plan
from testbed.basics.ending import BAD_INPUT, PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.results.differences import differences
from testbed.runs import repeats


def test_differences_of_plans_are_named() -> None:
    one = make_plan("Two", "vanilla", seed=1, duration=20).model_dump(mode="json")
    other_seed = make_plan("Two", "vanilla", seed=2, duration=20).model_dump(mode="json")
    assert differences(one, one) == ""
    assert differences(one, other_seed, but_seed=True) == ""
    assert differences(one, other_seed).startswith("seed is 1, not 2; links.0.netem_seeds.0 is")
    newer = one | {"encrypted": False, "extras": [], "tor": one["tor"] | {"newest": True}}
    assert differences(one, newer) == "tor.newest is missing, not true"


def test_only_a_few_differences_are_named() -> None:
    there = make_plan("Two", "vanilla", seed=1, duration=20).model_dump(mode="json")
    here = make_plan("Two", "vanilla", seed=2, traffic="web").model_dump(mode="json")
    here["variant_title"] = "Vanilla, as its readers know it"
    there["tor"]["consensus_params"], here["tor"]["consensus_params"] = {}, {"cc_alg": 2}
    assert differences(there, here, but_seed=True) == (
        'traffic is "bulk", not "web"; duration_s is 20.0, not 300.0;'
        ' traffic_by_client.client2 is "bulk", not "web"; tor.consensus_params.cc_alg is missing,'
        " not 2"
    )
    here["links"][0]["loss"] = 0.5
    assert differences(there, here, but_seed=True).endswith("; and 1 more")


def test_plans_are_made_pair_by_pair() -> None:
    plans = repeats.paired_plans("One", ["vanilla", "pctls"], 2, traffic="web")
    assert [(plan.seed, plan.variant) for plan in plans] == [
        *((1, "vanilla"), (1, "pctls")),
        *((2, "vanilla"), (2, "pctls")),
    ]
    assert plans[0].links == plans[1].links != plans[2].links
    assert {plan.traffic_by_client["client2"] for plan in plans} == {"web"}


def test_only_missing_runs_are_made(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of(COMPARE) == VALID
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "run 1 of 4: Mine, vanilla, seed 1",
        "run 2 of 4: Mine, queue, seed 1",
        "run 3 of 4: Mine, vanilla, seed 2",
        "run 4 of 4: Mine, queue, seed 2",
    ]
    assert printed.out.startswith("Mine, bulk, 10 s: queue against vanilla")
    assert "queue is the same as vanilla" in " ".join(printed.out.split())
    shutil.rmtree("results/Mine/queue/seed-2")
    assert status_of(COMPARE) == VALID
    assert capsys.readouterr().err == "run 1 of 1: Mine, queue, seed 2\n"


def test_compared_for_programs(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of([*COMPARE, "--json"]) == VALID
    content = json.loads(capsys.readouterr().out)
    assert (content["scenario"], content["traffic"], content["duration_s"]) == ("Mine", "bulk", 10)
    assert content["left_out"] == []
    records = content["comparisons"]
    # Bulk has no loads, and only drawn networks count shared links.
    none = (LOAD_TIME, *OF_NETWORKS)
    keys = [metric.key for metric in metrics.METRICS if metric not in none]
    assert [record["metric"] for record in records] == keys
    # 5 MB in 2 s by client1 and in 4 s by client2.
    assert records[0]["before"] == records[0]["after"] == {"1": 1.875, "2": 1.875}
    assert (records[0]["first_mean"], records[0]["first_runs"]) == (1.875, 2)
    assert (records[0]["change"], records[0]["low"], records[0]["high"]) == (0, 0, 0)
    assert status_of([*COMPARE, "--csv"]) == VALID
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["metric"] for row in rows] == [record["metric"] for record in records]
    assert float(rows[0]["other_mean"]) == 1.875
    assert rows[0]["sentence"] == records[0]["sentence"]


def test_several_variants_are_each_held_against_the_first(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    (two_variants / "third.toml").write_text(QUEUE_VARIANT, encoding="utf-8")
    arguments = [*COMPARE[:4], "./third.toml", "--runs", "1", "--chart", "all.svg"]
    assert status_of(arguments) == VALID
    printed = capsys.readouterr().out
    assert "10 s: all against vanilla" in printed
    assert "what the runs don't decide" in printed
    assert "queue" in Path("all.svg").read_text()
    assert "10 s: queue against vanilla" in printed
    assert "10 s: third against vanilla" in printed
    assert "no interval: two runs of" in printed


def test_values_are_compared_with_the_first_one(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    key = "links.middle-exit.loss"
    across = ["--across", f"{key}=0 %,0.2 %", "--metric", "throughput_mb_per_s.mean"]
    assert status_of([*COMPARE, *across, "--json"]) == VALID
    printed = capsys.readouterr()
    assert printed.err.count("run ") == 2 * 2 * 2
    content = json.loads(printed.out)
    assert content["scenario"] == "Mine"
    rows = content["comparisons"]
    assert {row["first"] for row in rows} == {f"vanilla with {key}=0 %"}
    assert [row["other"] for row in rows] == [
        f"queue with {key}=0 %",
        f"vanilla with {key}=0.2 %",
        f"queue with {key}=0.2 %",
    ]
    assert {(row["paired"], row["comparisons"]) for row in rows} == {(True, 3)}
    assert rows[1]["sentence"].startswith(f"vanilla with {key}=0.2 % is the same as vanilla with")
    # Of one variant, without making a run again.
    assert status_of([*COMPARE[:3], "--runs", "2", *across]) == VALID
    assert "run " not in capsys.readouterr().err


def test_invalid_runs_are_named_and_not_made_again(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, StoppedClock)
    for made in (4, 0):
        assert status_of(COMPARE) == PREMISE_FAILED
        printed = capsys.readouterr()
        assert "nothing to compare" in printed.out
        assert printed.err.count("left out: results/Mine/") == 4
        assert "invalid: samples of middle1 to exit1" in printed.err
        assert printed.err.count("run ") == made


def test_a_run_of_another_plan_is_named(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of(COMPARE) == VALID
    capsys.readouterr()
    (two_variants / "queue.toml").write_text(QUEUE_VARIANT.replace("64", "65"), encoding="utf-8")
    line = refused(COMPARE, monkeypatch, capsys)
    assert "results/Mine/queue/seed-1 is of another plan: tor.consensus_params.cellq_high" in line
    assert "is 64, not 65" in line
    assert "remove it, move it away" in line


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("compare One vanilla", "name another variant, or the values of a key with --across"),
        ("compare One vanilla vanilla", "two of the variants are called vanilla"),
        ("compare One vanilla pctl", 'did you mean "pctls"?'),
        ("compare Ones vanilla pctls", 'did you mean "One"?'),
        ("compare One vanilla pctls --runs 0", "--runs 0 is too few"),
        ("compare One vanilla pctls --runs many", "argument --runs: invalid int value"),
        ("compare One vanilla pctls --traffic bulky", 'did you mean "bulk"?'),
        ("compare One vanilla pctls --json --csv", "not allowed with argument"),
        ("compare One vanilla --across clients=2", "with two different values or more"),
        ("compare One vanilla --across clients=2,2", "with two different values or more"),
        ("compare One vanilla pctls --set a=1 --across a=1,2", "leave one of them out"),
        (
            "compare One vanilla pctls --metric throughput_mb_per_s",
            'did you mean "throughput_mb_per_s.mean"',
        ),
    ],
)
def test_bad_input(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    advice: str,
) -> None:
    assert advice in refused(arguments.split(), monkeypatch, capsys)


def test_what_is_in_the_way_of_a_run_is_named(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = two_variants / "results" / "Mine" / "vanilla" / "seed-1"
    place.mkdir(parents=True)
    assert f"{place.relative_to(two_variants)} is in the way" in refused(
        COMPARE, monkeypatch, capsys
    )
    assert repeats.missing([]) == []
    place.rmdir()
    place.parent.rmdir()
    place.parent.write_text("no directory")
    assert "is not a directory" in refused(COMPARE, monkeypatch, capsys)
    assert InputError.exit_status == BAD_INPUT
