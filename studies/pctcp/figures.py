"""What is particular to this study: the paper's claims, and PCTCP at a part of the relays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis import style
from analysis.cells import mean_cell
from analysis.metrics.costs import CONNECTIONS, SOCKETS
from analysis.metrics.metric import Metric
from analysis.metrics.networks import CIRCUITS_GIVEN_UP
from analysis.metrics.transfers import TIME_TO_FIRST_BYTE, TIME_TO_LAST_BYTE
from analysis.plot import Plot
from analysis.runs import Found
from analysis.statistics import Change, change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, percent
from study.verdicts import DIFFERS, REPRODUCED, verdict_of
from testbed.basics.toml_file import read_toml
from testbed.results import Run

VANILLA, PCTCP = "vanilla", "pctcp"
MIXED = "Web9to1"
"""The network in which PCTCP is at a part of the relays, too."""
DEPLOYMENTS = {
    "at no relay": VANILLA,
    "at a quarter, the heaviest": "pctcp+some-relays(share=25%,first=heaviest)",
    "at a half, drawn": "pctcp+some-relays",
    "at all relays": PCTCP,
}
NAMES = {"page": "web", "bulk5mib": "bulk"}
QUANTILES = {"median": "median", "p75": "75th percentile", "p95": "95th percentile"}
TIMES = {"first byte": TIME_TO_FIRST_BYTE, "last byte": TIME_TO_LAST_BYTE}
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"

Runs = Mapping[tuple[str, str], Sequence[Run]]
"""Runs by scenario and variant."""


def _of_model(model: str, key: str, at: str, run: Run) -> float | None:
    """A quantile of the times of a model's clients in a run, in seconds."""
    for one in run.summary.by_traffic:
        if one.traffic == model:
            value: float | None = getattr(getattr(one, key), at)
            return value
    return None


def _metric(model: str, time: str, at: str) -> Metric:
    like = TIMES[time]
    key = like.key.partition(".")[0]
    return replace(
        like,
        key=f"{NAMES[model]}.{key}.{at}",
        name=f"{NAMES[model]}: {like.name}, {QUANTILES[at]}",
        of=partial(_of_model, model, key, at),
    )


def _all_metrics() -> Iterator[Metric]:
    for model in NAMES:
        for time in TIMES:
            for at in QUANTILES:
                yield _metric(model, time, at)


WEB_FIRST = _metric("page", "first byte", "p75")
WEB_LAST = _metric("page", "last byte", "p95")
BULK_LAST = _metric("bulk5mib", "last byte", "median")
COMPARED = {
    "web, first byte, 75th percentile": WEB_FIRST,
    "web, last byte, 95th percentile": WEB_LAST,
    "bulk, last byte, median": BULK_LAST,
}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what runs say of it.

    Attributes:
        words: the change as the paper has it.
        said: the change as a share of the time, or "less" or "more".
    """

    scenario: str
    metric: Metric
    words: str
    said: float | str
    before: Sequence[Run]
    after: Sequence[Run]
    confidence: float

    @property
    def change(self) -> Change | None:
        """The change from vanilla to pctcp."""
        return change(
            self.metric.by_seed(self.before), self.metric.by_seed(self.after), self.confidence
        )

    @property
    def verdict(self) -> str:
        """Whether the time changes in the paper's direction, by the interval."""
        verdict = verdict_of(self.said, change_text(self.change), "direction")
        return {REPRODUCED: HOLDS, DIFFERS: FAILS}.get(verdict, OPEN)

    @property
    def has_number(self) -> bool:
        """Whether the paper says how large the change is."""
        return isinstance(self.said, float)

    @property
    def differs(self) -> bool:
        """Whether there is such a number, and lies outside the interval."""
        text = change_text(self.change)
        return self.has_number and verdict_of(self.said, text, "interval") == DIFFERS


def metrics() -> list[Metric]:
    """Metrics beside those of all runs: quantiles of each model's times."""
    return list(_all_metrics())


def tables(found: Found) -> dict[str, Table]:
    """The claims, and where PCTCP is at a part of the relays."""
    runs = _runs(found)
    return {"claims": _claims_table(_claims(runs)), "mixed": _mixed(runs), "costs": _costs(runs)}


def fields(found: Found) -> dict[str, object]:
    """How many claims have which verdict, and which deployments change what."""
    runs = _runs(found)
    claims = _claims(runs)
    verdicts = [one.verdict for one in claims]
    return {
        "claims": {
            "all": len(claims),
            **{
                name: verdicts.count(verdict)
                for name, verdict in (("hold", HOLDS), ("fail", FAILS), ("open", OPEN))
            },
            "numbers": sum(one.has_number for one in claims),
            "differ": sum(one.differs for one in claims),
        },
        "decided": lambda: _decided(runs),
    }


def plots(found: Found) -> Iterator[Plot]:
    """The change against vanilla by deployment, with intervals."""
    runs = _runs(found)
    if not any(_changes(runs, VANILLA, name) for name in DEPLOYMENTS.values()):
        return
    figure, places = style.grid(1, 1, panel_inches=3.2)
    panel = figure.add_subplot(places[0, 0])
    shift = 0.15
    for number, (name, metric) in enumerate(COMPARED.items()):
        for place, variant in enumerate(DEPLOYMENTS.values()):
            changed = _changes(runs, VANILLA, variant).get(metric.key)
            if variant == VANILLA or changed is None:
                continue
            share = 100 * changed.share
            low, high = (100 * bound for bound in changed.interval or (changed.share,) * 2)
            panel.errorbar(
                [place + shift * (number - 1)],
                [share],
                yerr=[[max(0.0, share - low)], [max(0.0, high - share)]],
                marker="o",
                markersize=4,
                color=style.COLOURS[number],
                label=name,
            )
    panel.axhline(0, linewidth=0.8, color="grey")
    panel.set_xticks(range(len(DEPLOYMENTS)), [one.replace(", ", ",\n") for one in DEPLOYMENTS])
    panel.set_xlim(-0.5, len(DEPLOYMENTS) - 0.5)
    panel.tick_params(axis="x", labelsize=6)
    panel.set_ylabel("change against vanilla, %")
    labels = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    panel.legend(labels.values(), labels.keys(), fontsize=6)
    yield Plot(
        name="which-relays",
        title="PCTCP at a part of the relays",
        caption="Changes of times against vanilla; less is better. Bars are intervals that hold"
        " together.",
        figure=figure,
    )


def _runs(found: Found) -> Runs:
    return {
        (group.scenario, group.variant): runs
        for part in reversed(found.parts)
        for group, runs in part.valid.items()
    }


def _claims(runs: Runs) -> list[Claim]:
    said: list[Mapping[str, Any]] = read_toml(Path(__file__).with_name("published.toml"))["claims"]
    return [
        Claim(
            scenario=one["scenario"],
            metric=_metric(one["model"], one["time"], one["at"]),
            words=one["words"],
            said=one.get("change") or one["way"],
            before=runs.get((one["scenario"], VANILLA), ()),
            after=runs.get((one["scenario"], PCTCP), ()),
            confidence=simultaneous_confidence(len(said)),
        )
        for one in said
    ]


def _claims_table(claims: Sequence[Claim]) -> Table:
    rows = tuple(
        (
            one.scenario.removeprefix("Web").replace("to", ":"),
            one.metric.name,
            one.words,
            *(
                mean_cell(one.metric.by_seed(runs).values(), one.metric.digits)
                for runs in (one.before, one.after)
            ),
            change_text(one.change),
            one.verdict,
        )
        for one in claims
    )
    columns = ("web:bulk", "time", "the paper", "vanilla, s", "pctcp, s", "change", "direction")
    return Table("The paper's claims", columns, rows)


def _changes(runs: Runs, first: str, other: str) -> Mapping[str, Change | None]:
    """The changes of what is compared, by the metric's key; empty without runs."""
    before, after = (runs.get((MIXED, name), ()) for name in (first, other))
    if not before or not after:
        return {}
    confidence = simultaneous_confidence(len(COMPARED) * (len(DEPLOYMENTS) - 1))
    return {
        metric.key: change(metric.by_seed(before), metric.by_seed(after), confidence)
        for metric in COMPARED.values()
    }


def _weight(runs: Sequence[Run]) -> str:
    """Which share of the relays' weight has the variant, on average over networks."""
    shares = []
    for run in runs:
        relays = run.plan.of_kind("relay")
        weights = {relay.name: relay.weight or 0 for relay in relays}
        own = [weight for name, weight in weights.items() if run.plan.tor.is_at(name)]
        shares.append(sum(own) / sum(weights.values()))
    return percent(sum(shares) / len(shares)).lstrip("+") if shares else NOTHING


def _mixed(runs: Runs) -> Table:
    rows = []
    for name, variant in DEPLOYMENTS.items():
        ones = runs.get((MIXED, variant), ())
        changes = _changes(runs, VANILLA, variant)
        cells = (
            NOTHING if variant == VANILLA else change_text(changes.get(metric.key))
            for metric in COMPARED.values()
        )
        weight = "0 %" if variant == VANILLA else _weight(ones)
        connections = mean_cell(CONNECTIONS.by_seed(ones).values(), 0)
        rows.append((name, weight, *cells, connections))
    columns = ("pctcp", "of the weight", *COMPARED, "connections, at most")
    return Table("PCTCP at a part of the relays", columns, tuple(rows))


def _costs(runs: Runs) -> Table:
    rows = tuple(
        (
            scenario.removeprefix("Web").replace("to", ":"),
            variant,
            *(
                mean_cell(metric.by_seed(runs[scenario, variant]).values(), metric.digits)
                for metric in (CONNECTIONS, SOCKETS, CIRCUITS_GIVEN_UP)
            ),
        )
        for scenario in ("Web19to1", MIXED)
        for variant in (VANILLA, PCTCP)
        if (scenario, variant) in runs
    )
    return Table("Costs", ("web:bulk", "variant", "connections", "sockets", "given up, %"), rows)


def _decided(runs: Runs) -> str:
    """The deployments by what their intervals say of each time; empty if none decides anything."""
    texts = []
    for name, metric in COMPARED.items():
        found: dict[str, list[str]] = {}
        for deployment, variant in DEPLOYMENTS.items():
            changed = _changes(runs, VANILLA, variant).get(metric.key)
            if variant == VANILLA or changed is None or changed.interval is None:
                continue
            low, high = changed.interval
            if low > 0 or high < 0:
                found.setdefault("more" if low > 0 else "less", []).append(deployment)
        texts += [f"{name}: {way} with PCTCP {' and '.join(ones)}" for way, ones in found.items()]
    return "; ".join(texts)
