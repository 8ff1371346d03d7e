"""A metric: its name, its unit, and how a run's number is computed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.results import Run


@dataclass(frozen=True)
class Metric:
    """A number of a run, or None if the run has no data for it.

    Attributes:
        key: the name for programs; `summary.json` uses the same names.
        name: the name for readers, without the unit.
        unit: the number's unit.
        digits: decimals shown to readers.
        better: whether a smaller or a greater number is the better one, or neither.
        of: computes the number of a run.
    """

    key: str
    name: str
    unit: str
    digits: int
    better: Literal["less", "more", "neither"]
    of: Callable[[Run], float | None]

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}"

    def value(self, run: Run) -> float | None:
        """The number of a run; if it lacks its tables, what was kept of it (`Run.kept_values`)."""
        kept = None if run.is_whole else run.kept_values.get(self.key)
        return self.of(run) if kept is None else kept

    def by_seed(self, runs: Sequence[Run]) -> Mapping[int, float]:
        """The numbers of a group's runs by seed, without runs that have none."""
        by_seed = {run.summary.seed: self.value(run) for run in runs}
        return {seed: value for seed, value in by_seed.items() if value is not None}
