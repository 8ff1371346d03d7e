"""Figures and changes as a reader sees them. What they are is computed elsewhere."""

import math

from analysis.metrics import Metric
from analysis.statistics import MOST_RUNS, Change, Interval, MeanOverRuns, Verdict

NOTHING = "-"
_MOST_PERCENT = 9999


def mean_text(over_runs: MeanOverRuns | None, digits: int) -> str:
    """Such as "0.37 ± 0.04"; without ± of a single run.

    With so many digits behind the point, or more where a small mean would have less than two.
    """
    if over_runs is None:
        return NOTHING
    if digits and over_runs.mean:
        digits = max(digits, 1 - math.floor(math.log10(abs(over_runs.mean))))
    spread = "" if over_runs.deviation is None else f" ± {over_runs.deviation:.{digits}f}"
    return f"{over_runs.mean:.{digits}f}{spread}"


def percent(share: float) -> str:
    """A change such as "-88 %", with a digit behind the point if it is a small one."""
    if 100 * share > _MOST_PERCENT:
        return f"over +{_MOST_PERCENT} %"
    text = f"{100 * share:+.{0 if abs(share) >= 0.0995 else 1}f}"
    return "0 %" if float(text) == 0 else f"{text} %"


def bounds(interval: Interval) -> str:
    """An interval of a change such as "-89 % to -86 %"."""
    return f"{percent(interval.low)} to {percent(interval.high)}"


def change_text(change: Change | None) -> str:
    """Such as "-88 % (-89 % to -86 %)"; without the interval if there are too few runs for one."""
    if change is None:
        return NOTHING
    text = percent(change.share)
    return text if change.interval is None else f"{text} ({bounds(change.interval)})"


def verdict_text(metric: Metric, variant: str, change: Change | None) -> str:
    """What can be said of a variant's change in a metric, in words."""
    if change is None:
        return "nothing to compare"
    if change.interval is None:
        return "not enough runs to tell: two of each are the least, three or more are better"
    interval = bounds(change.interval)
    match change.verdict:
        case Verdict.LESS:
            return f"{variant} is {metric.less}: {interval}"
        case Verdict.MORE:
            return f"{variant} is {metric.more}: {interval}"
        case Verdict.NEARLY_EQUAL:
            return f"nearly equal: {interval}"
        case Verdict.NOT_ENOUGH_RUNS:
            return f"not enough runs to tell: {interval}, {_needed(change.runs_needed)} would be"


def _needed(runs: int | None) -> str:
    return f"more than {MOST_RUNS}" if runs is None else f"about {runs} runs"
