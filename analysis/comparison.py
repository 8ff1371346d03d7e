"""Many runs beside the published figures: a table, and the distribution of transfer times.

Runs are read, never made; what the figures of a single run contain is said in docs/measurements.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars
from rich.console import Console
from rich.table import Table

from analysis.published import TABLE_4, TABLE_4_TRAFFIC, Published
from testbed.errors import InputError, TestbedError
from testbed.results import Run, read_run

BASELINE = "NoDropping"
"""The scenario that the others' changes are against."""

SCENARIO_ORDER = (BASELINE, "DroppingRemaining", "SharedDropping")
VARIANT_ORDER = ("vanilla", "pctls")
"""What comes first in tables and figures; others follow by name."""

HEADINGS = (
    "variant",
    "scenario",
    "runs",
    "throughput, MB/s",
    "published",
    "circuit round trip, ms",
    "published",
)
LEGEND = (
    "Mean over runs ± standard deviation over runs; in brackets the change against"
    f" {BASELINE}. Published: Table 4 of Examining the Hydra."
)

_RUN_FILES = {"summary.json", "manifest.json", "error.txt"}


@dataclass(frozen=True, order=True)
class Group:
    """What runs must share to be averaged: all but the seed."""

    variant: str
    scenario: str
    traffic: str
    duration_s: float

    @classmethod
    def of(cls, run: Run) -> "Group":
        """The group of a run."""
        summary = run.summary
        return cls(summary.variant, summary.scenario, summary.traffic, summary.duration_s)

    @property
    def place(self) -> tuple[object, ...]:
        """Where the group stands in a table: by variant, then by scenario, as in the paper."""
        return (
            _place(self.variant, VARIANT_ORDER),
            self.traffic != TABLE_4_TRAFFIC,
            self.traffic,
            self.duration_s,
            _place(self.scenario, SCENARIO_ORDER),
        )

    @property
    def label(self) -> str:
        """The scenario, and the traffic if it is another than the published one."""
        return (
            self.scenario if self.traffic == TABLE_4_TRAFFIC else f"{self.scenario}-{self.traffic}"
        )

    @property
    def baseline(self) -> "Group":
        """The group that this one's change is against."""
        return Group(self.variant, BASELINE, self.traffic, self.duration_s)


@dataclass(frozen=True)
class Found:
    """The runs below a directory.

    Attributes:
        valid: those that count, by group, sorted by seed.
        left_out: a line for each that doesn't: which, and why.
    """

    valid: Mapping[Group, Sequence[Run]]
    left_out: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A figure over runs: the mean of their means, and the standard deviation of these.

    `deviation` divides by n - 1 and is None of one run.
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Figure | None":
        """The figure of runs, some of which may have none; None if none has."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def find_runs(directory: Path) -> Found:
    """Read every run below a directory, in whatever folders they lie.

    Left out, with their reasons: failed, damaged and invalid runs, and all but the first run of
    one plan, which says nothing new. Directories with a leading dot are runs under way.

    Raises:
        InputError: there is no such directory, or no run below it.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory: give one with run directories below it")
    valid: dict[Group, list[Run]] = defaultdict(list)
    left_out: list[str] = []
    seen: dict[str, Path] = {}
    for folder in _run_directories(directory):
        try:
            run = read_run(folder)
        except TestbedError as error:
            left_out.append(f"{folder}: {error}")
            continue
        if reason := _reason_against(run, seen):
            left_out.append(f"{folder}: {reason}")
            continue
        seen[run.manifest["plan_key"]] = folder
        valid[Group.of(run)].append(run)
    if not valid and not left_out:
        raise InputError(f"{directory} holds no run: make one with ./run.py scenario")
    for runs in valid.values():
        runs.sort(key=lambda run: run.summary.seed)
    groups = sorted(valid, key=lambda group: group.place)
    return Found({group: valid[group] for group in groups}, left_out)


def _reason_against(run: Run, seen: Mapping[str, Path]) -> str | None:
    if not run.summary.valid:
        failed = ", ".join(check.name for check in run.summary.checks if not check.ok)
        return f"invalid: {failed}"
    if before := seen.get(run.manifest["plan_key"]):
        return f"of the same plan as {before}"
    return None


def _run_directories(directory: Path) -> Iterator[Path]:
    """Directories that are runs or what is left of one, sorted; runs don't hold other runs."""
    for folder, folders, files in os.walk(directory):
        if _RUN_FILES & set(files):
            folders.clear()
            yield Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def table_rows(found: Found) -> Iterator[tuple[str, ...]]:
    """The cells of each row of the table, in the order of `HEADINGS`."""
    for group, runs in found.valid.items():
        baseline = found.valid.get(group.baseline, ())
        published = TABLE_4.get((group.variant, group.scenario))
        if group.traffic != TABLE_4_TRAFFIC:
            published = None
        yield (
            group.variant,
            group.label,
            f"{len(runs)} of {group.duration_s:g} s",
            _cell(throughput(runs), throughput(baseline), digits=2),
            _published_throughput(published),
            _cell(round_trip(runs), round_trip(baseline), digits=0),
            _published_round_trip(published),
        )


def throughput(runs: Sequence[Run]) -> Figure | None:
    """The throughput of a transfer over runs, in MB/s, 1 MB = 10^6 bytes."""
    return Figure.of(run.summary.throughput_mb_per_s.mean for run in runs)


def round_trip(runs: Sequence[Run]) -> Figure | None:
    """The circuit round trip over runs, in ms."""
    return Figure.of(run.summary.circuit_round_trip_ms.mean for run in runs)


def _cell(figure: Figure | None, baseline: Figure | None, *, digits: int) -> str:
    if figure is None:
        return "-"
    change = None
    if baseline and baseline.mean:
        change = figure.mean / baseline.mean - 1
    return _text(figure.mean, figure.deviation, change, digits)


def _published_throughput(published: Published | None) -> str:
    if published is None:
        return "-"
    return _text(*published.throughput_mb_per_s, published.throughput_change, 2)


def _published_round_trip(published: Published | None) -> str:
    if published is None:
        return "-"
    return _text(*published.circuit_round_trip_ms, published.round_trip_change, 0)


def _text(mean: float, deviation: float | None, change: float | None, digits: int) -> str:
    """Such as "0.37 ± 0.04 (-81 %)"; no bracket where there is no change to tell."""
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    against = f" ({change:+.0%})".replace("%", " %") if change else ""
    return f"{mean:.{digits}f}{spread}{against}"


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """The table as Markdown, without a line's end at its end."""
    lines = [HEADINGS, ["---"] * 3 + ["---:"] * (len(HEADINGS) - 3), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def print_table(console: Console, rows: Iterable[Sequence[str]]) -> None:
    """The table on a terminal, each cell in as many lines as keep the whole within 80 columns."""
    table = Table(box=None, pad_edge=False, caption=LEGEND, caption_justify="left")
    for number, heading in enumerate(HEADINGS):
        justify: Literal["left", "right"] = "left" if number < 3 else "right"
        table.add_column(heading.replace(" ", "\n"), justify=justify, no_wrap=True)
    for cells in rows:
        table.add_row(*(cell.replace(" (", "\n(").replace(" of ", " of\n") for cell in cells))
    console.print(table)


def transfer_times_figure(found: Found, file: Path) -> None:
    """Draw how many transfers were done within which time: a panel a scenario, a line a variant.

    Args:
        file: PNG, PDF or SVG by its ending.

    Raises:
        InputError: no run counts, or the file's ending is none of these, or it can't be written.
    """
    from analysis import style  # matplotlib takes a second to import, the table needs none

    if not found.valid:
        raise InputError(f"{file} is not drawn: no run counts")
    labels = list(dict.fromkeys(group.label for group in sorted(found.valid, key=_panel_place)))
    variants = list(dict.fromkeys(group.variant for group in found.valid))
    figure, panels = style.panels(
        labels, x_label="time to last byte, s", y_label="share of transfers"
    )
    for group, runs in found.valid.items():
        times_s = sorted(_times_to_last_byte_s(runs))
        shares = [(number + 1) / len(times_s) for number in range(len(times_s))]
        panels[labels.index(group.label)].plot(
            times_s,
            shares,
            drawstyle="steps-post",
            label=group.variant,
            **style.line_of(variants.index(group.variant)),
        )
    for panel in panels:
        style.scale_logarithmically(panel)
    style.name_lines(figure)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise InputError(f"--figure {file}: {error}") from error


def _times_to_last_byte_s(runs: Sequence[Run]) -> list[float]:
    """Of every whole transfer that began before measuring ended, the runs put together."""
    return [
        time_s
        for run in runs
        for time_s in run.transfers.filter(polars.col("measured") & polars.col("ok"))[
            "time_to_last_byte_s"
        ].drop_nulls()
    ]


def _panel_place(group: Group) -> tuple[object, ...]:
    return (group.traffic != TABLE_4_TRAFFIC, group.traffic, _place(group.scenario, SCENARIO_ORDER))


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)


def main(arguments: Sequence[str]) -> int:
    """Print the table of the runs below a directory; the exit status, as of `run.py`."""
    parser = argparse.ArgumentParser(prog="analysis.comparison", description=__doc__)
    parser.add_argument("results", type=Path, help="a directory with run directories below it")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--figure", type=Path, help="draw the times to last byte into this file")
    given = parser.parse_args(arguments)
    try:
        found = find_runs(given.results)
        if given.markdown:
            print(markdown(table_rows(found)))
        else:
            print_table(Console(), table_rows(found))
        for line in found.left_out:
            print(f"left out: {line}")
        if given.figure:
            transfer_times_figure(found, given.figure)
    except TestbedError as error:
        print(f"analysis.comparison: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
