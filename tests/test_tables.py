"""The tables of many runs, and `tables`.

The run directories are made here; no experiment runs.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import (
    refused,
    status_of,
)
from made_runs import Made

from analysis.order import BASELINE, SCENARIO_ORDER
from analysis.runs import find_runs
from analysis.table import Table, as_csv, as_markdown
from analysis.tables import run_tables
from study.hydra.published import TABLE_4
from study.hydra.tables import TABLES
from testbed.basics.ending import VALID


def table_of(results: Path, title: str) -> Table:
    return next(
        table for table in run_tables(find_runs(results), TABLES) if table.title.startswith(title)
    )


def test_means_and_deviations_are_over_runs_beside_the_published_ones(tmp_path: Path) -> None:
    # 5 MB in these times: 2.0, 2.5 and 2.5 MB/s; deviations 1/3, 1/6 and 1/6, n - 1 = 2.
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
    """Tor of today and of 2021, packet by packet and in bundles, from the longest runs."""
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
    assert len(table_of(tmp_path, "Table 4").rows) == 2 * 4  # the paper lacks the others


def test_the_published_changes_are_those_of_the_published_figures() -> None:
    """They agree within a percent: the paper rounded its changes from numbers with more digits."""
    for (variant, _), row in TABLE_4.items():
        baseline = TABLE_4[variant, BASELINE]
        for figure, base in (
            (row.throughput_mb_per_s, baseline.throughput_mb_per_s),
            (row.stream_round_trip_ms, baseline.stream_round_trip_ms),
        ):
            assert figure.mean / base.mean - 1 == pytest.approx(figure.change, abs=0.01)


def test_what_the_client_under_test_saw(tmp_path: Path) -> None:
    # The seconds between 0.1 s and 5.2 s count: all but the last. Two stalls, three of five
    # seconds too slow, 30 kB/s on average; in the other run no stall.
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
    assert status_of(["tables", str(tmp_path), form]) == VALID
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
