"""The wording of numbers and changes for readers."""

import math
import re
from typing import NamedTuple

from analysis.metrics.metric import Metric
from analysis.statistics import MOST_RUNS, NEARLY_EQUAL, Change, Interval, MeanOverRuns, Verdict

NOTHING = "-"
_MOST_PERCENT = 9999


def mean_text(over_runs: MeanOverRuns | None, digits: int) -> str:
    """Mean and deviation such as "0.37 ± 0.04"; a single run has no deviation.

    Args:
        digits: decimals; a small mean gets more, to have at least two significant digits.
    """
    if over_runs is None:
        return NOTHING
    if digits and over_runs.mean:
        digits = max(digits, 1 - math.floor(math.log10(abs(over_runs.mean))))
    spread = "" if over_runs.deviation is None else f" ± {over_runs.deviation:.{digits}f}"
    return f"{over_runs.mean:.{digits}f}{spread}"


def percent(share: float) -> str:
    """A change such as "-88 %"; small ones have a decimal."""
    if 100 * share > _MOST_PERCENT:
        return f"over +{_MOST_PERCENT} %"
    text = f"{100 * share:+.{0 if abs(share) >= 0.0995 else 1}f}"
    return "0 %" if float(text) == 0 else f"{text} %"


def bounds(interval: Interval) -> str:
    """An interval of a change such as "-89 % to -86 %"."""
    return f"{percent(interval.low)} to {percent(interval.high)}"


def change_text(change: Change | None) -> str:
    """A change such as "-88 % (-89 % to -86 %)"; with too few runs, without the interval."""
    if change is None:
        return NOTHING
    text = percent(change.share)
    return text if change.interval is None else f"{text} ({bounds(change.interval)})"


def sentence(metric: Metric, names: tuple[str, str], change: Change | None, level: float) -> str:
    """The whole sentence on a change: the verdict, the difference, its interval and confidence.

    `read_sentence` reads it back. Documents quote it as it stands (`tests/test_sentences.py`).

    Args:
        names: the one that is compared with, and the other one.
        level: the interval's confidence.
    """
    first, other = names
    if change is None:
        return "nothing to compare"
    difference = f"{metric.name} {percent(change.share)}"
    if change.interval is None:
        too_few = "no interval: two runs of each are the least, three or more are better"
        return f"{_UNDECIDED[0]}{first}{_UNDECIDED[1]}{other}: {difference} ({too_few})"
    interval = f"({_confidence(level)} interval: {bounds(change.interval)})"
    if change.verdict is Verdict.NOT_ENOUGH_RUNS:
        enough = f"{_needed(change.runs_needed)} would tell"
        return f"{_UNDECIDED[0]}{first}{_UNDECIDED[1]}{other}: {difference} {interval}; {enough}"
    return f"{_claim(metric, first, other, change)}: {difference} {interval}"


_UNDECIDED = ("undecided between ", " and ")
_WITHIN = f" within {100 * NEARLY_EQUAL:g} %"
UNDECIDED = "undecided"
VERDICT_WORDS = ("better", "worse", "more", "less", f"the same{_WITHIN}", UNDECIDED)
"""What `verdict_word` says of a change, in the order in which readers are told."""


def verdict_word(metric: Metric, change: Change | None) -> str:
    """What the interval allows to say, such as "better", "the same within 5 %" or "undecided".

    A metric of which neither more nor less is better has "more" or "less".
    """
    if change is None:
        return "not measured"
    if change.verdict is Verdict.NOT_ENOUGH_RUNS:
        return UNDECIDED
    if change.verdict is Verdict.NEARLY_EQUAL:
        return f"the same{_WITHIN}"
    if metric.better == "neither":
        return change.verdict.value
    return "better" if metric.better == change.verdict.value else "worse"


def _claim(metric: Metric, first: str, other: str, change: Change) -> str:
    if change.verdict is Verdict.NEARLY_EQUAL:
        return f"{other} is the same as {first}{_WITHIN}"
    verb = "has" if metric.better == "neither" else "is"
    return f"{other} {verb} {verdict_word(metric, change)} than {first}"


class Quoted(NamedTuple):
    """What a sentence says; see `sentence`.

    Attributes:
        claim: "better", "worse", "more", "less", "the same" or "undecided".
        metric: its name.
        share, interval: as in `Change`, as far as the sentence's digits go.
    """

    claim: str
    metric: str
    share: float
    interval: Interval


_QUOTED = re.compile(
    r"(?:(?P<undecided>undecided) between .+? and .+?"
    rf"|.+? is (?P<same>the same) as .+?{_WITHIN}"
    r"|.+? (?:is|has) (?P<claim>better|worse|more|less) than .+?)"
    r": (?P<metric>.+) (?P<share>[^ ]+) % "
    r"\([\d.]+ % interval: (?P<low>[^ ]+) % to (?:over )?(?P<high>[^ ]+) %\)"
)


def read_sentence(text: str) -> Quoted | None:
    """What a sentence of `sentence` says; None if it is none, or has no interval."""
    if not (found := _QUOTED.match(text)):
        return None
    low, high, share = (float(found[part]) / 100 for part in ("low", "high", "share"))
    claim = found["undecided"] or found["same"] or found["claim"]
    return Quoted(claim, found["metric"], share, Interval(low, high))


def _confidence(level: float) -> str:
    """A confidence with as many digits as tell it from 100 %: "95 %", "99.67 %"."""
    digits = max(0, 1 - math.floor(math.log10(100 * (1 - level))))
    return f"{100 * level:.{digits}f}".rstrip("0").rstrip(".") + " %"


def _needed(runs: int | None) -> str:
    return f"more than {MOST_RUNS} runs of each" if runs is None else f"about {runs} runs of each"
