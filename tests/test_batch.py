"""Batches: what a batch file may contain, and which runs are made, or made again.

Snakemake is the real one. Except in the experiment at the end, a stand-in replaces the machine.
"""

from pathlib import Path

import batch_stand_in
import pytest
from batch_stand_in import (
    ALL,
    BATCH,
    FAILS,
    FAILS_ONCE,
    IS_INVALID,
    MINE,
    begun,
    behave,
    changed,
    run_batch,
    seeds_there,
)
from command_line import refused

from testbed import batch
from testbed.basics.ending import FAILED, PREMISE_FAILED, VALID
from testbed.results import read_run

LOSS = "links.middle-exit.loss"


# Batch files.


def test_the_papers_testbed() -> None:
    plans = batch.read_batch("hydra").plans
    eight_clients, two_clients, networks = 6 * 4 * 3, 3 * 4 * 2 * 5, 4 * 2 * 5
    of_two_segments, other_queues, no_delay = 2 * 3, 2 * 2 * 2 * 3, 2 * 3
    assert len(plans) == sum(
        (eight_clients, two_clients, networks, of_two_segments, other_queues, no_delay)
    )
    table_4 = ("NoDropping", "SharedDropping", "DroppingRemaining")
    of_table = [plan for plan in plans.values() if plan.scenario in table_4]
    today = [plan for plan in of_table if "2021" not in plan.variant]
    assert sorted(plan.seed for plan in today) == sorted([1, 2, 3] * 6)
    assert {plan.duration_s for plan in today} == {300}
    assert Path("One-audio/pctls/seed-5") in plans
    seeds = [plan.seed for plan in plans.values()]
    assert seeds == sorted(seeds)


@pytest.mark.slow
def test_the_batches_of_the_mitigations() -> None:
    """Every run can be planned: more losses, up to sixteen circuits, thresholds up to eight."""
    plans = batch.read_batch("mitigations").plans.values()
    losses = {plan.changes[LOSS] for plan in plans if LOSS in plan.changes}
    assert len(losses) == 3
    assert {len(plan.paths) for plan in plans} == {1, 2, 4, 8, 16}
    thresholds = {plan.tor.per_circuit_up_to for plan in plans if plan.scenario == "SharedDropping"}
    assert thresholds == {None, 2, 3, 4, 6, 8}
    mctor = batch.read_batch("mctor").plans.values()
    assert {plan.tor.parallel_circuits for plan in mctor} == set(range(1, 6))
    assert {plan.traffic for plan in mctor} == {"mctor-video", "mctor-upload", "mctor-files"}
    assert {len(plan.paths) for plan in mctor} == {1, 2}


@pytest.mark.slow
def test_the_batch_of_whole_networks() -> None:
    plans = batch.read_batch("networks").plans.values()
    small = {plan.variant for plan in plans if plan.unchanged_scenario == "SmallNetwork"}
    assert small == {
        *("vanilla", "pctls", "pctcp", "own-up-to-3", "vanilla-vegas", "pctls-vegas", "conflux"),
        *("vanilla-at-once", "pctls-at-once"),
    }
    busy = [plan for plan in plans if plan.unchanged_scenario == "SmallNetworkBusy"]
    assert {plan.relay_rates for plan in busy} == {0.1}
    queues = {
        (plan.links[0].there.queue_discipline, plan.links[0].there.queue_packets) for plan in busy
    }
    assert queues == {("fifo", 1000), ("codel", 1000), ("fq_codel", 10_240)}
    with_codel, with_turns = (
        {(plan.tor.variant, plan.seed) for plan in busy if name in plan.scenario}
        for name in ("=codel", "=fq_codel")
    )
    assert with_codel == with_turns
    pctcp = batch.read_batch("pctcp").plans.values()
    assert {plan.seed for plan in pctcp} == {1, 2, 3, 4, 5}
    assert {plan.relay_rates for plan in pctcp} == {0.1}
    at_relays = {len(plan.tor.at_relays or ()) for plan in pctcp}
    assert at_relays == {0, 5, 10}


def test_the_smoke_batch() -> None:
    plans = batch.read_batch("docs/examples/smoke.toml").plans.values()
    assert len(plans) == 3 * 2 * 2
    assert {(plan.topology, plan.duration_s) for plan in plans} == {("eight_clients", 20)}


def test_what_an_entry_says_holds_for_it_alone(mine: Path) -> None:
    more = '[[runs]]\nscenarios = ["One"]\nvariants = ["pctls"]\nseeds = [7]\nduration = "9 s"\n'
    (mine / "mine.toml").write_text(BATCH + more, encoding="utf-8")
    plans = batch.read_batch("./mine.toml").plans
    assert len(plans) == 5
    assert plans[Path("One/pctls/seed-7")].duration_s == 9


def test_values_are_set_each_with_each(mine: Path) -> None:
    more = (
        '[[runs]]\nscenarios = ["SharedDropping"]\nvariants = ["pctls"]\nseeds = [1]\n'
        'set = { "links.middle-exit.loss" = ["0 %", "0.2 %"], "parameters.clients" = 2 }\n'
    )
    (mine / "mine.toml").write_text(BATCH + more, encoding="utf-8")
    plans = batch.read_batch("./mine.toml").plans
    folder = "SharedDropping,links.middle-exit.loss={},parameters.clients=2/pctls/seed-1"
    assert set(map(str, plans)) >= {folder.format("0%"), folder.format("0.2%")}
    plan = plans[Path(folder.format("0.2%"))]
    assert plan.links_between("middle", "exit")[0].there.loss == 0.002
    assert list(plan.paths) == ["client1", "client2"]


def test_paths_are_relative_to_the_file(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert len(batch.read_batch(str(mine / "mine.toml")).plans) == 4


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("seeds =", "seed =", 'unknown key seed: did you mean "seeds"?'),
        (
            '["./Mine.toml"]',
            '["./Mine.toml"]\nset = { "links.default.loss" = [["1 %"]] }',
            "runs[1].set.links.default.loss must be a text, a number, true or false, or a list",
        ),
        (
            '["./Mine.toml"]',
            '["./Mine.toml"]\nset = { "links.default.los" = "1 %" }',
            'unknown key links.default.los: did you mean "loss"?',
        ),
        ("scenarios =", "scenario =", 'runs[1].scenario: did you mean "scenarios"?'),
        ("[1, 2]", "3", "seeds = 3 must be a list"),
        ("[1, 2]", "[]", "seeds is empty: name at least one"),
        ("[1, 2]", "[1, -2]", "seeds[2] = -2"),
        ("[1, 2]", "[1, 1]", "runs[1]: the results would go to Mine/vanilla/seed-1, as those of"),
        ('"pctls"', '"pctl"', 'runs[1]: there is no variant "pctl": did you mean "pctls"?'),
        ("./Mine", "./Yours", "runs[1]: there is no scenario file"),
        ("[[runs]]", "[runs]", "runs must be a list"),
        ("[[runs]]", 'duration = "0.1 s"\n[[runs]]', "runs[1]: duration 0.1 s is too short for"),
        ("[[runs]]", '[[runs]]\ntraffic = ["bulky"]', 'traffic "bulky" is not a model'),
        ("[[runs]]", '[[runs]]\nduration = "9 m"', 'runs[1].duration = "9 m"'),
    ],
)
def test_bad_files(
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    advice: str,
) -> None:
    changed(right, wrong)
    line = refused(["batch", "./mine.toml"], monkeypatch, capsys)
    assert advice in line
    assert "mine.toml: " in line


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("batch hydro", 'there is no batch "hydro": did you mean "hydra"?'),
        ("batch ./other.toml", "there is no batch file"),
        ("batch hydra --cores 0", "argument --cores: 0 is below 1"),
        ("batch hydra --retries=-1", "argument --retries: -1 is below 0"),
        ("batch hydra --cores all", 'argument --cores: "all" is not a whole number'),
        ("batch hydra --out Mine.toml", "Mine.toml"),
        ("batch hydra --jobs 2", "--jobs is for --executor slurm: add that"),
        ("batch hydra --slurm-account mine", "--slurm-account is for --executor slurm"),
        ("batch hydra --executor slurm --cores 2", "--cores is for this machine: with"),
        ("batch hydra --executor slurm --time-limit long", 'argument --time-limit: "long" '),
        ("batch hydra --executor cloud", "argument --executor: invalid choice: 'cloud'"),
    ],
)
def test_bad_words(
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    advice: str,
) -> None:
    assert advice in refused(arguments.split(), monkeypatch, capsys)


# Which runs are made, and which aren't made again.


def test_all_is_run_once_and_reported(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch("--cores", "1") == VALID
    assert begun() == ALL  # seed by seed
    assert len(seeds_there()) == 4
    printed = capsys.readouterr()
    assert "4 runs: 4 valid, 0 invalid, 0 failed" in printed.out
    assert "done: Mine, bulk, pctls, seed 2" in printed.err
    assert Path("results/mine/report/report.html").exists()
    assert run_batch() == VALID
    assert begun() == ALL


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_run_that_fails_is_tried_again_and_listed(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave({"pctls 1": FAILS, "vanilla 2": FAILS_ONCE})
    assert run_batch("--retries", "2") == FAILED
    assert sorted(begun()) == sorted([*ALL, "vanilla 2", "pctls 1", "pctls 1"])
    assert seeds_there() == ["pctls/seed-2", "vanilla/seed-1", "vanilla/seed-2"]
    printed = capsys.readouterr()
    assert "failed, try 3 of 3: Mine, bulk, pctls, seed 1: the guest's kernel" in printed.err
    assert "failed: Mine, bulk, pctls, seed 1: the guest's kernel panicked" in printed.out
    assert "4 runs: 3 valid, 0 invalid, 1 failed" in printed.out
    assert (MINE / "pctls/seed-1.failed-3/error.txt").exists()
    behave({})
    before = len(begun())
    assert run_batch() == VALID
    assert begun()[before:] == ["pctls 1"]


@pytest.mark.slow
def test_a_batch_without_any_run_has_failed(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    behave(dict.fromkeys(ALL, FAILS))
    assert run_batch("--retries", "0") == FAILED
    assert "4 runs: 0 valid, 0 invalid, 4 failed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_an_invalid_run_is_kept_and_made_again_only_if_asked(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave({"pctls 2": IS_INVALID})
    for _ in range(2):
        assert run_batch() == PREMISE_FAILED
        printed = capsys.readouterr()
        assert f"invalid: {MINE}/pctls/seed-2: samples of middle1 to exit1" in printed.out
        assert len(begun()) == 4
    behave({})
    assert run_batch("--retry-invalid") == VALID
    assert begun()[4:] == ["pctls 2"]
    aside = read_run(MINE / "pctls/.seed-2.replaced-1")
    assert not aside.summary.valid
    assert f"invalid, and asked for again; what was there is in {aside.directory}" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_plan_that_changed_is_run_again_and_only_that(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "queue.toml").write_text('title = "Q"\nextends = "vanilla"\n[torrc]\n', "utf-8")
    changed('"pctls"', '"./queue.toml"')
    assert run_batch() == VALID
    before = (MINE / "queue/seed-1/summary.json").read_bytes()
    (mine / "queue.toml").write_text(
        'title = "Q"\nextends = "vanilla"\n[consensus]\ncellq_high = 64\n', "utf-8"
    )
    assert run_batch("--dry-run") == VALID
    printed = capsys.readouterr().out
    assert (
        f"{MINE}/queue/seed-1 would be run again: what is there is of another plan: tor." in printed
    )
    assert run_batch() == VALID
    assert sorted(begun()[4:]) == ["queue 1", "queue 2"]
    assert (MINE / "queue/.seed-1.replaced-1/summary.json").read_bytes() == before
    report = Path("results/mine/report/report.html").read_text()
    assert "4 runs count, 0 are left out" in report


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_another_tor_is_another_run(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch() == VALID
    behave({}, tor="0.4.9.12")
    with pytest.MonkeyPatch.context() as monkeypatch:
        batch_stand_in.put_in_place(monkeypatch)
        assert run_batch("--mixed") == VALID
        assert len(begun()) == 4
        assert run_batch() == VALID
        assert "Tor is 0.4.9.11, not 0.4.9.12" in capsys.readouterr().err
        assert sorted(begun()[4:]) == sorted(ALL)
        assert run_batch() == VALID
        assert len(begun()) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_damaged_run_is_run_again(mine: Path) -> None:
    assert run_batch() == VALID
    table = MINE / "vanilla/seed-2/transfers.parquet"
    table.write_bytes(table.read_bytes()[:-10])
    (MINE / "pctls/seed-1/summary.json").unlink()
    assert run_batch() == VALID
    assert sorted(begun()[4:]) == ["pctls 1", "vanilla 2"]
    assert len(seeds_there()) == 4


# For real.


@pytest.mark.experiment
def test_a_short_batch(folder: Path) -> None:
    (folder / "mine.toml").write_text(BATCH.replace("[1, 2]", "[1]"), encoding="utf-8")
    changed('"10 s"', '"5 s"', "Mine.toml")
    assert run_batch() == VALID
    runs = [read_run(MINE / variant / "seed-1") for variant in ("vanilla", "pctls")]
    assert all(run.summary.valid for run in runs)
    assert [run.summary.shared_link.connections for run in runs] == [1, 2]
    written = [run.manifest["end"] for run in runs]
    assert run_batch() == VALID
    again = [read_run(run.directory).manifest["end"] for run in runs]
    assert again == written
