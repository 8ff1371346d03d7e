"""The look of figures, the network of a scenario, and the files of plots.

The run directories are made here; no experiment runs.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from made_runs import Made
from PIL import Image, ImageColor
from plotted import plotted_over_time, points

from analysis import style
from analysis.figures import network
from analysis.runs import find_runs
from testbed.asked.plans import make_plan
from testbed.plan.model import Plan


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0], [(1.0, 1.0)]),
        ([2.0, 2.0], [(2.0, 2.0)]),
        ([1.0, 1.1, 9.0, 9.1], [(1.0, 1.1), (9.0, 9.1)]),
        # Even steps, values close to each other, and a single outlier.
        ([1.0, 2.0, 3.0, 4.0], [(1.0, 4.0)]),
        ([5.10, 5.11, 5.19, 5.20], [(5.10, 5.20)]),
        ([1.0 + 0.1 * number for number in range(19)] + [90.0], [(1.0, 90.0)]),
    ],
)
def test_intervals(values: Sequence[float], shown: list[tuple[float, float]]) -> None:
    assert style.intervals(values) == shown


def test_a_variant_looks_the_same_whatever_others_there_are() -> None:
    alone, many = style.looks(["pctls"]), style.looks(["other", "pctls", "vanilla", "another"])
    assert alone["pctls"] == many["pctls"]
    assert len({str(look["color"]) for look in many.values()}) == 4
    assert len({str(look["linestyle"]) for look in many.values()}) == 4


@pytest.mark.parametrize("count", [1, 7, 30])
def test_all_names_stand_above_the_panels_and_within_the_figure(count: int) -> None:
    looks = style.looks(f"a-variant-with-a-name-{number}" for number in range(count))
    title = style.wrapped("SharedDropping,links.middle-exit.loss=0.01%")
    figure, places = style.grid(1, 1, panel_inches=1, names=looks, titles=[title])
    panel = figure.add_subplot(places[0, 0])
    panel.set_title(title)
    style.name_lines(figure, looks)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    of_names, of_title = legend.get_window_extent(), panel.title.get_window_extent()
    assert of_names.x0 >= 0
    assert of_names.x1 <= figure.bbox.x1
    assert of_names.y1 <= figure.bbox.y1
    assert of_names.y0 >= of_title.y1 > of_title.y0 >= panel.bbox.y1


def plan_of(scenario: str, traffic: str = "bulk") -> Plan:
    return make_plan(scenario, "vanilla", traffic=traffic)


def test_nodes_stand_in_a_column_for_each_role() -> None:
    points = network.points_of(plan_of("NoDropping"))
    assert "authority1" not in points
    assert [points[f"client{number}"] for number in (1, 8)] == [(0, 0.0), (0, 7.0)]
    assert [points[f"guard{number}"] for number in (1, 4)] == [(1, 0.5), (1, 6.5)]
    assert [points[name] for name in ("middle1", "exit1", "server1")] == [
        (column, 3.5) for column in (2, 3, 4)
    ]


def test_links_are_plotted_with_what_they_do(tmp_path: Path) -> None:
    Made(scenario="SharedDropping").write(tmp_path)
    (plot,) = network.plots(find_runs(tmp_path).valid, style.looks([]))
    (panel,) = plot.figure.axes
    words = [text.get_text() for text in panel.texts]
    assert "300 Mbit/s\n12.5 ms\nqueue 1000" in words
    assert "300 Mbit/s\n12.5 ms\n0.1 % loss\nqueue 1000" in words
    assert "client8: bulk" in words
    dashed = [line for line in panel.get_lines() if line.get_linestyle() == "--"]
    thick = [line for line in panel.get_lines() if line.get_linewidth() > 2]
    assert len(panel.get_lines()) == 8 + 4 + 2
    assert dashed == thick
    assert points(dashed[0]) == [(2.0, 3.5), (3.0, 3.5)]


def test_competing_streams_and_all_models_of_a_scenarios_runs_are_plotted(tmp_path: Path) -> None:
    for traffic in ("audio", "web"):
        Made(scenario="Two", traffic=traffic).write(tmp_path)
    (plot,) = network.plots(find_runs(tmp_path).valid, style.looks([]))
    words = [text.get_text() for text in plot.figure.axes[0].texts]
    assert {"client1: bulk", "client2: audio, web", "4 TCP streams, cubic"} <= set(words)


def test_congestion_control_is_shown_for_all_nodes_or_for_each() -> None:
    plan = plan_of("NoDropping")
    assert network.congestion_control_of(plan) == "TCP: cubic."
    mixed = plan.model_copy(update={"congestion_control": {"exit1": "bbr", "middle1": "cubic"}})
    assert network.congestion_control_of(mixed) == "TCP: exit1 bbr, middle1 cubic."


def test_a_plot_is_the_same_file_each_time(tmp_path: Path) -> None:
    Made(delivered_kb=[50, 60]).write(tmp_path / "runs")
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (plot,) = plotted_over_time(tmp_path / "runs")
        png, svg = plot.save(folder)
        contents.append((png.read_bytes(), svg.read_bytes()))
    assert contents[0] == contents[1]


def test_a_palette_has_the_variants_colours_as_they_are(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls"):
        Made(variant, delivered_kb=[50, 60]).write(tmp_path / "runs")
    (plot,) = plotted_over_time(tmp_path / "runs")
    png, _ = plot.save(tmp_path)
    with Image.open(png) as image:
        assert (image.format, image.mode) == ("PNG", "P")
        counted = image.convert("RGB").getcolors()
    assert counted is not None
    colours = {colour for _, colour in counted}
    assert colours > {ImageColor.getrgb(colour) for colour in style.COLOURS[:2]}
