"""Batches: what a file may say, what is run again and what isn't, and batches that are stopped.

Snakemake is the real one. But for the experiment at the end, a stand-in takes the machine's place.
"""

import signal
from io import StringIO
from pathlib import Path

import batch_stand_in
import psutil
import pytest
from batch_stand_in import (
    ALL,
    BATCH,
    FAILS,
    FAILS_ONCE,
    IS_INVALID,
    IS_SLOW,
    MINE,
    begun,
    behave,
    changed,
    run_batch,
    running_batch,
    seeds_there,
)
from commands import refused
from filelock import FileLock
from made_runs import Made
from rich.console import Console
from waiting import PATIENCE_S, wait_for

from testbed import batch, cli
from testbed.batch.estimate import elapsed_s
from testbed.batch.notes import Note
from testbed.batch.runs import Standing, lacking
from testbed.batch.show import Display, in_words
from testbed.machines.watching import Step
from testbed.plan import make_plan
from testbed.results import read_run
from testbed.results.summary import CompetingSummary, Summary, TrafficSummary
from testbed.runner import plan_need
from testbed.setup.builds import Build
from testbed.setup.ready import Ready

LOSS = "links.middle-exit.loss"


# Files.


def test_the_papers_testbed() -> None:
    plans = batch.read_batch("hydra").plans
    assert len(plans) == (6 * 4 + 3 * 4 * 2) * 3
    assert {plan.duration_s for plan in plans.values()} == {300}
    assert Path("One-audio/pctls/seed-3") in plans
    assert [plan.seed for plan in plans.values()] == sorted([1, 2, 3] * 48)


def test_the_batches_of_the_mitigations() -> None:
    """Every run can be planned; losses in seven steps, circuits to sixteen, thresholds to eight."""
    plans = batch.read_batch("mitigations").plans.values()
    losses = {plan.changes[LOSS] for plan in plans if LOSS in plan.changes}
    assert len(losses) == 7
    assert {len(plan.paths) for plan in plans} == {1, 2, 4, 8, 12, 16}
    thresholds = {plan.tor.per_circuit_up_to for plan in plans if plan.scenario == "SharedDropping"}
    assert thresholds == {None, *range(1, 9)}
    mctor = batch.read_batch("mctor").plans.values()
    assert {plan.tor.parallel_circuits for plan in mctor} == set(range(1, 6))
    assert {plan.traffic for plan in mctor} == {"mctor-video", "mctor-upload", "mctor-files"}
    assert {len(plan.paths) for plan in mctor} == {1, 2}


def test_the_batch_of_whole_networks() -> None:
    plans = batch.read_batch("networks").plans.values()
    small = {plan.variant for plan in plans if plan.unchanged_scenario == "SmallNetwork"}
    assert small == {
        *("vanilla", "vanilla-kistlite", "vanilla-vegas", "shared-by-number-3", "own-up-to-3"),
        *("pctls", "pctcp", "pctls-vegas", "pctcp-vegas", "conflux", "pctls-conflux"),
        *("live-2026", "live-2026-conflux", "pctls-live-2026"),
        *("no-delay", "pctls-no-delay"),
    }
    busy = [plan for plan in plans if plan.unchanged_scenario == "SmallNetworkBusy"]
    assert {plan.relay_rates for plan in busy} == {0.1}
    queues = {
        (plan.links[0].there.queue_discipline, plan.links[0].there.queue_packets) for plan in busy
    }
    assert queues == {("fifo", 1000), ("fifo", 100), ("fq_codel", 10_240)}
    assert {plan.seed for plan in plans if "to1" in plan.scenario} == {1, 2, 3}


def test_the_smoke_batch() -> None:
    plans = batch.read_batch("smoke").plans.values()
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
        ("[[runs]]", '[[runs]]\ntraffic = ["bulky"]', 'traffic "bulky" is no model'),
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
        ("batch hydra --cores all", "argument --cores: invalid whole_number value: 'all'"),
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


# What is run, and what isn't again.


def test_all_is_run_once_and_reported(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch("--cores", "1") == cli.VALID
    assert begun() == ALL  # in their order: pairs first
    assert len(seeds_there()) == 4
    printed = capsys.readouterr()
    assert "4 runs: 4 valid, 0 invalid, 0 failed" in printed.out
    assert "done: Mine, bulk, pctls, seed 2" in printed.err
    assert Path("results/mine/report/report.html").exists()
    assert run_batch() == cli.VALID
    assert begun() == ALL


def test_of_a_seed_what_takes_longest_is_begun_first(mine: Path) -> None:
    plans = batch.read_batch("./mine.toml").plans
    standings = batch.look_up(plans, Path("results/mine"))
    runs = [earlier(10, 25, scenario="Mine"), earlier(100, 70, scenario="Mine", variant="pctls")]
    order = lacking(standings, batch.Estimator(runs), again_invalid=False)
    names = [f"{one.plan.variant} {one.plan.seed}" for one in order]
    assert names == ["pctls 1", "vanilla 1", "pctls 2", "vanilla 2"]
    assert lacking(standings, batch.Estimator([]), again_invalid=False) == standings


@pytest.mark.usefixtures("no_report")
def test_a_run_that_fails_is_tried_again_and_listed(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave({"pctls 1": FAILS, "vanilla 2": FAILS_ONCE})
    assert run_batch("--retries", "2") == cli.FAILED
    assert sorted(begun()) == sorted([*ALL, "vanilla 2", "pctls 1", "pctls 1"])
    assert seeds_there() == ["pctls/seed-2", "vanilla/seed-1", "vanilla/seed-2"]
    printed = capsys.readouterr()
    assert "failed, try 3 of 3: Mine, bulk, pctls, seed 1: the guest's kernel" in printed.err
    assert "failed: Mine, bulk, pctls, seed 1: the guest's kernel panicked" in printed.out
    assert "4 runs: 3 valid, 0 invalid, 1 failed" in printed.out
    assert (MINE / "pctls/seed-1.failed-3/error.txt").exists()
    behave({})
    before = len(begun())
    assert run_batch() == cli.VALID
    assert begun()[before:] == ["pctls 1"]


def test_a_batch_without_any_run_has_failed(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    behave(dict.fromkeys(ALL, FAILS))
    assert run_batch("--retries", "0") == cli.FAILED
    assert "4 runs: 0 valid, 0 invalid, 4 failed" in capsys.readouterr().out


@pytest.mark.usefixtures("no_report")
def test_an_invalid_run_is_kept_and_made_again_only_if_asked(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave({"pctls 2": IS_INVALID})
    for _ in range(2):
        assert run_batch() == cli.PREMISE_FAILED
        printed = capsys.readouterr()
        assert f"invalid: {MINE}/pctls/seed-2: duration by the machine's clock" in printed.out
        assert len(begun()) == 4
    behave({})
    assert run_batch("--retry-invalid") == cli.VALID
    assert begun()[4:] == ["pctls 2"]
    aside = read_run(MINE / "pctls/.seed-2.replaced-1")
    assert not aside.summary.valid
    assert f"invalid, and asked for again; what was there is in {aside.directory}" in (
        capsys.readouterr().err
    )


def test_a_plan_that_changed_is_run_again_and_only_that(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "queue.toml").write_text('title = "Q"\nextends = "vanilla"\n[torrc]\n', "utf-8")
    changed('"pctls"', '"./queue.toml"')
    assert run_batch() == cli.VALID
    before = (MINE / "queue/seed-1/summary.json").read_bytes()
    (mine / "queue.toml").write_text(
        'title = "Q"\nextends = "vanilla"\n[consensus]\ncellq_high = 64\n', "utf-8"
    )
    assert run_batch("--dry-run") == cli.VALID
    printed = capsys.readouterr().out
    assert (
        f"{MINE}/queue/seed-1 would be run again: what is there is of another plan: tor." in printed
    )
    assert run_batch() == cli.VALID
    assert sorted(begun()[4:]) == ["queue 1", "queue 2"]
    assert (MINE / "queue/.seed-1.replaced-1/summary.json").read_bytes() == before
    report = Path("results/mine/report/report.html").read_text()
    assert "4 runs count, 0 are left out" in report


@pytest.mark.usefixtures("no_report")
def test_another_tor_is_another_run(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch() == cli.VALID
    behave({}, tor="0.4.9.12")
    with pytest.MonkeyPatch.context() as monkeypatch:
        batch_stand_in.put_in_place(monkeypatch)
        assert run_batch("--mixed") == cli.VALID
        assert len(begun()) == 4
        assert run_batch() == cli.VALID
        assert "Tor is 0.4.9.11, not 0.4.9.12" in capsys.readouterr().err
        assert sorted(begun()[4:]) == sorted(ALL)
        assert run_batch() == cli.VALID
        assert len(begun()) == 8


@pytest.mark.usefixtures("no_report")
def test_a_damaged_run_is_run_again(mine: Path) -> None:
    assert run_batch() == cli.VALID
    table = MINE / "vanilla/seed-2/transfers.parquet"
    table.write_bytes(table.read_bytes()[:-10])
    (MINE / "pctls/seed-1/summary.json").unlink()
    assert run_batch() == cli.VALID
    assert sorted(begun()[4:]) == ["pctls 1", "vanilla 2"]
    assert len(seeds_there()) == 4


# Stopped, and two at once.


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_begun_again(mine: Path, number: signal.Signals) -> None:
    behave({"vanilla 2": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:3], "the slow run")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2, "Snakemake and the job"
        process.send_signal(number)
        status = process.wait(PATIENCE_S)
    assert status == (-number if number == signal.SIGKILL else cli.INTERRUPTED)
    wait_for(lambda: not any(child.is_running() for child in children), f"the end of {children}")
    assert seeds_there() == ["pctls/seed-1", "vanilla/seed-1"]
    if number != signal.SIGKILL:
        assert [path.name for path in (MINE / "vanilla").iterdir()] == ["seed-1"]
    behave({})
    assert run_batch() == cli.VALID
    assert sorted(begun()[3:]) == ["pctls 2", "vanilla 2"]
    assert sorted(path.name for path in (MINE / "vanilla").iterdir()) == ["seed-1", "seed-2"]


def test_a_job_that_is_killed_is_tried_again(mine: Path) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1", "--retries", "1") as process:
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        behave({})
        (job,) = (
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if child.cmdline()[-1].endswith("001")
        )
        job.kill()
        output = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == cli.VALID
    assert "failed, try 1 of 2: Mine, bulk, vanilla, seed 1: its process was killed" in output
    assert len(seeds_there()) == 4


@pytest.mark.usefixtures("no_report")
def test_two_at_once_on_one_directory(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("results/mine").mkdir(parents=True)
    with FileLock("results/mine/.batch.lock"):
        line = refused(["batch", "./mine.toml"], monkeypatch, capsys)
    assert line.startswith("run.py: results/mine: another batch is at work there")
    assert run_batch() == cli.VALID


# What is shown meanwhile.


def test_the_display_on_a_terminal(tmp_path: Path) -> None:
    wanted, built = [], Build(tmp_path)
    for seed in (1, 2, 3):
        plan = make_plan("NoDropping", "vanilla", seed=seed, duration=10)
        note = Note(tmp_path / "notes" / str(seed))
        note.ask(plan, tmp_path / str(seed), Ready(built, {plan_need(plan): built}))
        wanted.append((Standing(plan, tmp_path / str(seed)), note))
    (_, done), (_, running), (_, failed) = wanted
    done.ended(valid=True)
    running.step(Step(0.0, "measuring", 5.0, 10.0))
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


# How long it takes.


def earlier(megabytes: float, seconds: float, **changes: object) -> Summary:
    """A summary of a run of 10 s in which each of two clients got half of the MB."""
    summary = Summary.model_validate(Made(duration_s=10.0).summary())
    cost = summary.cost.model_copy(
        update={"delivered_mb": megabytes, "wall_s": 2 * seconds, "cpu_s": seconds}
    )
    figures = TrafficSummary.model_construct(traffic="bulk", clients=("client1", "client2"))
    return summary.model_copy(update={"cost": cost, "by_traffic": (figures,), **changes})


LINE = [(10, 25), (100, 70)]
"""MB, and seconds of a processor: 20 s and 0.5 s per MB."""


def test_a_longer_run_is_set_up_once_and_costs_as_much_a_second() -> None:
    estimator = batch.Estimator([earlier(*LINE[0]), earlier(*LINE[1], variant="pctls")])
    expected = estimator.expected(make_plan("NoDropping", "vanilla", duration=30))
    assert expected
    assert (expected.cpu_s, expected.wall_s) == pytest.approx((35, 70))
    assert expected.basis == "same"


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


def test_what_is_not_known_gets_as_much_as_any_client_did() -> None:
    estimator = batch.Estimator([earlier(*one) for one in LINE])
    expected = estimator.expected(make_plan("SharedDropping", "vanilla", duration=10))
    assert expected
    assert expected.cpu_s == pytest.approx(20 + 0.5 * 8 * 100 / 2)
    assert expected.basis == "guess"


def test_nothing_is_expected_without_an_earlier_run() -> None:
    assert batch.Estimator([]).expected(make_plan("NoDropping", "vanilla")) is None


def test_elapsed() -> None:
    assert elapsed_s([3, 3, 3], 2) == 6
    assert elapsed_s([1, 5, 1, 1], 2) == 5
    assert elapsed_s([], 2) == 0
    assert [in_words(s) for s in (40, 400, 12_000)] == ["40 s", "7 min", "3 h 20 min"]


@pytest.mark.usefixtures("no_report")
def test_a_dry_run_changes_nothing(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(mine.rglob("*"))
    assert run_batch("--dry-run", "--cores", "2") == cli.VALID
    assert "4 runs; how long they take is not known" in capsys.readouterr().out
    assert sorted(mine.rglob("*")) == before
    changed("[1, 2]", "[1]")
    assert run_batch() == cli.VALID
    changed("[1]", "[1, 2]")
    capsys.readouterr()
    assert run_batch("--dry-run", "--cores", "2") == cli.VALID
    # The stand-in's runs take 8 s of wall time and 7.5 s of processor time each.
    assert "2 runs, 2 at once: about 8 s as earlier runs went, 8 s if each" in (
        capsys.readouterr().out
    )
    assert len(begun()) == 2


# The real thing.


@pytest.mark.experiment
def test_a_short_batch(folder: Path) -> None:
    (folder / "mine.toml").write_text(BATCH.replace("[1, 2]", "[1]"), encoding="utf-8")
    changed('"10 s"', '"5 s"', "Mine.toml")
    assert run_batch() == cli.VALID
    runs = [read_run(MINE / variant / "seed-1") for variant in ("vanilla", "pctls")]
    assert all(run.summary.valid for run in runs)
    assert [run.summary.shared_link.connections for run in runs] == [1, 2]
    written = [run.manifest["end"] for run in runs]
    assert run_batch() == cli.VALID
    again = [read_run(run.directory).manifest["end"] for run in runs]
    assert again == written
