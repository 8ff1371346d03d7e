"""What networks cost over their size: `./run.py costs`."""

from pathlib import Path

import numpy
import pytest
from command_line import refused, status_of

from analysis.costs import FIGURES, costs_plot, read_costs
from testbed.basics.toml_file import PROJECT

HEADER = f"program,tors,{','.join(FIGURES)}\n"


def test_the_chart_has_a_line_for_each_program_over_the_measured_sizes(tmp_path: Path) -> None:
    """A figure that nobody has measured is no point."""
    file = tmp_path / "costs.csv"
    file.write_text(HEADER + "ours,50,300,7,0.4,0.2\nours,2000,7000,,9,\ntheirs,50,500,12,1,0.3\n")
    panels = costs_plot(read_costs(file)).figure.axes
    assert [panel.get_title() for panel in panels] == list(FIGURES.values())
    assert [numpy.asarray(line.get_xdata()).tolist() for line in panels[0].lines] == [
        [50, 2000],
        [50],
    ]
    assert [numpy.asarray(line.get_ydata()).tolist() for line in panels[1].lines] == [[7], [12]]


def test_any_number_of_programs_is_plotted(tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    file.write_text(HEADER + "".join(f"program {one},50,300,7,0.4,0.2\n" for one in range(20)))
    assert len(costs_plot(read_costs(file)).figure.axes[0].lines) == 20


def test_the_projects_own_figures_are_plotted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that docs/performance.md shows."""
    chart = tmp_path / "costs.svg"
    assert status_of(["costs", str(PROJECT / "docs" / "costs.csv"), "--chart", str(chart)]) == 0
    assert "Shadow 3" in capsys.readouterr().out
    assert chart.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tors\n50\n", "expected program,tors,memory_mb"),
        (HEADER + "ours,many,1,2,3,4\n", "row 2: invalid literal"),
        (HEADER + "ours,50,1\n", "row 2: 3 cells: expected 6"),
        ("", "is empty"),
        (HEADER, "has no rows"),
    ],
)
def test_what_is_no_table_of_costs_is_refused(
    text: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one line that says what is expected."""
    file = tmp_path / "costs.csv"
    file.write_text(text)
    assert words in refused(["costs", str(file)], monkeypatch, capsys)
