"""The comparison of many runs with the published figures: means, what is left out, the figure.

The run directories are made here; no experiment runs.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
import pytest

from analysis import comparison
from analysis.published import TABLE_4
from testbed.errors import InputError
from testbed.results.manifest import FORMAT
from testbed.results.tables import SCHEMAS

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Made:
    """What of a run the comparison looks at."""

    variant: str = "vanilla"
    scenario: str = "NoDropping"
    seed: int = 1
    throughput_mb_per_s: float | None = 2.0
    round_trip_ms: float | None = 90.0
    traffic: str = "bulk"
    duration_s: float = 300.0
    valid: bool = True

    def summary(self) -> dict[str, Any]:
        check = {"name": "shared link before measuring", "expected": "1", "observed": "2"}
        no_tail = {"mean": 2.5, "median": 2.5, "p95": 2.5}
        return {
            "scenario": self.scenario,
            "scenario_title": "a scenario",
            "variant": self.variant,
            "variant_title": "a variant",
            "traffic": self.traffic,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "machine": "virtual",
            "valid": self.valid,
            "checks": [{**check, "ok": self.valid}],
            "transfers": {"completed": 2, "failed": 0},
            "throughput_mb_per_s": {"mean": self.throughput_mb_per_s, "sd": 9.0},
            "time_to_first_byte_s": no_tail,
            "time_to_last_byte_s": no_tail,
            "circuit_round_trip_ms": {"mean": self.round_trip_ms, "sd": 9.0, "median": 1.0},
            "circuit_build_time_ms": {"mean": 1.0, "sd": None, "median": 1.0},
            "shared_link": {"connections": 1, "circuits": 8},
            "cost": {"virtual_s": 1.0, "wall_s": 1.0, "cpu_s": 1.0, "delivered_mb": 1.0},
            "notes": [],
        }

    def write(self, results: Path, key: str | None = None) -> Path:
        """The run's directory where `run.py` puts it; two whole transfers and two that aren't."""
        folder = results / self.scenario / self.variant / f"seed-{self.seed}"
        while folder.exists():
            folder = folder.with_name(f"{folder.name}-again")
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(self.summary()))
        manifest = {
            "format": FORMAT,
            "plan_key": key or str(self),
            "plan": {},
            "measuring_start_s": 0.0,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        for name, schema in SCHEMAS.items():
            polars.DataFrame(
                self.transfers() if name == "transfers" else [], schema=schema
            ).write_parquet(folder / f"{name}.parquet")
        return folder

    def transfers(self) -> list[dict[str, Any]]:
        rows = [(2.0, True, True), (3.0, True, True), (50.0, False, True), (60.0, True, False)]
        nothing = dict.fromkeys(SCHEMAS["transfers"])
        return [
            {**nothing, "time_to_last_byte_s": time_s, "ok": ok, "measured": measured}
            for time_s, ok, measured in rows
        ]


def rows_of(results: Path) -> list[tuple[str, ...]]:
    return list(comparison.table_rows(comparison.find_runs(results)))


def test_means_and_deviations_are_over_runs(tmp_path: Path) -> None:
    for seed, mb_per_s, ms in ((1, 2.0, 80.0), (2, 2.2, 90.0), (3, 2.4, 100.0)):
        Made(seed=seed, throughput_mb_per_s=mb_per_s, round_trip_ms=ms).write(tmp_path)
    # Deviations from the mean are 0.2, 0 and 0.2; 10, 0 and 10; n - 1 = 2.
    assert rows_of(tmp_path) == [
        (
            "vanilla",
            "NoDropping",
            "3 of 300 s",
            "2.20 ± 0.20",
            "2.00 ± 0.04",
            "90 ± 10",
            "88 ± 14",
        )
    ]


def test_changes_are_against_the_same_variant_without_loss(tmp_path: Path) -> None:
    Made().write(tmp_path)
    Made(variant="pctls", throughput_mb_per_s=4.0, round_trip_ms=50).write(tmp_path)
    Made(scenario="SharedDropping", throughput_mb_per_s=0.5, round_trip_ms=99).write(tmp_path)
    Made("pctls", "SharedDropping", throughput_mb_per_s=3.0, round_trip_ms=50).write(tmp_path)
    rows = {row[:2]: row for row in rows_of(tmp_path)}
    assert rows["vanilla", "SharedDropping"][3:] == (
        "0.50 (-75 %)",
        "0.37 ± 0.04 (-81 %)",
        "99 (+10 %)",
        "97 ± 15 (+10 %)",
    )
    assert rows["pctls", "SharedDropping"][3:5] == ("3.00 (-25 %)", "1.86 ± 0.08 (-6 %)")
    assert rows["pctls", "SharedDropping"][5] == "50"


def test_rows_stand_as_in_the_paper_and_others_after_them(tmp_path: Path) -> None:
    for variant, scenario in (
        ("mine", "NoDropping"),
        ("pctls", "SharedDropping"),
        ("pctls", "NoDropping"),
        ("vanilla", "Another"),
        ("vanilla", "SharedDropping"),
        ("vanilla", "DroppingRemaining"),
    ):
        Made(variant, scenario).write(tmp_path)
    assert [row[:2] for row in rows_of(tmp_path)] == [
        ("vanilla", "DroppingRemaining"),
        ("vanilla", "SharedDropping"),
        ("vanilla", "Another"),
        ("pctls", "NoDropping"),
        ("pctls", "SharedDropping"),
        ("mine", "NoDropping"),
    ]
    assert [row[4] for row in rows_of(tmp_path)][2] == "-"  # the paper has no such scenario


def test_other_traffic_and_other_durations_are_not_averaged_in(tmp_path: Path) -> None:
    Made(throughput_mb_per_s=2.0).write(tmp_path)
    Made(throughput_mb_per_s=1.0, duration_s=20).write(tmp_path)
    Made(throughput_mb_per_s=0.1, traffic="audio").write(tmp_path)
    rows = rows_of(tmp_path)
    assert [row[1:5] for row in rows] == [
        ("NoDropping", "1 of 20 s", "1.00", "2.00 ± 0.04"),
        ("NoDropping", "1 of 300 s", "2.00", "2.00 ± 0.04"),
        ("NoDropping-audio", "1 of 300 s", "0.10", "-"),
    ]


def test_only_valid_whole_runs_count_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    invalid = Made(seed=2, throughput_mb_per_s=99.0, valid=False).write(tmp_path)
    damaged = Made(seed=3, throughput_mb_per_s=99.0).write(tmp_path)
    (damaged / "transfers.parquet").write_bytes(b"PAR1")
    failed = tmp_path / "NoDropping" / "vanilla" / "seed-4.failed-1"
    failed.mkdir()
    (failed / "error.txt").write_text("over\n")
    under_way = tmp_path / "NoDropping" / "vanilla" / ".seed-5.partial-17"
    under_way.mkdir()
    (under_way / "summary.json").write_text("{")
    assert comparison.main([str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2.00" in shown
    assert "99" not in shown.replace(str(tmp_path), "")
    assert f"left out: {invalid}: invalid: shared link before measuring\n" in shown
    assert f"left out: {damaged}: {damaged}/transfers.parquet: not a whole" in shown
    assert f"left out: {failed}: {failed} is what a failed run left" in shown
    assert shown.count("left out") == 3


def test_a_plan_counts_once(tmp_path: Path) -> None:
    first = Made().write(tmp_path, key="k")
    Made(throughput_mb_per_s=9.0).write(tmp_path, key="k")
    found = comparison.find_runs(tmp_path)
    assert [[run.directory for run in runs] for runs in found.valid.values()] == [[first]]
    assert found.left_out[0].endswith(f"of the same plan as {first}")


def test_runs_without_a_transfer_show_a_dash(tmp_path: Path) -> None:
    Made(throughput_mb_per_s=None, round_trip_ms=None).write(tmp_path)
    assert rows_of(tmp_path)[0][3:] == ("-", "2.00 ± 0.04", "-", "88 ± 14")


def test_markdown_has_a_cell_for_each_heading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    assert comparison.main([str(tmp_path), "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in lines] == [8, 8, 8]
    assert lines[2].startswith("| vanilla | NoDropping | 1 of 300 s | 2.00 |")


def test_the_terminal_table_fits_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for seed in (1, 2):
        for scenario in comparison.SCENARIO_ORDER:
            Made(scenario=scenario, seed=seed, throughput_mb_per_s=2.0 + seed).write(tmp_path)
    comparison.main([str(tmp_path)])
    shown = capsys.readouterr().out
    assert "DroppingRemaining" in shown
    assert "…" not in shown


def test_the_figure_has_a_panel_a_scenario_and_a_line_a_variant(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls"):
        for scenario in ("NoDropping", "SharedDropping"):
            Made(variant, scenario).write(tmp_path)
    file = tmp_path / "times.png"
    assert comparison.main([str(tmp_path), "--figure", str(file)]) == 0
    assert file.read_bytes().startswith(PNG_SIGNATURE)
    file = tmp_path / "times.svg"
    assert comparison.main([str(tmp_path), "--figure", str(file)]) == 0
    assert file.read_text().count("<!-- time to last byte, s -->") == 2


def test_only_whole_measured_transfers_are_drawn(tmp_path: Path) -> None:
    Made().write(tmp_path)
    (runs,) = comparison.find_runs(tmp_path).valid.values()
    assert comparison._times_to_last_byte_s(runs) == [2.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is no directory"),
        (["empty"], "empty holds no run"),
        (["invalid", "--figure", "f.png"], "f.png is not drawn: no run counts"),
        (["valid", "--figure", "f.doc"], "--figure f.doc: "),
        (["valid", "--figure", "nowhere/f.png"], "--figure nowhere/f.png: "),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    Made(valid=False).write(tmp_path / "invalid")
    Made().write(tmp_path / "valid")
    monkeypatch.chdir(tmp_path)
    assert comparison.main(arguments) == InputError.exit_status
    error = capsys.readouterr().err
    assert error.startswith(f"analysis.comparison: {message}")
    assert error.count("\n") == 1


def test_the_published_changes_are_those_of_the_published_figures() -> None:
    """Within a percent: the paper rounded its changes from figures with more digits."""
    for (variant, _), row in TABLE_4.items():
        baseline = TABLE_4[variant, comparison.BASELINE]
        for (value, _), (base, _), change in (
            (row.throughput_mb_per_s, baseline.throughput_mb_per_s, row.throughput_change),
            (row.circuit_round_trip_ms, baseline.circuit_round_trip_ms, row.round_trip_change),
        ):
            assert value / base - 1 == pytest.approx(change, abs=0.01)
