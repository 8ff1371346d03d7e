"""What runs say, in sentences: which variant is better, and what happened on the shared link.

The sentences on differences are those of `comparison`; a report begins with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.alternative import counted
from analysis.comparison import Compared, compare_groups
from analysis.figures import over_time
from analysis.metrics import HEADLINES
from analysis.runs import Groups
from analysis.statistics import MeanOverRuns
from analysis.wording import UNDECIDED, VERDICT_WORDS, mean_text, percent, verdict_word
from testbed.plan.connections import WATCHED_PAIR
from testbed.results import Run

_NAMED_VARIANTS = 3
"""The most variants that a title names."""


@dataclass(frozen=True)
class Answer:
    """What the runs of a scenario, traffic model and duration say.

    Attributes:
        setting: these three, as words.
        title: these three, and the variants.
        claims: whether each variant but the first is better: `compare`'s sentences on the first of
            the metrics that a reader looks at first. For a single variant, its numbers.
        others: what the other metrics say, shortly.
        happened: what happened in a run of each variant, and whether its premise held.
        compared: all comparisons; empty for a single variant.
    """

    setting: tuple[str, str, str]
    title: str
    claims: Sequence[str]
    others: Sequence[str]
    happened: Sequence[str]
    compared: Sequence[Compared] = ()


def answer(groups: Groups) -> Answer:
    """The answer of runs of one scenario, traffic model and duration, of at least one variant."""
    title, compared = compare_groups(groups)
    one, *more = groups
    first, others = one.variant, [group.variant for group in more]
    by_variant = [[row for row in compared if row.other == other] for other in others]
    few = len(others) < _NAMED_VARIANTS
    named = " and ".join(others) if few else f"{len(others)} variants"
    return Answer(
        setting=(one.scenario, one.traffic, f"{one.duration_s:g} s"),
        title=f"{title}: {named} against {first}" if others else f"{title}: {first}",
        claims=[_claim(rows).sentence for rows in by_variant] or [_numbers(first, groups[one])],
        others=[text for rows in by_variant if (text := _others(rows))],
        happened=[_happened(group.variant, runs) for group, runs in groups.items()],
        compared=compared,
    )


def overview(answers: Sequence[Answer]) -> list[Compared]:
    """The comparisons of several answers for one figure, as far as all have the same metrics.

    Names say what the settings differ in, and each baseline if it isn't one for all.
    """
    told = [one for one in answers if one.compared]
    several = len({row.first for one in told for row in one.compared}) > 1
    keys = [{row.metric.key for row in one.compared} for one in told]
    common = set.intersection(*keys) if keys else set()
    settings = [one.setting for one in told]
    parts = enumerate(zip(*settings, strict=True))
    differing = [place for place, values in parts if len(set(values)) > 1]
    return [
        replace(
            row,
            first="its own baseline" if several else row.first,
            other=": ".join([*(one.setting[place] for place in differing), _named(row, several)]),
        )
        for one in told
        for row in one.compared
        if row.metric.key in common
    ]


def _named(row: Compared, with_first: bool) -> str:
    return f"{row.other} against {row.first}" if with_first else row.other


def _claim(rows: Sequence[Compared]) -> Compared:
    """The row of the first metric that a reader looks at and that can be compared."""
    by_metric = {row.metric: row for row in rows}
    known = (by_metric[metric] for metric in HEADLINES if metric in by_metric)
    return next((row for row in known if row.change), rows[0])


def _others(rows: Sequence[Compared]) -> str:
    """The other metrics of a variant, by what the runs say of them."""
    claim = _claim(rows)
    by_word: dict[str, list[str]] = {word: [] for word in VERDICT_WORDS}
    for row in rows:
        if row is not claim and row.change:
            word = verdict_word(row.metric, row.change)
            by_word[word].append(f"{row.metric.name} {percent(row.change.share)}")
    undecided = len(by_word.pop(UNDECIDED))
    told = [f"{word.capitalize()}: {', '.join(texts)}." for word, texts in by_word.items() if texts]
    if undecided:
        told.append(f"Undecided: {counted(undecided, 'metric')}.")
    return f"{rows[0].other} against {rows[0].first}. {' '.join(told)}" if told else ""


def _numbers(variant: str, runs: Sequence[Run]) -> str:
    """The numbers of a single variant's runs that a reader looks at first."""
    means = ((metric, MeanOverRuns.of(metric.by_seed(runs).values())) for metric in HEADLINES[:3])
    told = [
        f"{metric.name} {mean_text(its, metric.digits)} {metric.unit}"
        for metric, its in means
        if its
    ]
    return f"{variant}: {', '.join(told) or 'no transfer was completed'}"


def _happened(variant: str, runs: Sequence[Run]) -> str:
    """What happened in the run that figures show, and whether all runs' premises held."""
    run = over_time.representative(runs)
    told = [_delivered(run), *_on_the_link(run)]
    of = f"seed {run.summary.seed}"
    if len(runs) > 1:
        of += f" of {len(runs)} runs"
    return f"{variant}, {of}: {'; '.join(filter(None, told))}. {_premise(runs)}"


def _delivered(run: Run) -> str:
    lines = over_time.delivered_mb_per_s(run)
    if not lines:
        return ""
    verb = "sent" if run.under_test.direction == "upload" else "received"
    who = "the client" if len(lines) == 1 else f"each of {len(lines)} clients"
    return f"{who} {verb} {over_time.span_of(lines, 'MB/s')}"


def _on_the_link(run: Run) -> Iterator[str]:
    """What happened on the connections of the shared link."""
    counts, pair = run.summary.shared_link, run.plan.shared_link
    if pair and counts.connections is not None and counts.circuits is not None:
        connections = counted(counts.connections, "connection")
        circuits = counted(counts.circuits, "circuit")
        yield f"the shared link {pair[0]} to {pair[1]} had {connections} for {circuits}"
    if windows := over_time.congestion_window_segments(run):
        yield f"a connection's congestion window was {over_time.span_of(windows, 'segments')}"
    if again := over_time.retransmitted_segments(run):
        total = np.nansum([line.values[-1] for line in again])
        yield f"{counted(int(total), 'segment')} had to be sent again"
    if waits := over_time.wait_in_tor_ms(run):
        yield f"cells waited in Tor's queue in front of it for {over_time.span_of(waits, 'ms')}"
    if active := over_time.active_circuits(run):
        yield f"{over_time.span_of(active)} circuits were active"


def _premise(runs: Sequence[Run]) -> str:
    """Whether what a variant promises of the shared link was so, and all other checks."""
    checks = [check for run in runs for check in run.summary.checks]
    number = sum(check.ok is True for check in checks)
    judged = f"all {number} checks hold" if number > 1 else "its check holds"
    if any(check.key == WATCHED_PAIR and check.ok for check in checks):
        rule = runs[0].plan.tor.connection_rule.words
        return f"The premise held (the shared link has {rule}), and {judged}."
    return f"{judged.capitalize()}."
