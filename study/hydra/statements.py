"""The paper's statements on two clients (section 4.5), and their verdicts from runs.

Statements are texts and limits here; every number comes from runs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from analysis.metrics.metric import Metric
from analysis.metrics.transfers import (
    CIRCUIT_ROUND_TRIP,
    STREAM_ROUND_TRIP,
    TIME_TO_LAST_BYTE,
)
from analysis.runs import Found
from analysis.statistics import NEARLY_EQUAL, Change, Interval, change, mean_interval
from analysis.wording import NOTHING, change_text, percent
from study.hydra.published import COMPARED, TWO_CLIENTS
from study.hydra.shared_link import MEDIAN_WINDOW
from testbed.results import Run

HOLDS, FAILS, OPEN = "holds", "does not hold", "not enough runs"

Limits = tuple[float, float]
"""The limits within which an interval must lie for a statement to hold."""

LESS: Limits = (-inf, 0.0)
MORE: Limits = (0.0, inf)
EQUAL: Limits = (-NEARLY_EQUAL, NEARLY_EQUAL)
AROUND_120_SEGMENTS: Limits = (60.0, 180.0)
"""The paper's "around", taken as off by less than half."""
TEN_SEGMENTS_OR_MORE: Limits = (9.5, inf)


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, its verdict (`HOLDS`, `FAILS` or `OPEN`) and the numbers."""

    text: str
    verdict: str
    numbers: str


def judged_statements(found: Found) -> list[Statement]:
    """The paper's statements on the two-client scenarios with valid runs."""
    there = {group.scenario for group in found.valid}
    judges: dict[str, Callable[[Found], Iterator[Statement]]] = {
        "One": _on_one,
        "Two": _on_two,
        "Three": _on_three,
    }
    return [
        statement
        for scenario, judge in judges.items()
        if scenario in there
        for statement in judge(found)
    ]


def _on_one(found: Found) -> Iterator[Statement]:
    yield _shorter_round_trip(found, "One")
    yield _faster(found, "One")
    yield _growing_gain(found, "One")


def _on_two(found: Found) -> Iterator[Statement]:
    yield _shorter_round_trip(found, "Two")
    for text, models, limits in (
        ("audio and video take nearly equally long", ("audio", "video"), EQUAL),
        ("web is faster with vanilla", ("web",), MORE),
        ("bulk is faster with pctls", ("bulk",), LESS),
    ):
        yield _of_models(found, "Two", text, models, TIME_TO_LAST_BYTE, limits)
    text = "the sending congestion window is around 120 segments"
    yield _of_window(found, "Two", text, AROUND_120_SEGMENTS)


def _on_three(found: Found) -> Iterator[Statement]:
    yield _shorter_round_trip(found, "Three")
    yield _faster(found, "Three")
    yield _growing_gain(found, "Three")
    text = "the sending congestion window is ten segments or more"
    yield _of_window(found, "Three", text, TEN_SEGMENTS_OR_MORE)


def _shorter_round_trip(found: Found, scenario: str) -> Statement:
    """The statement on the stream's round trip, as in the paper, or else on the circuit's."""
    text, models = "the round trip is shorter with pctls", TWO_CLIENTS[scenario]
    runs = (
        run
        for model in models
        for of_variant in _vanilla_and_pctls(found, scenario, model)
        for run in of_variant
    )
    if any(STREAM_ROUND_TRIP.of(run) is not None for run in runs):
        return _of_models(found, scenario, text, models, STREAM_ROUND_TRIP, LESS)
    statement = _of_models(found, scenario, text, models, CIRCUIT_ROUND_TRIP, LESS)
    return replace(statement, numbers=f"stream round trip not recorded; {statement.numbers}")


def _faster(found: Found, scenario: str) -> Statement:
    text = "every model is faster with pctls"
    return _of_models(found, scenario, text, TWO_CLIENTS[scenario], TIME_TO_LAST_BYTE, LESS)


def _of_models(
    found: Found, scenario: str, text: str, models: Sequence[str], metric: Metric, limits: Limits
) -> Statement:
    """A statement on how pctls changes a metric, which must hold for every model."""
    changes = {model: _change(found, scenario, model, metric) for model in models}
    verdicts = [_lies_within(one.interval if one else None, limits) for one in changes.values()]
    numbers = [f"{model} {change_text(one)}" for model, one in changes.items()]
    return Statement(
        f"{scenario}: {text}", _of_all(verdicts), f"{metric.name}: {', '.join(numbers)}"
    )


def _growing_gain(found: Found, scenario: str) -> Statement:
    """The statement that longer transfers gain more, in percent of the time to last byte.

    It holds if the gains' intervals follow each other in the order of the times with vanilla, fails
    if two are in the opposite order, and is open if intervals overlap.
    """
    gains = []
    for model in TWO_CLIENTS[scenario]:
        gain = _change(found, scenario, model, TIME_TO_LAST_BYTE)
        vanilla, _ = _vanilla_and_pctls(found, scenario, model)
        if gain and vanilla:
            times_s = TIME_TO_LAST_BYTE.by_seed(vanilla).values()
            gains.append((fmean(times_s), model, gain))
    gains.sort()
    verdicts = [
        _lies_below(longer.interval, shorter.interval)
        for number, (_, _, shorter) in enumerate(gains)
        for _, _, longer in gains[number + 1 :]
    ]
    if len(gains) < len(TWO_CLIENTS[scenario]):
        verdicts.append(OPEN)
    numbers = [f"{model} {percent(gain.share)} of {time_s:.1f} s" for time_s, model, gain in gains]
    return Statement(
        f"{scenario}: the longer the transfer, the more it gains with pctls",
        _of_all(verdicts),
        f"{TIME_TO_LAST_BYTE.name}: {', '.join(numbers) or NOTHING}",
    )


def _of_window(found: Found, scenario: str, text: str, limits: Limits) -> Statement:
    """A statement on the median of the exit's congestion window on the shared link."""
    runs = [_vanilla_and_pctls(found, scenario, model) for model in TWO_CLIENTS[scenario]]
    verdicts, numbers = [], []
    for number, variant in enumerate(COMPARED):
        windows = [MEDIAN_WINDOW.value(run) for of_variants in runs for run in of_variants[number]]
        interval = mean_interval([window for window in windows if window is not None])
        verdicts.append(_lies_within(interval, limits))
        shown = f"{interval.low:.0f} to {interval.high:.0f}" if interval else NOTHING
        numbers.append(f"{variant} {shown}")
    return Statement(
        f"{scenario}: {text}", _of_all(verdicts), f"median, segments: {', '.join(numbers)}"
    )


def _change(found: Found, scenario: str, traffic: str, metric: Metric) -> Change | None:
    """The change from vanilla to pctls."""
    before, after = map(metric.by_seed, _vanilla_and_pctls(found, scenario, traffic))
    return change(before, after)


def _vanilla_and_pctls(
    found: Found, scenario: str, traffic: str
) -> tuple[Sequence[Run], Sequence[Run]]:
    """Both variants' runs of the longest duration that both have; empty if they share none."""
    by_duration: dict[float, dict[str, Sequence[Run]]] = defaultdict(dict)
    for group, runs in found.valid.items():
        if (group.scenario, group.traffic) == (scenario, traffic):
            by_duration[group.duration_s][group.variant] = runs
    for _, by_variant in sorted(by_duration.items(), reverse=True):
        if by_variant.keys() >= set(COMPARED):
            return by_variant["vanilla"], by_variant["pctls"]
    return (), ()


def _lies_within(interval: Interval | None, limits: Limits) -> str:
    if interval is None:
        return OPEN
    if limits[0] < interval.low and interval.high < limits[1]:
        return HOLDS
    return FAILS if interval.high <= limits[0] or interval.low >= limits[1] else OPEN


def _lies_below(one: Interval | None, other: Interval | None) -> str:
    if one is None or other is None:
        return OPEN
    if one.high < other.low:
        return HOLDS
    return FAILS if one.low > other.high else OPEN


def _of_all(verdicts: Sequence[str]) -> str:
    """The verdict on a statement that has several parts."""
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts or not verdicts else HOLDS
