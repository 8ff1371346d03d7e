"""Plots of distributions, by the data that they show.

The run directories are made here; no experiment runs.
"""

from pathlib import Path

import numpy as np
import pytest
from made_runs import Made
from matplotlib.figure import Figure
from plotted import curves, points

from analysis import style
from analysis.figures import distributions
from analysis.figures.distributions import MOST_STEPS, CumulativeDistribution
from analysis.runs import find_runs

TAIL_PLACES = [0.0, 1.0, 2.0]
"""The places of 0, 0.9 and 0.99 on a tail-logarithmic axis."""


def plotted_distributions(results: Path) -> dict[str, Figure]:
    groups = find_runs(results).valid
    looks = style.looks(group.variant for group in groups)
    return {plot.name: plot.figure for plot in distributions.plots(groups, looks)}


def test_a_distribution_says_how_many_values_are_at_most_each() -> None:
    found = CumulativeDistribution.of([3.0, 1.0, 2.0, 2.0])
    assert found.values.tolist() == [1.0, 2.0, 2.0, 3.0]
    assert found.shares.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert found.count == 4


def test_a_distribution_of_one_value() -> None:
    found = CumulativeDistribution.of([7.0])
    assert (found.values.tolist(), found.shares.tolist()) == ([7.0], [1.0])


def test_thinning_leaves_points_of_the_whole_distribution_close_to_each_other() -> None:
    values = np.random.default_rng(1).exponential(size=50_000)
    found = CumulativeDistribution.of(values)
    assert len(found.values) <= MOST_STEPS + 1
    at_most = np.searchsorted(np.sort(values), found.values, side="right")
    assert found.shares.tolist() == (at_most / 50_000).tolist()
    assert (found.values[0], found.values[-1]) == (values.min(), values.max())
    # With enough values to choose from, no two points are far apart on the axis.
    places = -np.log10(1 - found.shares[found.shares < 0.999])
    assert np.diff(places).max() < 0.03


def test_a_panel_has_the_times_of_the_measured_whole_transfers_of_all_runs(tmp_path: Path) -> None:
    Made(seed=1, time_s=2.0).write(tmp_path)
    Made(seed=2, time_s=4.0).write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    line = curves(figure.axes[0])["vanilla"]
    # Two transfers of each of eight clients in each run, without failed and late ones.
    steps = [(2.0, number / 32) for number in range(17)]
    steps += [(4.0, number / 32) for number in range(17, 33)]
    assert points(line) == steps
    assert line.get_drawstyle() == "steps-post"


def test_figure_13_has_a_row_a_time_and_a_column_a_scenario(tmp_path: Path) -> None:
    for variant in ("pctls", "vanilla"):
        for scenario in ("SharedDropping", "NoDropping", "DroppingRemaining"):
            Made(variant, scenario).write(tmp_path)
    plotted = plotted_distributions(tmp_path)
    assert list(plotted) == ["distributions-bulk-eight_clients-300s"]
    panels = plotted["distributions-bulk-eight_clients-300s"].axes
    titles = [panel.get_title() for panel in panels[:3]]
    assert titles == ["NoDropping", "DroppingRemaining", "SharedDropping"]
    assert [panel.get_xlabel() for panel in panels[::3]] == [
        "time to last byte, s",
        "circuit build time, ms",
        "stream round trip, ms",
    ]
    last_values = [points(curves(panel)["pctls"])[-1][0] for panel in panels[::3]]
    assert last_values == pytest.approx([2.5, 150.0, 80.0])
    assert all(list(curves(panel)) == ["vanilla", "pctls"] for panel in panels)


def test_runs_that_lack_the_streams_round_trip_show_the_circuits(tmp_path: Path) -> None:
    Made(stream_round_trip_ms=None).write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    assert figure.axes[-1].get_xlabel() == "circuit round trip, ms"


def test_a_row_has_one_x_axis_and_a_logarithmic_one_if_times_differ_by_factors(
    tmp_path: Path,
) -> None:
    Made(time_s=2.0, stream_round_trip_ms=90.0).write(tmp_path)
    Made(scenario="SharedDropping", time_s=20.0, stream_round_trip_ms=95.0).write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    times, other_times, *_, round_trips, _ = figure.axes
    assert times.get_xlim() == other_times.get_xlim()
    assert times.get_xlim()[0] < 2.0 < 20.0 < times.get_xlim()[1]
    assert (times.get_xscale(), round_trips.get_xscale()) == ("log", "linear")


def test_the_tail_of_shares_is_logarithmic(tmp_path: Path) -> None:
    Made().write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    axis = figure.axes[0].yaxis.get_transform()
    assert axis.transform(np.array([0.0, 0.9, 0.99])).tolist() == pytest.approx(TAIL_PLACES)
    assert axis.inverted().transform(np.array(TAIL_PLACES)).tolist() == [0.0, 0.9, 0.99]


@pytest.mark.parametrize(("values", "top"), [(3, 0.9), (16, 0.99), (99, 0.99), (100_000, 0.999)])
def test_the_axis_of_shares_ends_where_so_many_values_say_no_more(values: int, top: float) -> None:
    panel = Figure().subplots()
    style.scale_tail(panel, values)
    assert panel.get_ylim() == pytest.approx((0, top))


def test_scenarios_without_a_run_of_a_variant_or_a_time_are_plotted(tmp_path: Path) -> None:
    Made().write(tmp_path)
    Made("pctls", "SharedDropping", time_s=None, round_trip_ms=None).write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    assert [list(curves(panel)) for panel in figure.axes[:4]] == [
        ["vanilla"],
        [],
        ["vanilla"],
        ["pctls"],
    ]
    assert figure.axes[1].texts[0].get_text() == "no runs"


def test_figure_14_has_a_row_a_model_and_only_the_client_under_test(tmp_path: Path) -> None:
    Made(scenario="One", traffic="audio", time_s=5.1).write(tmp_path)
    Made(scenario="Two", traffic="bulk", time_s=3.0).write(tmp_path)
    plotted = plotted_distributions(tmp_path)
    assert list(plotted) == [
        "time-to-last-byte-two_clients-300s",
        "circuit-build-time-two_clients-300s",
        "stream-round-trip-two_clients-300s",
    ]
    bulk_one, bulk_two, audio_one, audio_two = plotted["time-to-last-byte-two_clients-300s"].axes
    assert [list(curves(panel)) for panel in (bulk_one, audio_two)] == [[], []]
    assert (bulk_one.get_title(), bulk_two.get_title()) == ("One", "Two")
    assert audio_one.get_ylabel().startswith("audio")
    # Both of two bulk clients are under test.
    assert {x for x, _ in points(curves(bulk_two)["vanilla"])} == {3.0}
    assert len(points(curves(bulk_two)["vanilla"])) == 1 + 4
    assert len(points(curves(audio_one)["vanilla"])) == 1 + 2


def test_the_build_times_of_all_models_are_one_row(tmp_path: Path) -> None:
    for traffic in ("audio", "web"):
        Made(scenario="One", traffic=traffic).write(tmp_path)
    (panel,) = plotted_distributions(tmp_path)["circuit-build-time-two_clients-300s"].axes
    assert len(points(curves(panel)["vanilla"])) == 1 + 2


def test_an_axis_is_broken_where_scales_differ(tmp_path: Path) -> None:
    Made("vanilla", "Three", time_s=300.0).write(tmp_path)
    Made("pctls", "Three", time_s=40.0).write(tmp_path)
    figure = plotted_distributions(tmp_path)["time-to-last-byte-two_clients-300s"]
    left, right, frame = figure.axes
    assert left.get_xlim()[0] < 40.0 < left.get_xlim()[1] < right.get_xlim()[0] < 300.0
    assert list(curves(left)) == list(curves(right)) == ["vanilla", "pctls"]
    assert (frame.get_title(), frame.get_xlabel()) == ("Three", "time to last byte, s")
    assert list(curves(frame)) == []


def test_a_line_is_plotted_in_its_variants_colour_and_style(tmp_path: Path) -> None:
    Made("pctls").write(tmp_path)
    (figure,) = plotted_distributions(tmp_path).values()
    line = curves(figure.axes[0])["pctls"]
    look = style.looks(["pctls"])["pctls"]
    assert line.get_color() == look["color"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["pctls"]
    assert legend.get_lines()[0].get_color() == look["color"]


def test_runs_with_changed_values_have_figures_of_their_own(tmp_path: Path) -> None:
    Made("pctls").write(tmp_path)
    changed = f"{Made('pctls').scenario},parameters.clients=9"
    folder = Made("pctls", changed={"scenario": changed, "changes": {"parameters.clients": 9}})
    summary = folder.write(tmp_path / "nine") / "summary.json"
    summary.write_text(summary.read_text().replace(f'"{folder.scenario}"', f'"{changed}"'))
    assert list(plotted_distributions(tmp_path)) == [
        "distributions-bulk-eight_clients-300s",
        f"distributions-bulk-eight_clients-300s-{folder.scenario}-changed",
    ]
