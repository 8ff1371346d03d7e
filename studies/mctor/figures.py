"""What is particular to this study: its tables of loads and of two users."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import polars

from analysis.cells import mean_cell
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import LARGEST_DIFFERENCE, LOAD_TIME
from analysis.runs import Found
from analysis.statistics import Change, MeanOverRuns, change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, percent
from testbed.basics.toml_file import PROJECT, read_toml
from testbed.results import Run

PUBLISHED = read_toml(PROJECT / "studies" / "mctor" / "published.toml")

PATH, BUSY = "ThreeContinents", "ThreeContinentsBusy"
FULL, IDLE = "FullLink", "IdleLink"
TWO_USERS = "ThreeContinents,parameters.clients=2"
ONE, FIVE, HASHING = "pctls", "mctor-5", "mctor-5-hashing"
LOADS = {"mctor-video": "video", "mctor-upload": "upload", "mctor-files": "files"}

CIRCUITS = {
    **{ONE: "1"},
    **{f"mctor-{number}": f"{number}, in turn" for number in range(2, 6)},
    **{f"mctor-{number}-hashing": f"{number}, by a hash" for number in range(2, 6)},
    "pctls-vegas": "1, Vegas",
    "mctor-5-vegas": "5 in turn, Vegas",
}
"""The variants, and how many circuits a client has with each and how streams are spread."""

SHARING = {ONE: 1, "mctor-2": 2, FIVE: 5}
"""The variants beside the streams of FullLink, and how many connections a client has with each."""
OTHERS = 4
"""The streams of FullLink."""
FILES = "mctor-files"
DOWNLOADS = ("mctor-video", FILES)
"""The loads that FullLink's streams compete with."""
STREAMS = {"mctor-video": 6, FILES: 5}
"""A load's own streams (docs/measurements.md, "Loads")."""
BEGINNING_S = 2.0
"""What counts as a load's beginning: streams are opened, and windows that had fallen grow."""

COMPARISONS = (
    ("five in turn against one", (PATH, ONE), (PATH, FIVE), ("five_against_one", "uniform")),
    ("five by a hash", (PATH, ONE), (PATH, HASHING), ("five_against_one", "hashing")),
    ("beside other traffic", (BUSY, ONE), (BUSY, "faster"), ("busy_five_against_one",)),
    ("that against none, five", (PATH, "faster"), (BUSY, "faster"), ("busy_against_idle",)),
)
"""What is compared: in words, before, after, and where the paper's number is.

"faster" is the rule that was the faster one of the load in the paper.
"""


class Runs:
    """The study's runs by scenario, variant and load."""

    def __init__(self, found: Found) -> None:
        self._runs = {
            (group.scenario, group.variant, group.traffic): runs
            for part in found.parts
            for group, runs in part.valid.items()
        }

    def of(self, scenario: str, variant: str, load: str) -> Sequence[Run]:
        """The runs, one for each seed; none if there are none."""
        return self._runs.get((scenario, variant, load), ())

    def by_seed(
        self, metric: Metric, scenario: str, variant: str, load: str
    ) -> Mapping[int, float]:
        """A metric of these by seed."""
        return metric.by_seed(self.of(scenario, variant, load))

    def load_change(
        self, before: tuple[str, str], after: tuple[str, str], load: str, comparisons: int = 1
    ) -> str:
        """The change of a load's time between two pairs of scenario and variant."""
        times = (self.by_seed(LOAD_TIME, *names, load) for names in (before, after))
        return change_text(change(*times, simultaneous_confidence(comparisons)))


def _beginning_percent(run: Run) -> float | None:
    """What the first `BEGINNING_S` of loads carry of what as long carries after it; None elsewhere.

    A load begins when all transfers of the last one have ended (`testbed.results.values.loads_s`).
    """
    if not run.is_whole or run.plan.scenario != FULL:
        return None
    begins = run.transfers.sort("start_s", "stream_id").gather_every(STREAMS[run.plan.traffic])
    since_s = run.delivered.join(begins.filter("measured").select("start_s"), how="cross").select(
        "received_bytes", since_s=polars.col("time_s") - polars.col("start_s")
    )
    first, after = (
        since_s.filter(polars.col("since_s").is_between(begin_s, begin_s + BEGINNING_S, "right"))
        for begin_s in (0.0, BEGINNING_S)
    )
    return 100 * first["received_bytes"].sum() / after["received_bytes"].sum()


BEGINNING = Metric(
    *("loads.beginning_percent", "first two seconds of a load", "%", 0, "neither"),
    of=_beginning_percent,
)


def metrics() -> list[Metric]:
    """Metrics beside those of all runs."""
    return [BEGINNING]


def tables(found: Found) -> dict[str, Table]:
    """The paper's experiments."""
    runs = Runs(found)
    return {
        "path": Table("The path", ("circuits", *LOADS.values()), tuple(_path_rows(runs))),
        "published": Table(
            "Five circuits against one",
            ("", *LOADS.values(), *(f"{name}, published" for name in LOADS.values())),
            tuple(_published_rows(runs)),
        ),
        "users": Table("Two users", ("circuits", *LOADS.values()), tuple(_users_rows(runs))),
        "shares": Table(
            "Shares of a full link",
            (
                "circuits",
                *(
                    name
                    for load in DOWNLOADS
                    for name in (LOADS[load], f"{LOADS[load]}, by counting")
                ),
                "files, idle link",
                "four streams, MB/s",
            ),
            tuple(_share_rows(runs)),
        ),
    }


def _path_rows(runs: Runs) -> Iterator[tuple[str, ...]]:
    """A row for each variant: the time of each load, and its change against one circuit."""
    for variant, circuits in CIRCUITS.items():
        cells = []
        for load in LOADS:
            times = runs.by_seed(LOAD_TIME, PATH, variant, load)
            cell = mean_cell(times.values(), LOAD_TIME.digits)
            changed = runs.load_change((PATH, ONE), (PATH, variant), load).partition(" (")[0]
            cells.append(cell if variant == ONE or cell == NOTHING else f"{cell} ({changed})")
        yield circuits, *cells


def _published_rows(runs: Runs) -> Iterator[tuple[str, ...]]:
    """A row for each comparison that the paper has a number of: our change, and its own."""
    for text, before, after, key in COMPARISONS:
        ours, theirs = [], []
        for load in LOADS:
            names = [
                (scenario, _faster(load) if variant == "faster" else variant)
                for scenario, variant in (before, after)
            ]
            ours.append(runs.load_change(names[0], names[1], load, len(LOADS)))
            of = PUBLISHED
            for part in key:
                of = of[part]
            slower = key == ("busy_against_idle",)
            theirs.append(percent(of[load] / 100 if slower else change_of_time(of[load])))
        yield text, *ours, *theirs


def change_of_time(gain_percent: float) -> float:
    """The change of a load's time, as a share, by which its throughput gains so many percent."""
    return 1 / (1 + gain_percent / 100) - 1


def _faster(load: str) -> str:
    """The rule that was the faster one of the load in the paper, by which figure 13 is."""
    both = PUBLISHED["five_against_one"]
    return FIVE if both["uniform"][load] > both["hashing"][load] else HASHING


def _users_rows(runs: Runs) -> Iterator[tuple[str, ...]]:
    """A row for each variant: by how many percent two users differ."""
    for variant in (ONE, FIVE, HASHING):
        apart = [runs.by_seed(LARGEST_DIFFERENCE, TWO_USERS, variant, load) for load in LOADS]
        cells = (mean_cell(one.values(), LARGEST_DIFFERENCE.digits) for one in apart)
        yield CIRCUITS[variant], *cells
    yield "published, at most", *(f"{PUBLISHED['two_users'][load]:g}" for load in LOADS)


def _share_rows(runs: Runs) -> Iterator[tuple[str, ...]]:
    """A row for each variant: its change of a load's time on a full and on an idle link.

    And what it leaves to the four streams while files are loaded.
    """
    for variant, connections in SHARING.items():
        cells = []
        for scenario, load in (*product((FULL,), DOWNLOADS), (IDLE, FILES)):
            times = runs.by_seed(LOAD_TIME, scenario, variant, load)
            cell = mean_cell(times.values(), LOAD_TIME.digits)
            changed = runs.load_change(
                (scenario, ONE), (scenario, variant), load, _shares_compared()
            )
            alone = variant == ONE or cell == NOTHING
            cells.append(cell if alone else f"{cell}: {changed}")
            if scenario == FULL:
                cells.append(
                    f"{100 * _counted(connections, load):+.0f} %" if not alone else NOTHING
                )
        left = [_of_others(run) for run in runs.of(FULL, variant, FILES)]
        yield CIRCUITS[variant], *cells, mean_cell(left, 2)


def _shares_compared() -> int:
    """How many changes the table of shares has, which shall hold together."""
    return len(DOWNLOADS) * (len(SHARING) - 1) + 1


def _counted(connections: int, load: str) -> float:
    """The change of a load's time if each connection had an equal share of the link.

    Its streams go to the connections in turn; those that get one more than others end it alone.
    """
    each, more = divmod(STREAMS[load], connections)
    several = each * (connections + OTHERS) + (more + OTHERS if more else 0)
    alone = STREAMS[load] * (1 + OTHERS)
    return several / alone - 1


def _shares_changed(runs: Runs, load: str) -> Change | None:
    """The change of a load's time with five connections, with simultaneous intervals for all."""
    times = (runs.by_seed(LOAD_TIME, FULL, variant, load) for variant in (ONE, FIVE))
    return change(*times, simultaneous_confidence(len(DOWNLOADS)))


def _sharing(runs: Runs, load: str) -> str:
    """A sentence on whether five connections have five shares, by the interval of the change."""
    name, counted = LOADS[load], _counted(SHARING[FIVE], load)
    changed = _shares_changed(runs, load)
    if changed is None:
        return f"Of {name} there are no runs yet."
    text = f"time {change_text(changed)}"
    if changed.interval is None or changed.interval.low < 0 < changed.interval.high:
        return f"Of {name} the runs don't decide it: {text}."
    if changed.interval.low > 0:
        return f"For {name} five connections are slower than one: {text}."
    if changed.interval.low <= counted <= changed.interval.high:
        return f"For {name} five connections have about five shares: {text}."
    how = "less" if counted < changed.interval.low else "more"
    return f"For {name} five connections have {how} than five shares, and more than one: {text}."


def _of_others(run: Run) -> float:
    """What all competing streams of a run got, in MB/s."""
    return sum(rate for entry in run.summary.competing for rate in entry.stream_mb_per_s)


def fields(found: Found) -> dict[str, object]:
    """How far two users are apart, by variant over all loads, and at most."""
    runs = Runs(found)

    def apart(*variants: str) -> list[float]:
        return [
            value
            for variant, load in product(variants, LOADS)
            for value in runs.by_seed(LARGEST_DIFFERENCE, TWO_USERS, variant, load).values()
        ]

    def shown(values: list[float]) -> str:
        mean = MeanOverRuns.of(values)
        return f"{mean.mean:.1f} %" if mean else NOTHING

    everyone = apart(ONE, FIVE, HASHING)
    seeds = {
        run.summary.seed for part in found.parts for ones in part.valid.values() for run in ones
    }
    single = "All of it is of one seed, and so an example: nothing here is decided."
    return {
        "change_of_time": change_of_time,
        "as_time": lambda gain_percent: percent(change_of_time(gain_percent)),
        "shares_counted": lambda load: _counted(SHARING[FIVE], load),
        "shares_changed": lambda load: change_text(_shares_changed(runs, load)),
        "beginning": lambda load: mean_cell(
            runs.by_seed(BEGINNING, FULL, FIVE, load).values(), BEGINNING.digits
        ),
        "sharing": " ".join(_sharing(runs, load) for load in DOWNLOADS),
        "only_one_seed": single if len(seeds) < 2 else "",
        "apart": lambda variant: shown(apart(variant)),
        "mean_apart": shown(everyone),
        "most_apart": f"{max(everyone):.1f} %" if everyone else NOTHING,
    }
