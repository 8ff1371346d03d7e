"""How long runs will take, by what earlier ones took.

How far a run under way is, is the display's.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy
from pydantic import ValidationError

from testbed.plan_model import Plan
from testbed.results.summary import SUMMARY, Summary

Basis = Literal["same", "guess"]


@dataclass(frozen=True)
class ExpectedTime:
    """What a run is expected to take, in seconds.

    Attributes:
        wall_s: as long as the earlier runs took, with whatever else their host did.
        cpu_s: of one processor.
        basis: "same" if there were runs of this scenario, traffic and variant; "guess" if each
            client is taken to get as much as any client of an earlier run got.
    """

    wall_s: float
    cpu_s: float
    basis: Basis


class Estimator:
    """Expects costs from those of earlier runs: each is a set-up, and what measuring takes.

    The set-up is where a line through all runs' costs by their delivered bytes begins: finding
    those bytes costs most of the time. Competing streams cost too, and are not delivered to
    clients, so that runs with any don't count for the line as long as there are others. Of the
    same scenario, traffic and variant, each second of measuring is taken to cost what it did.
    """

    def __init__(self, earlier: Sequence[Summary]) -> None:
        """From the summaries of earlier runs, invalid ones among them: they cost as much."""
        self._earlier = earlier
        alone = [one for one in earlier if not one.competing] or earlier
        self._wall_s = _line(alone, attrgetter("cost.wall_s"))
        self._cpu_s = _line(alone, attrgetter("cost.cpu_s"))

    def expected(self, plan: Plan) -> ExpectedTime | None:
        """What a run of a plan will take; None without any earlier run."""
        wanted = (plan.scenario, plan.traffic, plan.variant)
        same = [one for one in self._earlier if (one.scenario, one.traffic, one.variant) == wanted]
        if same:
            return ExpectedTime(
                wall_s=self._wall_s.prolonged(same, plan.duration_s),
                cpu_s=self._cpu_s.prolonged(same, plan.duration_s),
                basis="same",
            )
        by_client = [
            one.cost.delivered_mb / one.duration_s / clients
            for one in self._earlier
            if (clients := _clients(one))
        ]
        if not by_client:
            return None
        mb = plan.duration_s * max(by_client) * len(plan.traffic_by_client)
        return ExpectedTime(self._wall_s.of_mb(mb), self._cpu_s.of_mb(mb), "guess")


def earlier_runs(*directories: Path) -> list[Summary]:
    """The summaries of all runs below some directories, each once; unreadable ones are no help."""
    files = {file.resolve() for directory in directories for file in directory.rglob(SUMMARY)}
    found = []
    for file in sorted(files):
        with suppress(OSError, ValidationError):
            found.append(Summary.model_validate_json(file.read_bytes()))
    return [one for one in found if one.machine == "virtual" and one.cost.delivered_mb > 0]


def elapsed_s(seconds: Iterable[float], at_once: int) -> float:
    """How long runs take, so many at once, each begun when one before it has ended."""
    ends_s = [0.0] * at_once
    for run_s in seconds:
        ends_s[ends_s.index(min(ends_s))] += run_s
    return max(ends_s)


@dataclass(frozen=True)
class _Line:
    """Seconds of one kind, by MB: a set-up, and so much per MB.

    Attributes:
        seconds: what a run took of that kind.
    """

    seconds: Callable[[Summary], float]
    start_s: float
    per_mb_s: float

    def of_mb(self, mb: float) -> float:
        """What a run takes that delivers so much."""
        return self.start_s + self.per_mb_s * mb

    def prolonged(self, same: Sequence[Summary], duration_s: float) -> float:
        """What a run takes that measures so long, and costs as much a second as the same did."""
        took_s = [self.seconds(one) for one in same]
        start_s = min(self.start_s, *took_s)  # a set-up is a part of the whole
        per_s = sum(one_s - start_s for one_s in took_s) / sum(one.duration_s for one in same)
        return start_s + duration_s * per_s


def _line(earlier: Sequence[Summary], of: Callable[[Summary], float]) -> _Line:
    """Least squares through earlier runs, with neither a slope nor a start below 0.

    Without runs of different sizes it goes through zero.
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
