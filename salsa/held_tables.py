"""Tables of shared links: since 2021, and what is published beside what comes out here.

They stand in the report's page, and `salsa --tables` prints them without it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from analysis.table import Table
from salsa import figures, published
from salsa.cases import MIXTURE, PAPER_CIRCUITS, Case, Rule
from salsa.figures import KINDS, name_of
from salsa.positions import exits_by_class, positions, supported_rules
from salsa.published import Span
from salsa.simulation import Estimate, Result, simulate_all
from testbed.network.consensus import Consensus
from testbed.network.positions import Floats, relay_classes

_RULE_SEEDS = 20
_NOTHING = "-"

_Row = tuple[str, str, str]
"""A number's name, the paper's and ours."""


@dataclass(frozen=True)
class Periods:
    """The consensuses of the paper's month and year; if there are none, all stand for them.

    Attributes:
        with_policies: the month's consensuses with exit policies.
    """

    month: Sequence[Consensus]
    year: Sequence[Consensus]
    with_policies: Sequence[Consensus]

    @classmethod
    def of(cls, consensuses: Sequence[Consensus]) -> "Periods":
        """The periods of these consensuses."""
        month = [one for one in consensuses if one.day.startswith("2021-11")] or consensuses
        year = [one for one in consensuses if one.day.startswith("2021")] or consensuses
        with_policies = [
            one for one in month if one.relays["policy"].null_count() < one.relays.height
        ]
        return cls(month, year, with_policies)


def all_tables(consensuses: Sequence[Consensus], seeds: int) -> list[Table]:
    """All tables of the report."""
    since = tables_since(consensuses, _results(consensuses, KINDS, seeds))
    return since + tables_of_paper(Periods.of(consensuses), seeds)


def tables_since(consensuses: Sequence[Consensus], by_kind: Sequence[Result]) -> list[Table]:
    """A row for each consensus: shared links, and what decides their number.

    Args:
        by_kind: the results of the four `KINDS` in each consensus.
    """
    return [_years_table(by_kind), _spread_table(consensuses)]


def tables_of_paper(periods: Periods, seeds: int) -> list[Table]:
    """What the paper has beside what comes out here."""
    tables = [_against_paper(periods, seeds), _scales_table(periods), _rules_table(periods)]
    if periods.with_policies:
        tables.append(_classes_table(periods.with_policies, seeds))
    return tables


def _years_table(results: Sequence[Result]) -> Table:
    by_consensus = [list(some) for _, some in groupby(results, lambda one: one.network.consensus)]
    return Table(
        title="Shared links from consensus to consensus",
        columns=("consensus", "relays", *(f"{name_of(kind)}, %" for kind in KINDS)),
        rows=tuple(
            (
                of_one[0].network.day,
                str(of_one[0].network.relays),
                *(_text(one.shared_percent) for one in of_one),
            )
            for of_one in by_consensus
        ),
        note=f"{PAPER_CIRCUITS} circuits; mean ± standard deviation over simulations.",
    )


def _spread_table(consensuses: Sequence[Consensus]) -> Table:
    """The effective numbers of relays, which explain why shared links change."""
    rows = []
    for one in consensuses:
        chances = positions(one, Case())
        weights = one.relays["weight"].to_numpy()
        of_neither = weights[relay_classes(one.relays) == 0].sum() / weights.sum()
        [result] = simulate_all([(one, Case())], 1, closed_form=True)
        links = [part.mean for part in result.by_parts]
        rows.append(
            (
                one.day,
                f"{100 * of_neither:.1f}",
                str(one.bandwidth_weights.get("Wmg", _NOTHING)),
                *(_effective(some) for some in (chances.guard, chances.middle, chances.last)),
                f"{result.shared_percent.mean:.2f}",
                *(_few_or_many(sum(links[parts - 1 :])) for parts in (2, 4, 8)),
            )
        )
    return Table(
        title="Effective numbers of relays and links with many circuits",
        columns=(
            *("consensus", "weight of neither, %", "Wmg", "guards", "middles", "exits"),
            "shared links, %",
            *(f"links with {parts} circuits or more" for parts in (2, 4, 8)),
        ),
        rows=tuple(rows),
        note="Weight of neither: of relays without Guard and Exit flag; Wmg: of guards as middles,"
        " in 1/10000. Guards, middles and exits are effective numbers, 1 / sum of p²: with"
        " that many equally likely relays, two circuits would choose the same one equally often."
        " Expected values (closed form) of"
        f" {PAPER_CIRCUITS} external circuits, directed links.",
    )


def _few_or_many(links: float) -> str:
    return f"{links:.0f}" if links >= 100 else f"{links:.3g}"


def _effective(probabilities: Floats) -> str:
    return f"{1 / np.sum(probabilities**2):.0f}"


def _against_paper(periods: Periods, seeds: int) -> Table:
    """A row for each published number, with ours beside it."""
    month = _results(periods.month, KINDS, seeds)
    rows = [
        *_period_rows(periods, month, seeds),
        *_client_rows(periods, seeds),
        *_part_rows(periods, [one for one in month if one.case == Case()], seeds),
    ]
    if periods.with_policies:
        rows.append(_mixture_row(periods, seeds))
    return Table(
        title="Published figures and ours",
        columns=("figure", "paper", "ours"),
        rows=tuple(rows),
        note=f"November: {_days(periods.month)}. 2021: {_days(periods.year)}. Spans go from the"
        " least to the greatest of external and internal circuits, directed and undirected links;"
        " single figures are of external circuits and directed links. Means over consensuses.",
    )


def _period_rows(periods: Periods, month: Sequence[Result], seeds: int) -> list[_Row]:
    """The ranges of shared links in November and in 2021."""
    year = _results(periods.year, KINDS, seeds)
    capacity = [replace(kind, circuits=published.CAPACITY_CIRCUITS) for kind in KINDS]
    at_capacity = _results(periods.year, capacity, seeds)
    return [
        ("shared links, November", _span(published.NOVEMBER_2021), _range(month, _all)),
        (
            "guard-middle, November",
            _span(published.NOVEMBER_2021_GUARD_MIDDLE),
            _range(month, lambda one: one.guard_middle.percent.mean),
        ),
        (
            "middle-exit, November",
            _span(published.NOVEMBER_2021_MIDDLE_EXIT),
            _range(month, lambda one: one.middle_exit.percent.mean),
        ),
        ("shared links, 2021", _span(published.YEAR_2021), _range(year, _all)),
        (
            f"2021, {published.CAPACITY_CIRCUITS} circuits",
            _span(published.YEAR_2021_AT_CAPACITY),
            _range(at_capacity, _all),
        ),
    ]


def _client_rows(periods: Periods, seeds: int) -> list[_Row]:
    """The shares of shared links by the number of circuits of a client."""
    cases = [Case(per_client=count) for count in published.BY_PER_CLIENT]
    results = _results(periods.month, cases, seeds)
    return [
        (
            f"circuits a client: {case.per_client}",
            f"{published.BY_PER_CLIENT[case.per_client]:g} %",
            _range([one for one in results if one.case == case], _all),
        )
        for case in cases
    ]


def _part_rows(periods: Periods, external: Sequence[Result], seeds: int) -> list[_Row]:
    """How many circuits the links carry, and how many shared links the circuits have."""
    two, more = _two_and_more(_results(periods.year, [Case()], seeds))
    return [
        ("links with two circuits, 2021", f"{published.LINKS_WITH_TWO} %", f"{two:.2f} %"),
        ("links with more, 2021", f"{published.LINKS_WITH_MORE} %", f"{more:.2f} %"),
        *(
            (f"circuits with {words} of {PAPER_CIRCUITS}", str(theirs), _count(external, name))
            for words, theirs, name in (
                ("one shared link", published.CIRCUITS_WITH_ONE, "circuits_with_one"),
                ("two shared links", published.CIRCUITS_WITH_TWO, "circuits_with_two"),
            )
        ),
    ]


def _mixture_row(periods: Periods, seeds: int) -> _Row:
    """The shared links of mostly internal circuits, the others of a mixture of exit classes."""
    cases = [
        Case(internal_share=published.INTERNAL_SHARE, exit_class=MIXTURE, undirected=undirected)
        for undirected in (False, True)
    ]
    results = _results(periods.with_policies, cases, seeds)
    words = "90 % internal, the others a mixture"
    return words, _span(published.NOVEMBER_2021_MIXED), _range(results, _all)


def _scales_table(periods: Periods) -> Table:
    cases = [Case(scale=scale) for scale in published.SHADOW_BY_SCALE]
    jobs = [(one, case) for case in cases for one in periods.month]
    ours = simulate_all(jobs, 1, closed_form=True)
    return Table(
        title="Shared links by scale, published and ours",
        columns=("scale, %", "Shadow (paper), %", "SALSA (paper), %", "ours, %"),
        rows=tuple(
            (
                f"{100 * case.scale:g}",
                f"{published.SHADOW_BY_SCALE[case.scale]:.2f}",
                f"{published.SALSA_BY_SCALE[case.scale]:.2f}",
                f"{_mean(one.shared_percent.mean for one in ours if one.case == case):.2f}",
            )
            for case in cases
        ),
        note=f"External circuits, directed links, closed form; {_days(periods.month)}.",
    )


def _rules_table(periods: Periods) -> Table:
    """Shared links with each rule of Tor's that Algorithm 1 leaves out."""
    whole = [one for one in periods.year if not one.relays["policy"].null_count()]
    consensuses = whole or periods.month
    rules_here = [rule for rule in Rule if all(rule in supported_rules(one) for one in consensuses)]
    named = [("none", frozenset()), *((rule, frozenset([rule])) for rule in rules_here)]
    named.append(("all of these", frozenset(rules_here)))
    rows = []
    for name, rules in named:
        cases = [replace(kind, rules=rules) for kind in KINDS]
        found = _results(consensuses, cases, _RULE_SEEDS)
        rows.append((str(name), *(_text(_over(found, case)) for case in cases)))
    return Table(
        title="Shared links by Tor's rules that the paper leaves out",
        columns=("rule", *(f"{name_of(kind)}, %" for kind in KINDS)),
        rows=tuple(rows),
        note=f"{_RULE_SEEDS} simulations with the same random numbers; {_days(consensuses)}."
        " Rules for which these consensuses lack the data are left out.",
    )


def _over(results: Sequence[Result], case: Case) -> Estimate:
    """The means over consensuses of the mean and of the standard deviation over simulations."""
    shares = [one.shared_percent for one in results if one.case == case]
    deviation = _mean(share.deviation or 0.0 for share in shares)
    return Estimate(_mean(share.mean for share in shares), deviation)


def _classes_table(consensuses: Sequence[Consensus], seeds: int) -> Table:
    cases = [
        Case(exit_class=name, undirected=undirected)
        for name in figures.CLASSES
        for undirected in (False, True)
    ]
    found = _results(consensuses, cases, seeds)
    rows = []
    for name in figures.CLASSES:
        own = [one for one in found if one.case.exit_class == name]
        exits = [exits_by_class(one, name) for one in consensuses if name != MIXTURE]
        rows.append(
            (
                name,
                str(published.EXITS_BY_CLASS.get(name, _NOTHING)),
                f"{_mean(exits):.0f}" if exits else _NOTHING,
                f"{published.BY_EXIT_CLASS[name]}",
                *(
                    f"{_mean(_all(one) for one in own if one.case.undirected == undirected):.2f}"
                    for undirected in (False, True)
                ),
            )
        )
    return Table(
        title="Shared links by class of traffic, published and ours",
        columns=("class", "exits (paper)", "exits", "paper, %", "directed, %", "undirected, %"),
        rows=tuple(rows),
        note=f"External circuits; {_days(consensuses)}.",
    )


def _results(consensuses: Sequence[Consensus], cases: Sequence[Case], seeds: int) -> list[Result]:
    return simulate_all([(one, case) for one in consensuses for case in cases], seeds)


def _range(results: Sequence[Result], of: Callable[[Result], float]) -> str:
    """The range of the cases' means over consensuses."""
    means = [
        _mean(of(one) for one in results if one.case == case)
        for case in dict.fromkeys(one.case for one in results)
    ]
    return f"{min(means):.2f} %" if len(means) == 1 else _span(Span(min(means), max(means)), 2)


def _all(result: Result) -> float:
    return result.shared_percent.mean


def _two_and_more(results: Sequence[Result]) -> tuple[float, float]:
    """The shares of links with two circuit parts and with more, in percent."""
    two = _mean(100 * one.by_parts[1].mean / one.links.links.mean for one in results)
    return two, _mean(map(_all, results)) - two


def _count(results: Sequence[Result], name: str) -> str:
    return f"{_mean(getattr(one, name).mean for one in results):.0f}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _span(span: Span, digits: int | None = None) -> str:
    low, high = (f"{one:g}" if digits is None else f"{one:.{digits}f}" for one in span)
    return f"{low} to {high} %"


def _days(consensuses: Sequence[Consensus]) -> str:
    return ", ".join(one.day for one in consensuses)


def _text(estimate: Estimate) -> str:
    text = f"{estimate.mean:.2f}"
    return text if estimate.deviation is None else f"{text} ± {estimate.deviation:.2f}"
