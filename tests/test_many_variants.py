"""Many variants against the first: the table of all, the undecided changes, and the chart."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from made_runs import Made

from analysis.answers import Answer, overview
from analysis.comparison import Compared, Named, compare, comparison_tables
from analysis.figures.differences import differences
from analysis.runs import find_runs


def by_variant(results: Path, names: Sequence[str]) -> Named:
    """The runs below a directory, by variant in this order."""
    found = {group.variant: runs for group, runs in find_runs(results).valid.items()}
    return {name: found[name] for name in names}


def compared_variants(results: Path, times_s: Mapping[str, float]) -> list[Compared]:
    """Write three runs of each variant with these mean times, and a little variation."""
    for variant, time_s in times_s.items():
        for seed in (1, 2, 3):
            spread = 1 + 0.0005 * ((seed * len(variant)) % 4)
            Made(variant, "SharedDropping", seed, time_s=time_s * spread).write(results)
    return compare(by_variant(results, list(times_s)))


def test_the_figure_of_all_scenarios_names_each_baseline_if_there_are_several(
    tmp_path: Path,
) -> None:
    before, today = (
        Answer(
            setting=("SharedDropping", "bulk", duration),
            title="",
            claims=[],
            others=[],
            happened=[],
            compared=compared_variants(tmp_path / duration, times_s),
        )
        for duration, times_s in (
            ("60 s", {"vanilla-2021": 20.0, "pctls-2021": 2.5}),
            ("300 s", {"vanilla": 20.0, "pctls": 2.5}),
        )
    )
    rows = overview([before, today])
    assert {row.other for row in rows} == {
        "60 s: pctls-2021 against vanilla-2021",
        "300 s: pctls against vanilla",
    }
    plot = differences("All scenarios", "all", rows)
    assert plot and plot.title == "All scenarios: all variants against its own baseline"
    assert {row.other for row in overview([today])} == {"pctls"}


def test_many_variants_are_shown_at_once(tmp_path: Path) -> None:
    times_s = {"vanilla": 20.0, "pctls": 2.5, "mine": 20.01, "other": 5.0}
    compared = compared_variants(tmp_path, times_s)
    intervals = sum(1 for row in compared if row.change)
    assert intervals > 3 * 5
    assert {row.comparisons for row in compared} == {intervals}
    tables = {table.title: table for table in comparison_tables("SharedDropping", compared)}
    assert list(tables)[:3] == [
        f"SharedDropping: {one} against vanilla" for one in list(times_s)[1:]
    ]
    overview = tables["SharedDropping: all against vanilla"]
    assert overview.columns[:2] == ("variant", "throughput")
    cells = {row[0]: row[1] for row in overview.rows}
    assert list(cells) == ["pctls", "mine", "other"]
    assert re.fullmatch(r"\+(69|70)\d % \(\+\d+ % to \+\d+ %\)", cells["pctls"])
    assert cells["mine"].endswith(" =")
    assert f"All {intervals} intervals of this comparison" in overview.note


def test_named_metrics_are_all_that_intervals_are_widened_for(tmp_path: Path) -> None:
    times_s = {"vanilla": 20.0, "pctls": 2.5, "mine": 20.01}
    compared_variants(tmp_path, times_s)
    compared = compare(by_variant(tmp_path, list(times_s)), ["throughput_mb_per_s.mean"])
    assert [(row.metric.name, row.comparisons) for row in compared] == [("throughput", 2)] * 2


def test_what_single_runs_do_not_decide_is_said(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls", "mine"):
        Made(variant, "SharedDropping").write(tmp_path)
    compared = compare(by_variant(tmp_path, ["vanilla", "pctls", "mine"]))
    undecided = comparison_tables("x", compared)[-1]
    assert undecided.title == "x: what the runs don't decide"
    starts = ("undecided between vanilla and pctls: ", "undecided between vanilla and mine: ")
    assert all(row[0].startswith(starts) for row in undecided.rows)


def test_the_chart_has_a_row_for_each_variant(tmp_path: Path) -> None:
    times_s = {"vanilla": 20.0, "pctls": 2.5, "a-variant-of-a-long-name": 19.0}
    compared = compared_variants(tmp_path / "runs", times_s)
    plot = differences("SharedDropping", "chart", compared)
    assert plot
    panel = plot.figure.axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == list(times_s)[1:]
    dots = [line.get_xydata() for line in panel.lines if line.get_marker() == "o"]
    assert [float(dot[0][0]) for dot in np.array(dots)] == pytest.approx([8.0, 20 / 19], rel=0.01)
    edge = panel.get_yticklabels()[1].get_window_extent().x0
    assert edge > 0  # the longest name isn't cut off
