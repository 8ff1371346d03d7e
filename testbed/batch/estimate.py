"""How long runs will take, by what earlier ones took.

How far a run under way is, is the display's.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy
from pydantic import ValidationError

from testbed.plan import Plan
from testbed.results.summary import SUMMARY, Cost, Summary

Basis = Literal["same", "guess"]


@dataclass(frozen=True)
class Expected:
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
    """Expects costs from the bytes that a run will deliver: finding them costs most of its time.

    A run costs a set-up, and so much per MB: a line through all earlier runs. Runs of the same
    scenario, traffic and variant say how many MB a second there will be, and by how much the
    line is off for them (competing streams cost, and are not delivered to clients).
    """

    def __init__(self, earlier: Sequence[Summary]) -> None:
        """From the summaries of earlier runs, invalid ones among them: they cost as much."""
        self._earlier = earlier
        self._wall_s = _line(earlier, lambda cost: cost.wall_s)
        self._cpu_s = _line(earlier, lambda cost: cost.cpu_s)

    def expected(self, plan: Plan) -> Expected | None:
        """What a run of a plan will take; None without any earlier run."""
        wanted = (plan.scenario, plan.traffic, plan.variant)
        same = [one for one in self._earlier if (one.scenario, one.traffic, one.variant) == wanted]
        if same:
            mb = plan.duration_s * _mean(_mb_per_s(one) for one in same)
            wall_off = _mean(one.cost.wall_s / self._wall_s(one.cost.delivered_mb) for one in same)
            cpu_off = _mean(one.cost.cpu_s / self._cpu_s(one.cost.delivered_mb) for one in same)
            return Expected(wall_off * self._wall_s(mb), cpu_off * self._cpu_s(mb), "same")
        by_client = [
            _mb_per_s(one) / clients for one in self._earlier if (clients := _clients(one))
        ]
        if not by_client:
            return None
        mb = plan.duration_s * max(by_client) * len(plan.traffic_by_client)
        return Expected(self._wall_s(mb), self._cpu_s(mb), "guess")


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


def _line(earlier: Sequence[Summary], of: Callable[[Cost], float]) -> Callable[[float], float]:
    """Seconds by MB: least squares through earlier runs, with neither a slope nor a start below 0.

    Without runs of different sizes it goes through zero.
    """
    megabytes = [one.cost.delivered_mb for one in earlier]
    seconds = [of(one.cost) for one in earlier]
    if len(set(megabytes)) > 1:
        per_mb, start_s = numpy.polyfit(megabytes, seconds, 1)
        if per_mb > 0 and start_s > 0:
            return lambda mb: float(start_s + per_mb * mb)
    ratio = sum(seconds) / sum(megabytes) if megabytes else 0.0
    return lambda mb: ratio * mb


def _mb_per_s(one: Summary) -> float:
    return one.cost.delivered_mb / one.duration_s


def _clients(one: Summary) -> int:
    return sum(len(figures.clients) for figures in one.by_traffic)


def _mean(values: Iterable[float]) -> float:
    return float(numpy.mean(list(values)))
