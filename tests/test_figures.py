"""Figures, by the data that is drawn: distributions, what happens over time, the network.

The run directories are made here; no experiment runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import START_S, Made
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image, ImageColor

from analysis import style
from analysis.figures import network, over_time
from analysis.figures.distributions import MOST_STEPS, CumulativeDistribution, distributions
from analysis.figures.drawing import Drawing
from analysis.runs import find_runs
from testbed.plan import make_plan
from testbed.plan_model import Plan
from testbed.results import Run, read_run

TAIL_PLACES = [0.0, 1.0, 2.0]
"""Where 0, 0.9 and 0.99 lie on a tail-logarithmic axis."""


def drawn_distributions(results: Path) -> dict[str, Figure]:
    groups = find_runs(results).valid
    looks = style.looks(group.variant for group in groups)
    return {drawing.name: drawing.figure for drawing in distributions(groups, looks)}


def curves(panel: Axes) -> dict[str, Line2D]:
    """The lines that are named, so no marks of a broken axis."""
    return {
        str(line.get_label()): line
        for line in panel.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def points(line: Line2D) -> list[tuple[float, float]]:
    x, y = line.get_data(orig=False)
    return list(zip(np.asarray(x, float).tolist(), np.asarray(y, float).tolist(), strict=True))


# Distributions: their data.


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
    # Where there are enough values to choose from, no two points are far apart on the axis.
    places = -np.log10(1 - found.shares[found.shares < 0.999])
    assert np.diff(places).max() < 0.03


# Distributions: figure 13.


def test_a_panel_has_the_times_of_the_measured_whole_transfers_of_all_runs(tmp_path: Path) -> None:
    Made(seed=1, time_s=2.0).write(tmp_path)
    Made(seed=2, time_s=4.0).write(tmp_path)
    (figure,) = drawn_distributions(tmp_path).values()
    line = curves(figure.axes[0])["vanilla"]
    # Two transfers of each of eight clients and each run; no failed one, and none that came late.
    steps = [(2.0, number / 32) for number in range(17)]
    steps += [(4.0, number / 32) for number in range(17, 33)]
    assert points(line) == steps
    assert line.get_drawstyle() == "steps-post"


def test_figure_13_has_a_row_a_time_and_a_column_a_scenario(tmp_path: Path) -> None:
    for variant in ("pctls", "vanilla"):
        for scenario in ("SharedDropping", "NoDropping", "DroppingRemaining"):
            Made(variant, scenario).write(tmp_path)
    drawn = drawn_distributions(tmp_path)
    assert list(drawn) == ["distributions-bulk-eight_clients-300s"]
    panels = drawn["distributions-bulk-eight_clients-300s"].axes
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
    (figure,) = drawn_distributions(tmp_path).values()
    assert figure.axes[-1].get_xlabel() == "circuit round trip, ms"


def test_a_row_has_one_x_axis_and_a_logarithmic_one_if_times_differ_by_factors(
    tmp_path: Path,
) -> None:
    Made(time_s=2.0, stream_round_trip_ms=90.0).write(tmp_path)
    Made(scenario="SharedDropping", time_s=20.0, stream_round_trip_ms=95.0).write(tmp_path)
    (figure,) = drawn_distributions(tmp_path).values()
    times, other_times, *_, round_trips, _ = figure.axes
    assert times.get_xlim() == other_times.get_xlim()
    assert times.get_xlim()[0] < 2.0 < 20.0 < times.get_xlim()[1]
    assert (times.get_xscale(), round_trips.get_xscale()) == ("log", "linear")


def test_the_tail_of_shares_is_logarithmic(tmp_path: Path) -> None:
    Made().write(tmp_path)
    (figure,) = drawn_distributions(tmp_path).values()
    axis = figure.axes[0].yaxis.get_transform()
    assert axis.transform(np.array([0.0, 0.9, 0.99])).tolist() == pytest.approx(TAIL_PLACES)
    assert axis.inverted().transform(np.array(TAIL_PLACES)).tolist() == [0.0, 0.9, 0.99]


@pytest.mark.parametrize(("values", "top"), [(3, 0.9), (16, 0.99), (99, 0.99), (100_000, 0.999)])
def test_the_axis_of_shares_ends_where_so_many_values_say_no_more(values: int, top: float) -> None:
    panel = Figure().subplots()
    style.scale_tail(panel, values)
    assert panel.get_ylim() == pytest.approx((0, top))


def test_scenarios_without_a_run_of_a_variant_or_a_time_are_drawn(tmp_path: Path) -> None:
    Made().write(tmp_path)
    Made("pctls", "SharedDropping", time_s=None, round_trip_ms=None).write(tmp_path)
    (figure,) = drawn_distributions(tmp_path).values()
    assert [list(curves(panel)) for panel in figure.axes[:4]] == [
        ["vanilla"],
        [],
        ["vanilla"],
        ["pctls"],
    ]
    assert figure.axes[1].texts[0].get_text() == "no runs"


# Distributions: figure 14.


def test_figure_14_has_a_row_a_model_and_only_the_client_under_test(tmp_path: Path) -> None:
    Made(scenario="One", traffic="audio", time_s=5.1).write(tmp_path)
    Made(scenario="Two", traffic="bulk", time_s=3.0).write(tmp_path)
    drawn = drawn_distributions(tmp_path)
    assert list(drawn) == [
        "time-to-last-byte-two_clients-300s",
        "circuit-build-time-two_clients-300s",
        "stream-round-trip-two_clients-300s",
    ]
    bulk_one, bulk_two, audio_one, audio_two = drawn["time-to-last-byte-two_clients-300s"].axes
    assert [list(curves(panel)) for panel in (bulk_one, audio_two)] == [[], []]
    assert (bulk_one.get_title(), bulk_two.get_title()) == ("One", "Two")
    assert audio_one.get_ylabel().startswith("audio")
    # Of two bulk clients both are under test.
    assert {x for x, _ in points(curves(bulk_two)["vanilla"])} == {3.0}
    assert len(points(curves(bulk_two)["vanilla"])) == 1 + 4
    assert len(points(curves(audio_one)["vanilla"])) == 1 + 2


def test_the_build_times_of_all_models_are_one_row(tmp_path: Path) -> None:
    for traffic in ("audio", "web"):
        Made(scenario="One", traffic=traffic).write(tmp_path)
    (panel,) = drawn_distributions(tmp_path)["circuit-build-time-two_clients-300s"].axes
    assert len(points(curves(panel)["vanilla"])) == 1 + 2


def test_an_axis_is_broken_where_scales_differ(tmp_path: Path) -> None:
    Made("vanilla", "Three", time_s=300.0).write(tmp_path)
    Made("pctls", "Three", time_s=40.0).write(tmp_path)
    figure = drawn_distributions(tmp_path)["time-to-last-byte-two_clients-300s"]
    left, right, frame = figure.axes
    assert left.get_xlim()[0] < 40.0 < left.get_xlim()[1] < right.get_xlim()[0] < 300.0
    assert list(curves(left)) == list(curves(right)) == ["vanilla", "pctls"]
    assert (frame.get_title(), frame.get_xlabel()) == ("Three", "time to last byte, s")
    assert list(curves(frame)) == []


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0], [(1.0, 1.0)]),
        ([2.0, 2.0], [(2.0, 2.0)]),
        ([1.0, 1.1, 9.0, 9.1], [(1.0, 1.1), (9.0, 9.1)]),
        # Evenly spread, close to each other, and a lonely outlier.
        ([1.0, 2.0, 3.0, 4.0], [(1.0, 4.0)]),
        ([5.10, 5.11, 5.19, 5.20], [(5.10, 5.20)]),
        ([1.0 + 0.1 * number for number in range(19)] + [90.0], [(1.0, 90.0)]),
    ],
)
def test_intervals(values: Sequence[float], shown: list[tuple[float, float]]) -> None:
    assert style.intervals(values) == shown


# How lines look.


def test_a_variant_looks_the_same_whatever_others_there_are() -> None:
    alone, many = style.looks(["pctls"]), style.looks(["other", "pctls", "vanilla", "another"])
    assert alone["pctls"] == many["pctls"]
    assert len({str(look["color"]) for look in many.values()}) == 4
    assert len({str(look["linestyle"]) for look in many.values()}) == 4


def test_a_line_is_drawn_in_its_variants_colour_and_style(tmp_path: Path) -> None:
    Made("pctls").write(tmp_path)
    (figure,) = drawn_distributions(tmp_path).values()
    line = curves(figure.axes[0])["pctls"]
    look = style.looks(["pctls"])["pctls"]
    assert line.get_color() == look["color"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["pctls"]
    assert legend.get_lines()[0].get_color() == look["color"]


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


def test_runs_with_changed_values_have_figures_of_their_own(tmp_path: Path) -> None:
    Made("pctls").write(tmp_path)
    changed = f"{Made('pctls').scenario},parameters.clients=9"
    folder = Made("pctls", changed={"scenario": changed, "changes": {"parameters.clients": 9}})
    summary = folder.write(tmp_path / "nine") / "summary.json"
    summary.write_text(summary.read_text().replace(f'"{folder.scenario}"', f'"{changed}"'))
    assert list(drawn_distributions(tmp_path)) == [
        "distributions-bulk-eight_clients-300s",
        f"distributions-bulk-eight_clients-300s-{folder.scenario}-changed",
    ]


# Over time.


@dataclass(frozen=True)
class Recorded(Made):
    """A run with tables of its own in place of the made ones."""

    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return super().rows() | dict(self.tables)


def at(second: float, **values: object) -> dict[str, Any]:
    """A row, `second` after measuring began."""
    return {"time_s": START_S + second, **values}


def recorded(tmp_path: Path, scenario: str, traffic: str, **tables: list[dict[str, Any]]) -> Run:
    made = Recorded(scenario=scenario, traffic=traffic, duration_s=60, tables=tables)
    return read_run(made.write(tmp_path))


def values(lines: Sequence[over_time.Line]) -> list[tuple[str, list[float], list[float]]]:
    return [(line.name, line.times_s.tolist(), line.values.tolist()) for line in lines]


def test_delivered_is_told_by_client_while_the_run_measures(tmp_path: Path) -> None:
    run = recorded(
        tmp_path,
        *("One", "audio"),
        delivered=[
            at(-1.0, client="client2", received_bytes=9),
            at(1.0, client="client1", received_bytes=2_000_000),
            at(1.5, client="client2", received_bytes=50_000),
            at(2.5, client="client2", received_bytes=40_000),
            at(60.5, client="client2", received_bytes=9),
        ],
    )
    (under_test,) = over_time.delivered_mb_per_s(run)
    (beside,) = over_time.delivered_beside_mb_per_s(run)
    assert (under_test.name, under_test.times_s.tolist()) == ("client2", [1.5, 2.5])
    assert under_test.values.tolist() == pytest.approx([0.05, 0.04])
    assert values([beside]) == [("client1", [1.0], [2.0])]
    assert (under_test.under_test, beside.under_test) == (True, False)


def test_each_connection_of_the_shared_link_is_a_line_of_its_sending_end(tmp_path: Path) -> None:
    def sample(
        second: float, peer_port: int, sent_again: int, ends: Sequence[str] = ("exit1", "middle1")
    ) -> dict[str, Any]:
        state = {"cwnd_segments": 10 * peer_port, "rtt_ms": 25.0 + second}
        counted = {"port": 9001, "peer_port": peer_port, "retransmitted_segments": sent_again}
        return at(second, node=ends[0], peer=ends[1], **state, **counted)

    run = recorded(
        tmp_path,
        *("NoDropping", "bulk"),
        sockets=[
            sample(0.0, 1, 5),
            sample(0.0, 2, 0),
            sample(0.0, 1, 99, ("middle1", "exit1")),
            sample(0.0, 1, 99, ("exit1", "middle2")),
            sample(0.5, 1, 7),
        ],
    )
    names = ["9001 1", "9001 2"]
    times = [[0.0, 0.5], [0.0]]
    for quantity, expected in (
        (over_time.congestion_window_segments, [[10.0, 10.0], [20.0]]),
        (over_time.kernel_round_trip_ms, [[25.0, 25.5], [25.0]]),
        (over_time.retransmitted_segments, [[0.0, 2.0], [0.0]]),
    ):
        assert values(quantity(run)) == list(zip(names, times, expected, strict=True))


def test_tors_queue_by_mean_wait_and_by_littles_law(tmp_path: Path) -> None:
    def sample(second: float, queue: str, removed: int, waited_ms: int) -> dict[str, Any]:
        row = {"connection": "3", "queue": queue, "removed_cells": removed, "waited_ms": waited_ms}
        return at(second, relay="exit1", **row)

    run = recorded(
        tmp_path,
        *("NoDropping", "bulk"),
        queues=[
            sample(1.0, "a", 100, 2000),
            sample(1.0, "b", 1, 0),
            sample(2.0, "a", 50, 500),
            # Nothing had left it for four seconds.
            sample(6.0, "a", 10, 40_000),
            sample(7.0, "a", 0, 0),
        ],
    )
    waits, other_waits = over_time.wait_in_tor_ms(run)
    assert waits.values.tolist() == pytest.approx([20.0, 10.0, 4000.0, np.nan], nan_ok=True)
    assert other_waits.values.tolist() == [0.0]
    cells, _ = over_time.cells_in_tor(run)
    # 100 cells a second that wait 20 ms each are two at any moment; 10 in 4 s that wait 4 s, ten.
    assert values([cells]) == [("3 a", [1.0, 2.0, 6.0, 7.0], [2.0, 0.5, 10.0, 0.0])]


def test_competing_streams_by_what_arrived(tmp_path: Path) -> None:
    plan = make_plan("Two", "vanilla")
    (entry,) = plan.competing
    stream, other, *_ = entry.stream_ports

    def sample(second: float, port: int, received: int) -> dict[str, Any]:
        ends = {"node": entry.receiver, "peer": entry.sender, "port": entry.port}
        return at(second, **ends, peer_port=port, received_bytes=received)

    run = recorded(
        tmp_path,
        *("Two", "bulk"),
        competing=[
            sample(0.0, stream, 100),
            sample(0.0, other, 0),
            at(0.0, node=entry.sender, port=stream, peer_port=entry.port, received_bytes=9),
            sample(0.5, stream, 1_000_100),
            sample(0.5, other, 500_000),
        ],
    )
    lines = over_time.competing_mb_per_s(run)
    assert [line.values[1:].tolist() for line in lines] == [[2.0], [1.0]]
    assert not any(line.under_test for line in lines)
    assert over_time.competing_mb_per_s(recorded(tmp_path, "One", "bulk")) == []


def test_the_mean_of_lines_is_by_the_second() -> None:
    def line(times: list[float], numbers: list[float]) -> over_time.Line:
        return over_time.Line("x", True, np.array(times), np.array(numbers))

    early, late = line([0.999, 1.999], [1.0, 2.0]), line([1.001, 2.001], [3.0, np.nan])
    mean = over_time.mean([early, late])
    assert values([mean]) == [("mean", [1.0, 1.999], [2.0, 2.0])]


def test_the_median_run_stands_for_its_group(tmp_path: Path) -> None:
    times_s = {1: 9.0, 2: 3.0, 3: 2.0, 4: None}
    for seed, time_s in times_s.items():
        Made(seed=seed, time_s=time_s).write(tmp_path)
    (runs,) = find_runs(tmp_path).valid.values()
    assert over_time.representative(runs).summary.seed == 2
    assert over_time.representative(runs[:1]).summary.seed == 1


def drawn_over_time(results: Path) -> list[Drawing]:
    groups = find_runs(results).valid
    return list(over_time.over_time(groups, style.looks(group.variant for group in groups)))


def test_variants_stand_side_by_side_on_the_same_axes(tmp_path: Path) -> None:
    for variant, kilobytes in (("vanilla", 300), ("pctls", 1800)):
        Made(variant, delivered_kb=[kilobytes, kilobytes]).write(tmp_path)
    (drawing,) = drawn_over_time(tmp_path)
    assert drawing.name == "over-time-NoDropping-bulk-300s"
    left, right = drawing.figure.axes  # of all quantities, these runs have only one
    assert left.get_ylabel() == "delivered,\nMB/s"
    assert [left.get_title(), right.get_title()] == ["vanilla, seed 1", "pctls, seed 1"]
    assert left.get_ylim() == right.get_ylim()
    assert left.get_xlim() == right.get_xlim() == (0.0, 300.0)
    # Eight clients, and over them their mean.
    assert list(curves(left)) == [*(f"client{number}" for number in range(1, 9)), "mean"]
    assert {line.get_color() for line in right.get_lines()} == {style.looks([])["pctls"]["color"]}
    of_mean = np.array(points(curves(right)["mean"]))
    assert of_mean == pytest.approx(np.array(points(curves(right)["client1"])))
    assert of_mean[:, 1].tolist() == pytest.approx([1.8, 1.8])


def test_runs_of_which_nothing_was_recorded_have_no_figure(tmp_path: Path) -> None:
    Made().write(tmp_path)
    assert drawn_over_time(tmp_path) == []


# The network.


def plan_of(scenario: str, traffic: str = "bulk") -> Plan:
    return make_plan(scenario, "vanilla", traffic=traffic)


def test_nodes_stand_in_a_column_for_each_role() -> None:
    places = network.places_of(plan_of("NoDropping"))
    assert "authority1" not in places
    assert [places[f"client{number}"] for number in (1, 8)] == [(0, 0.0), (0, 7.0)]
    assert [places[f"guard{number}"] for number in (1, 4)] == [(1, 0.5), (1, 6.5)]
    assert [places[name] for name in ("middle1", "exit1", "server1")] == [
        (column, 3.5) for column in (2, 3, 4)
    ]


def test_links_are_drawn_with_what_they_do(tmp_path: Path) -> None:
    Made(scenario="SharedDropping").write(tmp_path)
    (drawing,) = network.networks(find_runs(tmp_path).valid)
    (panel,) = drawing.figure.axes
    words = [text.get_text() for text in panel.texts]
    assert "300 Mbit/s\n12.5 ms\nqueue 1000" in words
    assert "300 Mbit/s\n12.5 ms\n0.1 % loss\nqueue 1000" in words
    assert "client8: bulk" in words
    dashed = [line for line in panel.get_lines() if line.get_linestyle() == "--"]
    thick = [line for line in panel.get_lines() if line.get_linewidth() > 2]
    assert len(panel.get_lines()) == 8 + 4 + 2
    assert dashed == thick
    assert points(dashed[0]) == [(2.0, 3.5), (3.0, 3.5)]


def test_competing_streams_and_all_models_of_a_scenarios_runs_are_drawn(tmp_path: Path) -> None:
    for traffic in ("audio", "web"):
        Made(scenario="Two", traffic=traffic).write(tmp_path)
    (drawing,) = network.networks(find_runs(tmp_path).valid)
    words = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert {"client1: bulk", "client2: audio, web", "4 TCP streams, cubic"} <= set(words)


def test_congestion_control_is_told_of_all_nodes_or_of_each() -> None:
    plan = plan_of("NoDropping")
    assert network.congestion_control_of(plan) == "TCP: cubic."
    mixed = plan.model_copy(update={"congestion_control": {"exit1": "bbr", "middle1": "cubic"}})
    assert network.congestion_control_of(mixed) == "TCP: exit1 bbr, middle1 cubic."


# Files.


def test_a_drawing_is_the_same_file_each_time(tmp_path: Path) -> None:
    Made(delivered_kb=[50, 60]).write(tmp_path / "runs")
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (drawing,) = drawn_over_time(tmp_path / "runs")
        png, svg = drawing.save(folder)
        contents.append((png.read_bytes(), svg.read_bytes()))
    assert contents[0] == contents[1]


def test_a_palette_has_the_variants_colours_as_they_are(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls"):
        Made(variant, delivered_kb=[50, 60]).write(tmp_path / "runs")
    (drawing,) = drawn_over_time(tmp_path / "runs")
    png, _ = drawing.save(tmp_path)
    with Image.open(png) as image:
        assert (image.format, image.mode) == ("PNG", "P")
        counted = image.convert("RGB").getcolors()
    assert counted is not None
    colours = {colour for _, colour in counted}
    assert colours > {ImageColor.getrgb(colour) for colour in style.COLOURS[:2]}
