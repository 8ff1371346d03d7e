"""Many variants against the first: all at once, with what isn't decided, and as a chart."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from made_runs import Made

from analysis.comparison import Compared, compare, comparison_tables
from analysis.figures.differences import differences
from analysis.runs import find_runs


def compared_variants(results: Path, times_s: Mapping[str, float]) -> list[Compared]:
    """Three runs of each, which take so long on average, a little more or less by chance."""
    for variant, time_s in times_s.items():
        for seed in (1, 2, 3):
            spread = 1 + 0.0005 * ((seed * len(variant)) % 4)
            Made(variant, "SharedDropping", seed, time_s=time_s * spread).write(results)
    return compare(find_runs(results), list(times_s))


def test_many_variants_are_shown_at_once(tmp_path: Path) -> None:
    times_s = {"vanilla": 20.0, "pctls": 2.5, "mine": 20.01, "other": 5.0}
    compared = compared_variants(tmp_path, times_s)
    assert {row.comparisons for row in compared} == {3}
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
    assert "each by itself has 98.3 %" in overview.note


def test_what_single_runs_do_not_decide_is_said(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls", "mine"):
        Made(variant, "SharedDropping").write(tmp_path)
    compared = compare(find_runs(tmp_path), ["vanilla", "pctls", "mine"])
    undecided = comparison_tables("x", compared)[-1]
    assert undecided.title == "x: what the runs don't decide"
    assert {row[0] for row in undecided.rows} == {"pctls", "mine"}
    assert all(row[-1].startswith("not enough runs to tell") for row in undecided.rows)


def test_the_chart_has_a_row_for_each_variant(tmp_path: Path) -> None:
    times_s = {"vanilla": 20.0, "pctls": 2.5, "a-variant-of-a-long-name": 19.0}
    compared = compared_variants(tmp_path / "runs", times_s)
    drawing = differences("SharedDropping", "chart", compared)
    assert drawing
    panel = drawing.figure.axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == list(times_s)[1:]
    dots = [line.get_xydata() for line in panel.lines if line.get_marker() == "o"]
    assert [float(dot[0][0]) for dot in np.array(dots)] == pytest.approx([8.0, 20 / 19], rel=0.01)
    edge = panel.get_yticklabels()[1].get_window_extent().x0
    assert edge > 0  # the longest name isn't cut off
