"""Estimates how long runs will take from earlier ones.

The progress of a run under way is the display's.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy
from pydantic import ValidationError

from testbed.asked.expected_load import expected_rates
from testbed.plan.model import Plan
from testbed.results.summary import SUMMARY, Summary

Basis = Literal["same", "guess"]


@dataclass(frozen=True)
class ExpectedTime:
    """The time that a run is expected to take.

    Attributes:
        wall_s: wall time, on a host as busy as during the earlier runs.
        cpu_s: processor time.
        basis: "same" if there were runs of this scenario, traffic and variant; "guess" if the
            estimate assumes that each client gets what its traffic and links allow, or as much
            as any client of an earlier run got, whichever is less.
    """

    wall_s: float
    cpu_s: float
    basis: Basis


class Estimator:
    """Estimates a run's cost as a set-up plus the cost of its traffic, from earlier runs.

    The set-up is the intercept of a line through all runs' costs over their delivered bytes, as
    delivering bytes costs most of the time. Competing streams also cost, but deliver nothing to
    clients, so runs with any are left out of the line if there are others. A second of traffic,
    warm-up included, is assumed to cost as much as in earlier runs of the same scenario, traffic
    and variant.
    """

    def __init__(self, earlier: Sequence[Summary]) -> None:
        """Take the summaries of earlier runs, including invalid ones: they cost as much."""
        self._earlier = earlier
        alone = [one for one in earlier if not one.competing] or earlier
        self._wall_s = _line(alone, attrgetter("cost.wall_s"))
        self._cpu_s = _line(alone, attrgetter("cost.cpu_s"))

    def expected(self, plan: Plan) -> ExpectedTime | None:
        """The expected time of a run of a plan; None without any earlier run."""
        wanted = (plan.scenario, plan.traffic, plan.variant)
        same = [one for one in self._earlier if (one.scenario, one.traffic, one.variant) == wanted]
        if same:
            return ExpectedTime(
                wall_s=self._wall_s.prolonged(same, plan.traffic_s),
                cpu_s=self._cpu_s.prolonged(same, plan.traffic_s),
                basis="same",
            )
        by_client = [
            one.cost.delivered_mb / one.traffic_s / clients
            for one in self._earlier
            if (clients := _clients(one))
        ]
        if not by_client:
            return None
        rates_mb_per_s = (min(one, max(by_client)) for one in expected_rates(plan).values())
        mb = plan.traffic_s * sum(rates_mb_per_s)
        return ExpectedTime(self._wall_s.of_mb(mb), self._cpu_s.of_mb(mb), "guess")


def earlier_runs(*directories: Path) -> list[Summary]:
    """The summaries of all runs below some directories, each once, without unreadable ones."""
    files = {file.resolve() for directory in directories for file in directory.rglob(SUMMARY)}
    found = []
    for file in sorted(files):
        with suppress(OSError, ValidationError):
            found.append(Summary.model_validate_json(file.read_bytes()))
    return [one for one in found if one.machine == "virtual" and one.cost.delivered_mb > 0]


def elapsed_s(seconds: Iterable[float], at_once: int) -> float:
    """How long runs take if at most `at_once` go on together, each starting as another ends."""
    ends_s = [0.0] * at_once
    for run_s in seconds:
        ends_s[ends_s.index(min(ends_s))] += run_s
    return max(ends_s)


@dataclass(frozen=True)
class _Line:
    """A line of seconds, wall or processor, over delivered MB.

    Attributes:
        seconds: reads these seconds from a run's summary.
        start_s: the intercept: what the set-up takes.
        per_mb_s: the slope.
    """

    seconds: Callable[[Summary], float]
    start_s: float
    per_mb_s: float

    def of_mb(self, mb: float) -> float:
        """The time of a run that delivers this many MB."""
        return self.start_s + self.per_mb_s * mb

    def prolonged(self, same: Sequence[Summary], traffic_s: float) -> float:
        """The time of a run with this much traffic, at the cost per second of the `same` runs."""
        took_s = [self.seconds(one) for one in same]
        start_s = min(self.start_s, *took_s)  # a set-up is a part of the whole
        per_s = sum(one_s - start_s for one_s in took_s) / sum(one.traffic_s for one in same)
        return start_s + traffic_s * per_s


def _line(earlier: Sequence[Summary], of: Callable[[Summary], float]) -> _Line:
    """Fit a line through earlier runs by least squares, with slope and intercept above 0.

    Where that is impossible, as with runs of one size, the line goes through zero.
    """
    megabytes = [one.cost.delivered_mb for one in earlier]
    seconds = [of(one) for one in earlier]
    if len(set(megabytes)) > 1:
        per_mb_s, start_s = numpy.polyfit(megabytes, seconds, 1)
        if per_mb_s > 0 and start_s > 0:
            return _Line(of, float(start_s), float(per_mb_s))
    return _Line(of, 0.0, sum(seconds) / sum(megabytes) if megabytes else 0.0)


def _clients(one: Summary) -> int:
    return sum(len(figures.clients) for figures in one.by_traffic)
