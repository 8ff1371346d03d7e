"""What a page's template can name: runs and their numbers, tables, what was published.

Each gives the text that stands on the page. Where runs are missing it is "-", and noted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.cells import against
from analysis.metrics import all_metrics
from analysis.metrics.metric import Metric
from analysis.runs import Found, Group
from analysis.statistics import MeanOverRuns, change, mean_interval, simultaneous_confidence
from analysis.table import Table, as_csv, as_markdown
from analysis.wording import NOTHING, change_text, mean_text, sentence
from study.origin import every_run
from testbed.basics.errors import InputError
from testbed.basics.toml_file import suggestion
from testbed.results import Run


@dataclass
class Fields:
    """The fields of one page.

    Attributes:
        found: the runs.
        tables: the tables that can be shown, by name.
        own: metrics beside those of all runs.
        files: the tables that go beside the page, CSV by file name.
        missing: the runs that the page names and that aren't there.
    """

    found: Found
    tables: Mapping[str, Table]
    own: Sequence[Metric] = ()
    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = (*all_metrics(every_run(self.found)), *self.own)
        self._metrics = {metric.key: metric for metric in known}
        self._groups: dict[Group, Sequence[Run]] = {}
        for part in reversed(self.found.parts):
            self._groups.update(part.valid)

    def runs(self, variant: str, scenario: str, traffic: str | None = None) -> "Runs":
        """The runs of a variant in a scenario: the longest, with the traffic model if it is named.

        A scenario whose values were changed has them in its name, as its folder has.
        """
        fitting = [
            group
            for group in self._groups
            if (group.variant, group.scenario) == (variant, scenario)
            and traffic in (None, group.traffic)
        ]
        if not fitting:
            self.missing.append(f"{variant} in {scenario}{f', {traffic}' if traffic else ''}")
            return Runs(self, variant, ())
        longest = max(fitting, key=lambda group: group.duration_s)
        return Runs(self, variant, self._groups[longest])

    def table(self, name: str, columns: Sequence[str] = ()) -> str:
        """A table as Markdown, with all columns or some.

        Raises:
            InputError: there is no such table or column.
        """
        table = self._known(name)
        if not table.columns:  # nothing says which there would be
            return NOTHING
        for column in columns:
            if column not in table.columns:
                raise InputError(
                    f"table {name!r}, column {column!r}: {suggestion(column, table.columns)}"
                )
        places = [table.columns.index(column) for column in columns or table.columns]
        rows = tuple(tuple(row[place] for place in places) for row in table.rows)
        shown = Table(table.title, tuple(table.columns[place] for place in places), rows)
        return as_markdown(shown) if rows else NOTHING

    def rows(self, name: str, having: str = "") -> list[dict[str, str]]:
        """A table's rows, each with its cells by column; none if there are none.

        Args:
            having: a text that one of a row's cells has in it; all rows without it.

        Raises:
            InputError: there is no such table.
        """
        table = self._known(name)
        rows = (row for row in table.rows if any(having in cell for cell in row))
        return [dict(zip(table.columns, row, strict=True)) for row in rows]

    def cell(self, name: str, first: str, column: str) -> str:
        """A cell of the row with that first cell; "-" without such a row or column.

        Raises:
            InputError: there is no such table.
        """
        table = self._known(name)
        for row in table.rows:
            if row[0] == first and column in table.columns:
                return row[table.columns.index(column)]
        return NOTHING

    def csv(self, name: str) -> str:
        """A link to a table, which goes into a file beside the page.

        Raises:
            InputError: there is no such table.
        """
        file = f"{name.replace('_', '-')}.csv"
        self.files[file] = as_csv(self._known(name))
        return f"[{file}]({file})"

    def _known(self, name: str) -> Table:
        if name not in self.tables:
            raise InputError(f"table {name!r}: {suggestion(name, self.tables)}")
        table = self.tables[name]
        if not table.rows:
            self.missing.append(f"all of table {name}")
        return table

    def metric(self, key: str) -> Metric:
        """The metric of that key, as `compare --json` has it.

        Raises:
            InputError: there is none.
        """
        if key not in self._metrics:
            raise InputError(f"metric {key!r}: {suggestion(key, self._metrics)}")
        return self._metrics[key]


@dataclass(frozen=True)
class Runs:
    """The runs of one variant in one scenario, one for each seed."""

    fields: Fields
    variant: str
    runs: Sequence[Run]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.runs)

    def mean(self, key: str) -> str:
        """A metric's mean over the runs."""
        return self.spread(key).partition(" ±")[0]

    def spread(self, key: str) -> str:
        """A metric's mean over the runs ± their standard deviation."""
        metric = self.fields.metric(key)
        return mean_text(MeanOverRuns.of(metric.by_seed(self.runs).values()), metric.digits)

    def interval(self, key: str) -> str:
        """A metric's mean over the runs with its 95 % interval: "17.3 (16.1 to 18.5)"."""
        metric = self.fields.metric(key)
        values = metric.by_seed(self.runs).values()
        text = mean_text(MeanOverRuns.of(values), metric.digits + 1).partition(" ±")[0]
        if not (interval := mean_interval(values)):
            return text
        low, high = (f"{bound:.{metric.digits + 1}f}" for bound in interval)
        return f"{text} ({low} to {high})"

    def against(self, first: "Runs") -> "Pair":
        """These runs, compared with others."""
        return Pair(self.fields, first, self)


@dataclass(frozen=True)
class Pair:
    """Two groups of runs, the second compared with the first."""

    fields: Fields
    first: Runs
    other: Runs

    def percent(self, key: str) -> str:
        """The change of a metric's mean, as in tables."""
        text = against(self.fields.metric(key), self.other.runs, self.first.runs)
        return text.rpartition("(")[2].removesuffix(")") if "(" in text else NOTHING

    def interval(self, key: str) -> str:
        """The change of a metric with its 95 % interval, as `compare` has it."""
        metric = self.fields.metric(key)
        changed = change(metric.by_seed(self.first.runs), metric.by_seed(self.other.runs))
        return change_text(changed)

    def sentence(self, key: str, comparisons: int = 1) -> str:
        """What the runs say of the change, as `compare` says it.

        Args:
            comparisons: how many intervals shall hold together, of which this is one.
        """
        metric = self.fields.metric(key)
        before, after = (metric.by_seed(one.runs) for one in (self.first, self.other))
        confidence = simultaneous_confidence(comparisons)
        changed = change(before, after, confidence)
        return sentence(metric, (self.first.variant, self.other.variant), changed, confidence)


def span(changes: Sequence[str]) -> str:
    """The range of some changes: "82 to 90 % less" from "-82 %" and "-90 %".

    Those that go both ways keep their signs.
    """
    known = [text for text in changes if text.endswith(" %")]
    if not known:
        return NOTHING
    numbers = {text: float(text.removesuffix(" %")) for text in known}
    if min(numbers.values()) < 0 < max(numbers.values()):
        low, high = (wanted(known, key=numbers.__getitem__) for wanted in (min, max))
        return f"{low.removesuffix(' %')} to {high}"
    ordered = sorted(known, key=lambda text: abs(numbers[text]))
    low, high = (text.lstrip("+-").removesuffix(" %") for text in (ordered[0], ordered[-1]))
    way = "less" if min(numbers.values()) < 0 else "more"
    return f"{low} % {way}" if low == high else f"{low} to {high} % {way}"
