"""Throughput over a changed value: the points, and CUBIC's closed form against RFC 9438."""

from pathlib import Path

import numpy as np
import pytest
from made_runs import Made
from matplotlib.figure import Figure

from analysis import style
from analysis.figures.sweeps import cubic_mb_per_s, cubic_window_segments, plots
from analysis.plot import Plot
from analysis.runs import find_runs

LOSS = "links.middle-exit.loss"


def write(
    results: Path,
    variant: str,
    loss: str,
    time_s: float,
    key: str = LOSS,
    scenario: str = "SharedDropping",
) -> None:
    name = f"{scenario},{key}={loss.replace(' ', '')}"
    folder = Made(
        variant,
        scenario,
        time_s=time_s,
        changed={"scenario": name, "changes": {key: loss}},
    ).write(results / loss.replace(" ", ""))
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace(f'"{scenario}"', f'"{name}"'))


def plotted(results: Path) -> list[Plot]:
    return list(plots(find_runs(results).valid, style.looks([])))


def lines(figure: Figure) -> dict[str, list[list[float]]]:
    """The points of the named lines."""
    (panel,) = figure.axes
    found = dict(zip(*panel.get_legend_handles_labels()[::-1], strict=True))
    points = {name: np.asarray(bars.lines[0].get_xydata()) for name, bars in found.items()}
    return {name: each.tolist() for name, each in points.items()}


def test_a_line_for_each_variant_with_its_losses_in_order(tmp_path: Path) -> None:
    for loss, time_s in (("1 %", 50.0), ("0 %", 2.0), ("0.1 %", 20.0)):
        write(tmp_path, "vanilla", loss, time_s)
        write(tmp_path, "pctls", loss, time_s / 2)
    (plot,) = plotted(tmp_path)
    assert plot.name == "sweep-SharedDropping-bulk-300-links-middle-exit-loss"
    assert "8 circuits" in plot.caption
    found = lines(plot.figure)
    assert found["vanilla"] == [pytest.approx(each) for each in ((0, 2.5), (0.1, 0.25), (1, 0.1))]
    assert found["pctls"] == [pytest.approx(each) for each in ((0, 5.0), (0.1, 0.5), (1, 0.2))]
    # Both axes are logarithmic, with room for no loss.
    (panel,) = plot.figure.axes
    assert panel.get_xticks().tolist() == pytest.approx([0, 0.1, 1])
    assert (panel.get_xscale(), panel.get_yscale()) == ("symlog", "log")
    # Of CUBIC's two lines, one is eight times the other.
    *_, shared, own = plot.figure.axes[0].lines
    ratio = np.asarray(own.get_ydata()) / np.asarray(shared.get_ydata())
    assert ratio == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("key", "scenario"),
    [("links.guard-middle.loss", "DroppingRemaining"), (LOSS, "SharedDroppingBundles")],
)
def test_cubics_form_is_of_packets_that_the_shared_link_loses(
    tmp_path: Path, key: str, scenario: str
) -> None:
    for loss, time_s in (("1 %", 50.0), ("0.1 %", 20.0)):
        write(tmp_path, "vanilla", loss, time_s, key, scenario)
    (plot,) = plotted(tmp_path)
    assert "CUBIC" not in plot.caption
    assert not [line for line in plot.figure.axes[0].lines if line.get_color() == style.BESIDE]


def test_one_value_is_no_sweep(tmp_path: Path) -> None:
    write(tmp_path, "vanilla", "1 %", 50.0)
    Made("vanilla", "NoDropping").write(tmp_path)
    assert plotted(tmp_path) == []


@pytest.mark.parametrize(
    ("loss", "segments"),
    [(1e-2, 12), (1e-3, 38), (1e-4, 187), (1e-5, 1054), (1e-6, 5926)],
)
def test_cubics_window_is_the_rfcs(loss: float, segments: int) -> None:
    """RFC 9438, table 1, for a round trip of 0.1 s and C = 0.4; its first two rows are Reno's."""
    assert cubic_window_segments(loss, 0.1) == pytest.approx(segments, abs=1)


def test_what_a_window_carries() -> None:
    """38.7 segments of 1448 bytes every 25 ms, of which 3 % are cells' headers."""
    expected = 38.73 * 1448 * 498 / 514 / 0.025 / 1e6
    assert cubic_mb_per_s(0.001, 0.025) == pytest.approx(expected, rel=1e-4)
