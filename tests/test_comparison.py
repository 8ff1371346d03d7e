"""Many runs together: which count, the tables, the paper's statements, and `compare`.

The run directories are made here; no experiment runs.
"""

import csv
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import (
    COMPARE,
    QUEUE_VARIANT,
    FakeMachine,
    StoppedClock,
    refused,
    status_of,
    with_machine,
)
from made_runs import Made

from analysis import metrics
from analysis.order import BASELINE, SCENARIO_ORDER
from analysis.runs import Group, find_runs
from analysis.tables import Table, as_csv, as_markdown, run_tables
from papers import TABLES
from papers.hydra.published import TABLE_4, TWO_CLIENTS
from papers.hydra.statements import FAILS, HOLDS, OPEN, judged_statements
from testbed import cli, repeats
from testbed.errors import InputError, TestbedError
from testbed.plan import make_plan
from testbed.plan_differences import differences
from testbed.results import read_run


def table_of(results: Path, title: str) -> Table:
    return next(
        table for table in run_tables(find_runs(results), TABLES) if table.title.startswith(title)
    )


# What a run's numbers are of.


@pytest.mark.parametrize(("traffic", "clients"), [("audio", 1), ("bulk", 2)])
def test_only_the_clients_under_test_count(tmp_path: Path, traffic: str, clients: int) -> None:
    """Whatever client1's bulk transfers take beside audio; beside bulk they are under test too."""
    run = read_run(Made(scenario="One", traffic=traffic, time_s=4.0).write(tmp_path))
    assert metrics.transfers(run)["time_to_last_byte_s"].to_list() == [4.0] * 2 * clients
    assert metrics.stream_round_trips_ms(run).to_list() == pytest.approx([80.0] * 2 * clients)
    assert metrics.circuit_round_trips_ms(run).to_list() == [90.0] * clients
    assert metrics.build_times_ms(run).to_list() == pytest.approx([150.0] * clients)
    assert {metric.key: metric.of(run) for metric in metrics.METRICS} == pytest.approx(
        {
            "throughput_mb_per_s.mean": 5 / 4,
            "time_to_first_byte_s.mean": 0.1,
            "time_to_last_byte_s.mean": 4.0,
            "time_to_last_byte_s.median": 4.0,
            "time_to_last_byte_s.p95": 4.0,
            "load_s.mean": None,
            "stream_round_trip_ms.mean": 80.0,
            "circuit_round_trip_ms.mean": 90.0,
            "circuit_build_time_ms.mean": 150.0,
            "shared_links_percent": None,
            "shared_undirected_links_percent": None,
            "active_circuits": None,
            "active_links": None,
            "relays_use_percent.mean": None,
            "relays_use_percent.max": None,
            "relays.connections": None,
            "relays.sockets": None,
            "relays.tor_memory_mb": None,
            "relays.socket_memory_mb": None,
            "wire_bytes_per_byte": None,
            "cost.cpu_s_per_mb": 1.0,
        }
    )


def test_metrics_of_a_run_without_a_transfer(tmp_path: Path) -> None:
    run = read_run(Made(time_s=None, round_trip_ms=None).write(tmp_path))
    missing = [metric.key for metric in metrics.METRICS if metric.of(run) is None]
    known = [metric.key for metric in metrics.METRICS if metric.key not in missing]
    assert known == ["circuit_build_time_ms.mean", "cost.cpu_s_per_mb"]
    assert metrics.THROUGHPUT.by_seed([run]) == {}


def test_a_plan_that_does_not_say_who_ran_what_is_named(tmp_path: Path) -> None:
    run = read_run(Made(changed={"traffic_by_client": {}}).write(tmp_path))
    with pytest.raises(TestbedError, match=r"manifest\.json: plan\.traffic_by_client names no"):
        _ = run.clients_under_test


# Which runs count.


def test_only_valid_whole_runs_count_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    invalid = Made(seed=2, time_s=0.1, valid=False).write(tmp_path)
    damaged = Made(seed=3, time_s=0.1).write(tmp_path)
    (damaged / "transfers.parquet").write_bytes(b"PAR1")
    foreign = Made(seed=4, time_s=0.1, changed={"traffic_by_client": {}}).write(tmp_path)
    old = Made(seed=5, time_s=0.1).write(tmp_path)
    (old / "delivered.parquet").unlink()
    failed = damaged.with_name("seed-6.failed-1")
    failed.mkdir()
    (failed / "error.txt").write_text("over\n")
    under_way = damaged.with_name(".seed-7.partial-17")
    under_way.mkdir()
    (under_way / "summary.json").write_text("{")
    assert status_of(["tables", str(tmp_path)]) == cli.VALID
    printed = capsys.readouterr()
    assert "2.00" in printed.out
    assert "50.00" not in printed.out
    assert f"left out: {invalid}: invalid: shared link before measuring\n" in printed.err
    assert f"left out: {damaged}: {damaged}/transfers.parquet: not a whole" in printed.err
    assert f"left out: {foreign}: {foreign}/manifest.json: plan.traffic_by_client" in printed.err
    assert f"left out: {old}: {old}/delivered.parquet is missing" in printed.err
    assert f"left out: {failed}: {failed} is what a failed run left" in printed.err
    assert printed.err.count("left out") == 5


def test_a_plan_counts_once(tmp_path: Path) -> None:
    first = Made().write(tmp_path)
    Made(time_s=0.1).write(tmp_path)
    found = find_runs(tmp_path)
    assert [[run.directory for run in runs] for runs in found.valid.values()] == [[first]]
    assert found.left_out[0].endswith(f"of the same plan as {first}")


def test_runs_of_unlike_plans_are_not_averaged(tmp_path: Path) -> None:
    first = Made(seed=1).write(tmp_path)
    Made(seed=2).write(tmp_path)
    Made(seed=3, changed={"topology": "another"}).write(tmp_path)
    found = find_runs(tmp_path)
    assert [len(runs) for runs in found.valid.values()] == [2]
    (reason,) = found.left_out
    assert f'not averaged with {first}: topology is "another", not "eight_clients"' in reason


def test_other_traffic_and_other_durations_are_groups_of_their_own(tmp_path: Path) -> None:
    for seed in (2, 1):
        Made(seed=seed).write(tmp_path)
    Made(duration_s=20).write(tmp_path)
    Made(traffic="audio").write(tmp_path)
    found = find_runs(tmp_path)
    assert {group: [run.summary.seed for run in runs] for group, runs in found.valid.items()} == {
        Group("vanilla", "NoDropping", "bulk", 20): [1],
        Group("vanilla", "NoDropping", "bulk", 300): [1, 2],
        Group("vanilla", "NoDropping", "audio", 300): [1],
    }


# The tables.


def test_means_and_deviations_are_over_runs_beside_the_published_ones(tmp_path: Path) -> None:
    # 5 MB in so many seconds: 2.0, 2.5 and 2.5 MB/s; deviations 1/3, 1/6 and 1/6, n - 1 = 2.
    for seed, time_s, ms in ((1, 2.5, 80.0), (2, 2.0, 90.0), (3, 2.0, 100.0)):
        Made(seed=seed, time_s=time_s, stream_round_trip_ms=ms).write(tmp_path)
    table = table_of(tmp_path, "Throughput")
    assert table.columns[:4] == ("variant", "scenario", "runs of 300 s", "throughput, MB/s")
    (row,) = table.rows
    assert row == ("vanilla", "NoDropping", "3", "2.33 ± 0.29", "90 ± 10", "90 ± 0", "150 ± 0")
    throughput, round_trip = table_of(tmp_path, "Table 4").rows
    names = ("vanilla", "NoDropping")
    assert throughput == (
        *(*names, "MB/s", "2.00 ± 0.04", "0 %"),
        *("2.33 ± 0.29", "-", "-", "-"),
    )
    assert round_trip == (
        *(*names, "ms", "88 ± 14", "0 %"),
        *("90* ± 10", "-", "-", "-"),
    )


def test_changes_are_against_the_same_variant_without_loss(tmp_path: Path) -> None:
    Made().write(tmp_path)
    Made("pctls", time_s=1.25, stream_round_trip_ms=50).write(tmp_path)
    Made(scenario="SharedDropping", time_s=10.0, stream_round_trip_ms=88, round_trip_ms=99).write(
        tmp_path
    )
    Made("pctls", "SharedDropping", time_s=2.0, stream_round_trip_ms=50).write(tmp_path)
    rows = {row[:2]: row[3:] for row in table_of(tmp_path, "Throughput").rows}
    assert rows["vanilla", "SharedDropping"] == (
        *("0.50 (-75 %)", "88 (+10 %)", "99 (+10 %)", "150 (0 %)"),
    )
    assert rows["pctls", "SharedDropping"][:2] == ("2.50 (-38 %)", "50 (0 %)")
    rows = {row[:3]: row[3:6] for row in table_of(tmp_path, "Table 4").rows}
    assert rows["vanilla", "SharedDropping", "MB/s"] == (
        *("0.37 ± 0.04 (-81 %)", "-17 %", "0.50 (-75 %)"),
    )
    assert rows["vanilla", "SharedDropping", "ms"] == (
        *("97 ± 15 (+10 %)", "+12.9 %", "88* (+10 %)"),
    )
    assert rows["pctls", "SharedDropping", "ms"] == (*("76 ± 8 (+1 %)", "+7 %", "50 (0 %)"),)


def test_a_published_figure_is_beside_each_way_of_ours(tmp_path: Path) -> None:
    """Today's Tor and that of 2021, packet by packet and in bundles, of the longest runs."""
    for variant, scenario, time_s in (
        ("vanilla", "SharedDropping", 20.0),  # 0.25 MB/s
        ("vanilla-2021", "SharedDropping", 12.5),  # 0.40 MB/s
        ("vanilla", "SharedDroppingBundles", 10.0),
        ("vanilla-2021", "SharedDroppingBundles", 5.0),
        ("vanilla-2021", "NoDroppingBundles", 2.5),
    ):
        Made(variant, scenario, time_s=time_s).write(tmp_path)
    Made("vanilla", "SharedDropping", duration_s=20, time_s=1.0).write(tmp_path)
    Made("vanilla", "SharedDropping", traffic="web").write(tmp_path)
    throughput = table_of(tmp_path, "Table 4").rows[2]
    assert throughput[:3] == ("vanilla", "SharedDropping", "MB/s")
    assert throughput[5:] == ("0.25", "0.40*", "0.50", "1.00 (-50 %)")


def test_rows_stand_as_in_the_paper_and_others_after_them(tmp_path: Path) -> None:
    for variant, scenario in (
        ("mine", "NoDropping"),
        ("pctls", "SharedDropping"),
        ("pctls", "NoDropping"),
        ("vanilla", "SharedDropping"),
        ("vanilla", "DroppingRemaining"),
    ):
        Made(variant, scenario).write(tmp_path)
    Made(traffic="audio", duration_s=20).write(tmp_path)
    rows = table_of(tmp_path, "Throughput").rows
    assert [row[:3] for row in rows] == [
        ("vanilla", "DroppingRemaining", "1 of 300 s"),
        ("vanilla", "SharedDropping", "1 of 300 s"),
        ("vanilla", "NoDropping-audio", "1 of 20 s"),
        ("pctls", "NoDropping", "1 of 300 s"),
        ("pctls", "SharedDropping", "1 of 300 s"),
        ("mine", "NoDropping", "1 of 300 s"),
    ]
    assert len(table_of(tmp_path, "Table 4").rows) == 2 * 4  # the paper hasn't the others


def test_the_published_changes_are_those_of_the_published_figures() -> None:
    """Within a percent: the paper rounded its changes from figures with more digits."""
    for (variant, _), row in TABLE_4.items():
        baseline = TABLE_4[variant, BASELINE]
        for figure, base in (
            (row.throughput_mb_per_s, baseline.throughput_mb_per_s),
            (row.stream_round_trip_ms, baseline.stream_round_trip_ms),
        ):
            assert figure.mean / base.mean - 1 == pytest.approx(figure.change, abs=0.01)


def test_what_the_client_under_test_saw(tmp_path: Path) -> None:
    # The seconds that count lie between 0.1 s and 5.2 s: all but the last. Two stalls, three of
    # five seconds short, 30 kB/s on average; then none.
    seconds = ([50, 20, 10, 50, 20, 90], [50] * 6)
    for seed, delivered_kb in enumerate(seconds, start=1):
        Made("pctls", "Two", seed, "audio", time_s=5.2, delivered_kb=delivered_kb).write(tmp_path)
    Made("vanilla", "One", traffic="web").write(tmp_path)
    rows = table_of(tmp_path, "Two clients").rows
    assert rows[0][:4] == ("One", "web", "vanilla", "1")
    assert rows[0][9:] == ("-", "-", "-")
    assert rows[1] == (
        *("Two", "audio", "pctls", "2", "5.20 ± 0.00", "5.20 ± 0.00", "80 ± 0", "90 ± 0"),
        *("2 ± 0", "40.0 ± 14.1", "12.0 ± 17.0", "30.0 ± 42.4"),
    )


def test_markdown_and_csv_have_a_cell_for_each_column(tmp_path: Path) -> None:
    Made(scenario="SharedDropping").write(tmp_path)
    Made(scenario="Two", traffic="audio").write(tmp_path)
    for table in run_tables(find_runs(tmp_path), TABLES):
        count = len(table.columns)
        assert {line.count("|") for line in as_markdown(table).splitlines()} == {count + 1}
        rows = list(csv.reader(io.StringIO(as_csv(table))))
        assert [tuple(row) for row in rows] == [table.columns, *table.rows]
    assert "| 0.37 ± 0.04 (-81 %) | -17 % | 2.00 |" in as_markdown(table_of(tmp_path, "Table 4"))


def test_the_table_of_throughput_fits_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for seed in (1, 2):
        for scenario in SCENARIO_ORDER[:3]:
            Made(scenario=scenario, seed=seed, time_s=2.5 / seed).write(tmp_path)
    status_of(["tables", str(tmp_path)])
    shown = capsys.readouterr().out
    for whole in ("DroppingRemaining", "throughput", "± 1.41", "(-81 %)", "+12.9 %"):
        assert whole in shown
    assert "…" not in shown


@pytest.mark.parametrize("form", ["--json", "--csv", "--markdown"])
def test_tables_for_programs_and_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    Made().write(tmp_path)
    left_out = Made(seed=2, valid=False).write(tmp_path)
    assert status_of(["tables", str(tmp_path), form]) == cli.VALID
    printed = capsys.readouterr()
    tables = run_tables(find_runs(tmp_path), TABLES)
    if form == "--json":
        content = json.loads(printed.out)
        assert [table["rows"] for table in content["tables"]] == [
            [list(row) for row in table.rows] for table in tables
        ]
        assert content["left_out"][0].startswith(str(left_out))
    else:
        as_text = as_csv if form == "--csv" else as_markdown
        for table in tables:
            assert as_text(table).strip().replace("\r", "") in printed.out.replace("\r", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is no directory"),
        (["empty"], "empty holds no run"),
        (["empty", "--csv", "--json"], "not allowed with argument"),
    ],
)
def test_directories_without_runs_are_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    message: str,
) -> None:
    (folder / "empty").mkdir()
    assert message in refused(["tables", *arguments], monkeypatch, capsys)


# The paper's statements.


def write_both(
    results: Path,
    scenario: str,
    traffic: str,
    vanilla_s: float,
    pctls_s: float,
    *,
    stream_trip_ms: float | None = 100.0,
) -> None:
    """Three runs each that take so long on average; the pairs' ratios are 0.4 % apart."""
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
    """The circuit's is shorter with pctls in each of these."""
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
    assert set(verdicts(tmp_path / "more").values()) == {OPEN}  # of one model of four
    assert table_of(tmp_path, "What the paper says").rows[0][1] == OPEN


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


# Plans.


def test_differences_of_plans_are_named() -> None:
    one = make_plan("Two", "vanilla", seed=1, duration=20).model_dump(mode="json")
    other_seed = make_plan("Two", "vanilla", seed=2, duration=20).model_dump(mode="json")
    assert differences(one, one) == ""
    assert differences(one, other_seed, but_seed=True) == ""
    assert differences(one, other_seed).startswith("seed is 1, not 2; links.0.netem_seeds.0 is")
    newer = one | {"encrypted": False, "extras": [], "tor": one["tor"] | {"newest": True}}
    assert differences(one, newer) == "tor.newest is missing, not true"


def test_so_many_differences_as_one_can_read_are_named() -> None:
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


# compare.


def test_only_missing_runs_are_made(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of(COMPARE) == cli.VALID
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "run 1 of 4: Mine, vanilla, seed 1",
        "run 2 of 4: Mine, queue, seed 1",
        "run 3 of 4: Mine, vanilla, seed 2",
        "run 4 of 4: Mine, queue, seed 2",
    ]
    assert printed.out.startswith("Mine, bulk, 10 s: queue against vanilla")
    assert "nearly equal: 0 % to 0 %" in printed.out
    shutil.rmtree("results/Mine/queue/seed-2")
    assert status_of(COMPARE) == cli.VALID
    assert capsys.readouterr().err == "run 1 of 1: Mine, queue, seed 2\n"


def test_compared_for_programs(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of([*COMPARE, "--json"]) == cli.VALID
    content = json.loads(capsys.readouterr().out)
    assert (content["scenario"], content["traffic"], content["duration_s"]) == ("Mine", "bulk", 10)
    assert content["left_out"] == []
    records = content["comparisons"]
    # Bulk has no loads, and where links are shared is said by the scenario.
    none = (metrics.LOAD_TIME, *metrics.OF_NETWORKS)
    keys = [metric.key for metric in metrics.METRICS if metric not in none]
    assert [record["metric"] for record in records] == keys
    # 5 MB in 2 s by client1 and in 4 s by client2.
    assert records[0]["before"] == records[0]["after"] == {"1": 1.875, "2": 1.875}
    assert (records[0]["first_mean"], records[0]["first_runs"]) == (1.875, 2)
    assert (records[0]["change"], records[0]["low"], records[0]["high"]) == (0, 0, 0)
    assert status_of([*COMPARE, "--csv"]) == cli.VALID
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["metric"] for row in rows] == [record["metric"] for record in records]
    assert float(rows[0]["other_mean"]) == 1.875
    assert rows[0]["words"] == records[0]["words"]


def test_several_variants_are_each_held_against_the_first(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    (two_variants / "third.toml").write_text(QUEUE_VARIANT, encoding="utf-8")
    arguments = [*COMPARE[:4], "./third.toml", "--runs", "1", "--chart", "all.svg"]
    assert status_of(arguments) == cli.VALID
    printed = capsys.readouterr().out
    assert "10 s: all against vanilla" in printed
    assert "what the runs don't decide" in printed
    assert "queue" in Path("all.svg").read_text()
    assert "10 s: queue against vanilla" in printed
    assert "10 s: third against vanilla" in printed
    assert "not enough runs" in printed


def test_invalid_runs_are_named_and_not_made_again(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, StoppedClock)
    for made in (4, 0):
        assert status_of(COMPARE) == cli.PREMISE_FAILED
        printed = capsys.readouterr()
        assert "nothing to compare" in printed.out
        assert printed.err.count("left out: results/Mine/") == 4
        assert "invalid: duration by the machine's clock" in printed.err
        assert printed.err.count("run ") == made


def test_a_run_of_another_plan_is_named(
    two_variants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of(COMPARE) == cli.VALID
    capsys.readouterr()
    (two_variants / "queue.toml").write_text(QUEUE_VARIANT.replace("64", "65"), encoding="utf-8")
    line = refused(COMPARE, monkeypatch, capsys)
    assert "results/Mine/queue/seed-1 is of another plan: tor.consensus_params.cellq_high" in line
    assert "is 64, not 65" in line
    assert "remove it, move it away" in line


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("compare One vanilla", "the following arguments are required: B"),
        ("compare One vanilla vanilla", "two of the variants are called vanilla"),
        ("compare One vanilla pctl", 'did you mean "pctls"?'),
        ("compare Ones vanilla pctls", 'did you mean "One"?'),
        ("compare One vanilla pctls --runs 0", "--runs 0 is none"),
        ("compare One vanilla pctls --runs many", "argument --runs: invalid int value"),
        ("compare One vanilla pctls --traffic bulky", 'did you mean "bulk"?'),
        ("compare One vanilla pctls --json --csv", "not allowed with argument"),
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
    assert InputError.exit_status == cli.BAD_INPUT
