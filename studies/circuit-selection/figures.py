"""What is particular to this study: its rules, networks, adversaries and their figures."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure

from analysis import style
from analysis.adversaries import Seen, clients_over_time, seen, streams_of
from analysis.cells import mean_cell
from analysis.liars import share_of
from analysis.metrics.metric import Metric
from analysis.metrics.networks import BUSIEST_RELAYS_USE, RELAYS_USE
from analysis.metrics.transfers import TIME_TO_FIRST_BYTE, TIME_TO_LAST_BYTE_MEDIAN
from analysis.plot import Plot
from analysis.runs import Found
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, sentence
from study.times import STEPS, times_of
from testbed.plan.malicious import lying_relays
from testbed.results import Run

WEB, BULK = "page20", "bulk5mib"
NETWORK = "TwelveRelays"
_OF_THREE = f"{NETWORK},paths.circuits=3,paths.policy="
_PROBED = ",paths.round_trips=probe"
_OF_PROBES = ("rtt", "car", "best-of-two", "c", "c-l", "rtt-l", "l-c", "l-rtt", "rtt-c", "c-rtt")
_NAMES = {
    "Tor": NETWORK,
    "random": f"{_OF_THREE}random",
    "build-time": f"{_OF_THREE}build-time",
    "l": f"{_OF_THREE}l",
    **{rule: f"{_OF_THREE}{rule}{_PROBED}" for rule in _OF_PROBES},
    "rtt, of streams": f"{_OF_THREE}rtt",
    "rtt, of handshakes": f"{_OF_THREE}rtt,paths.round_trips=build",
    "rtt, four circuits": f"{NETWORK},paths.circuits=4,paths.policy=rtt{_PROBED}",
    "rtt, five circuits": f"{NETWORK},paths.circuits=5,paths.policy=rtt{_PROBED}",
    "rtt, as many as Tor": f"{NETWORK},paths.policy=rtt",
    "car, as many as Tor": f"{NETWORK},paths.policy=car",
    "Tor, no guards": f"{NETWORK},paths.entry_guards=false",
    "rtt, no guards": f"{_OF_THREE}rtt{_PROBED}".replace("=3,", "=3,paths.entry_guards=false,"),
}
NAMES = {name: ("vanilla", scenario) for name, scenario in _NAMES.items()} | {
    "in Tor itself": ("best-circuit(circuits=3)", NETWORK)
}
"""Variant and scenario by what the page calls them; three circuits unless it says otherwise."""
TABLES = {
    "rules": ("Tor", "random", "build-time", "in Tor itself", "best-of-two", "rtt", "car"),
    "paper": ("Tor", "rtt", "c", "l", "rtt-l", "l-rtt", "rtt-c", "c-rtt", "c-l", "l-c"),
    "ways": ("Tor", "rtt", "rtt, of streams", "rtt, of handshakes"),
    "numbers": (
        "Tor",
        "rtt, as many as Tor",
        "car, as many as Tor",
        "rtt",
        "rtt, four circuits",
        "rtt, five circuits",
    ),
}
"""The rows of each table; its intervals hold together."""
SEEN = (*TABLES["rules"], "rtt, five circuits", "Tor, no guards", "rtt, no guards")
"""The rows of the tables of relays and of adversaries."""
_CHANGES = ("first byte", "bulk")
IN_BRIEF = {
    "rules": ("web, first byte, s", "bulk, last byte, s", *_CHANGES),
    "settings": ("busiest relay, %", *_CHANGES),
    "ends": ("median of ten draws, %", "in the end, %"),
}
"""The columns of each table that the page shows; all of them are in a file."""
SETTINGS = {
    "as above": "",
    "relays with 26 % of their rates": ",network.relay_rates=26%",
    "relays with 60 %": ",network.relay_rates=60%",
    "consensus of 2021": ",network.consensus=2021-11-30",
    "without entry guards": ",paths.entry_guards=false",
}
"""What else is in a scenario's name, by what the page calls it."""
LIED_TO = ("rtt", "best-of-two", "car", "build-time")
"""The rules that relays lie to in some runs."""
LYING = 0.1
"""The share of the weight that lies."""


def _of_bulk(run: Run) -> float | None:
    """The median of bulk transfers' times to the last byte, in seconds."""
    for one in run.summary.by_traffic:
        if one.traffic == BULK:
            return one.time_to_last_byte_s.median
    return None


def _circuits(which: str, run: Run) -> float | None:
    """The median of the circuits that a client made or used."""
    circuits = run.summary.circuits_of_clients
    return None if circuits is None else float(getattr(circuits, which).median)


FIRST_BYTE = replace(
    TIME_TO_FIRST_BYTE,
    key="time_to_first_byte_s.median",
    name="time to first byte, median",
    of=lambda run: run.under_test.time_to_first_byte_s.median,
)
BULK_LAST_BYTE = replace(
    TIME_TO_LAST_BYTE_MEDIAN,
    key="bulk.time_to_last_byte_s.median",
    name="bulk's time to last byte, median",
    of=_of_bulk,
)
MADE = Metric(
    *("circuits.made", "circuits made", "", 0, "neither"), of=lambda run: _circuits("made", run)
)
USED = replace(
    MADE, key="circuits.used", name="circuits used", of=lambda run: _circuits("used", run)
)
SHOWN = {
    "web, first byte, s": FIRST_BYTE,
    "web, last byte, s": TIME_TO_LAST_BYTE_MEDIAN,
    "bulk, last byte, s": BULK_LAST_BYTE,
    "circuits made": MADE,
    "used": USED,
}
COMPARED = {
    "first byte": FIRST_BYTE,
    "last byte": TIME_TO_LAST_BYTE_MEDIAN,
    "bulk": BULK_LAST_BYTE,
}


def _of_seen(key: str, name: str, digits: int, of: Callable[[Seen], float | None]) -> Metric:
    """A metric of what adversaries see of a run's streams; None for one without tables."""

    def value(run: Run) -> float | None:
        return of(found) if run.is_whole and (found := seen(run)) else None

    unit = {"percent": "%", "bit": "bit"}.get(key.rpartition("_")[2], "")
    return Metric(f"ends.{key}", name, unit, digits, "neither", of=value)


def _after_a_quarter(run: Run) -> float | None:
    share = clients_over_time(run)[0] if run.is_whole else None
    return None if share is None else 100 * share


def _with_a_liar(run: Run) -> float | None:
    """The share of a run's streams with a relay that lies, or would, in percent."""
    if not run.is_whole:
        return None
    weights = {relay.name: relay.weight or 0 for relay in run.plan.of_kind("relay")}
    liars = lying_relays(weights, LYING, run.plan.seed)
    share = share_of((stream.path for stream in streams_of(run)), liars)
    return 100 * share.anywhere if share else None


ENDS = {
    "streams": _of_seen("streams", "streams", 0, lambda one: one.streams),
    "expected, %": _of_seen("expected_percent", "expected", 2, lambda one: 100 * one.expected),
    "deviation, %": _of_seen("deviation_percent", "deviation", 2, lambda one: 100 * one.deviation),
    "median of ten draws, %": _of_seen(
        "median_percent", "median of ten draws", 2, lambda one: 100 * one.median_of_draws
    ),
    "mean, %": _of_seen(
        "mean_percent", "mean of ten draws", 2, lambda one: 100 * one.mean_of_draws
    ),
    "clients with any after a quarter, %": Metric(
        "ends.after_a_quarter_percent",
        "clients after a quarter",
        "%",
        2,
        "neither",
        of=_after_a_quarter,
    ),
    "in the end, %": _of_seen(
        "clients_percent", "clients in the end", 2, lambda one: one.clients and 100 * one.clients
    ),
    "a client's circuits, bit": _of_seen(
        "circuits_bit", "a client's circuits", 2, lambda one: one.circuits_bit
    ),
}
"""What adversaries at both ends see, by the column of their table."""
RELAYS = {
    "mean use, %": RELAYS_USE,
    "busiest relay's, %": BUSIEST_RELAYS_USE,
    "guards, bit": _of_seen("guards_bit", "guards", 2, lambda one: one.guards_bit),
    "exits, bit": _of_seen("exits_bit", "exits", 2, lambda one: one.exits_bit),
}
WITH_A_LIAR = Metric(
    *("liars.anywhere_percent", "streams with one of these relays", "%", 1, "neither"),
    of=_with_a_liar,
)
"""The share of the streams with a relay that lies, or would if any did."""


def metrics() -> list[Metric]:
    """Metrics beside those of all runs."""
    of_tables = (*ENDS.values(), *RELAYS.values(), WITH_A_LIAR)
    return [FIRST_BYTE, BULK_LAST_BYTE, MADE, USED, *of_tables]


def tables(found: Found) -> dict[str, Table]:
    """Times and circuits by rule; and of whole runs what adversaries and relays had."""
    whole = {
        **{name: _rules(found, names) for name, names in TABLES.items()},
        "settings": _settings(found),
        "ends": _means("What is seen at both ends", found, ENDS),
        "relays": _means("Relays", found, RELAYS),
    }
    brief = {f"{name}_in_brief": _in_brief(whole[name], IN_BRIEF[name]) for name in IN_BRIEF}
    return {**whole, **brief, "liars": _liars(found)}


def _in_brief(table: Table, columns: Sequence[str]) -> Table:
    """A table's first column and some others."""
    places = [0, *map(table.columns.index, columns)] if table.rows else []
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return Table(table.title, tuple(table.columns[place] for place in places), rows)


def fields(found: Found) -> dict[str, object]:
    """What runs say of rules, as texts, and what liars got."""
    return {
        "say": lambda rule, other, metric: _sentence(found, other, rule, COMPARED[metric]),
        "changed": lambda other, rule, metric: _changed(found, other, rule, COMPARED[metric]),
        "measured": _measured(_runs(found, *NAMES["Tor"])),
        "count": lambda rule: len(_runs(found, *NAMES[rule])),
        "networks": max((len(_runs(found, *one)) for one in NAMES.values()), default=0),
        "has_distributions": any(map(times_of, _runs(found, *NAMES["Tor"]))),
    }


def plots(found: Found) -> Iterator[Plot]:
    """The share of transfers that took so long at most, by rule; a mean of networks' quantiles."""
    for table, name in (("rules", "distributions"), ("paper", "distributions-paper")):
        rules = [one for one in TABLES[table] if any(map(times_of, _runs(found, *NAMES[one])))]
        if len(rules) > 1:
            yield Plot(
                name=name,
                title=f"Distributions of times by rule ({table})",
                caption="A line is the mean of the networks' quantiles.",
                figure=_distributions(found, rules),
                shows=f"the medians are in {table}.csv",
            )


def _distributions(found: Found, rules: Sequence[str]) -> Figure:
    """A panel for each traffic model and byte, with a line for each rule."""
    panels = {
        "pages, first byte": (WEB, "time_to_first_byte_s"),
        "pages, last byte": (WEB, "time_to_last_byte_s"),
        "bulk, first byte": (BULK, "time_to_first_byte_s"),
        "bulk, last byte": (BULK, "time_to_last_byte_s"),
    }
    looks = style.looks(rules)
    looks = {rule: looks[rule] for rule in rules}
    figure, places = style.grid(2, 2, panel_inches=1.8, row_gap_inches=0.7, names=looks)
    shares = [step / STEPS for step in range(STEPS + 1)]
    for number, (title, (model, column)) in enumerate(panels.items()):
        panel = figure.add_subplot(places[divmod(number, 2)])
        for rule in rules:
            networks = [
                times_of(run).get(model, {}).get(column) for run in _runs(found, *NAMES[rule])
            ]
            quantiles = [fmean(values) for values in zip(*filter(None, networks), strict=True)]
            panel.plot(quantiles, shares[: len(quantiles)], **looks[rule])
        panel.set_title(title)
        panel.tick_params(labelleft=number % 2 == 0)
        panel.set_xlabel("seconds" if number > 1 else "")
        panel.set_xlim(left=0)
        panel.set_ylim(0, 1)
    style.name_lines(figure, looks)
    return figure


def _of_rules(found: Found, names: Iterable[str]) -> dict[str, Sequence[Run]]:
    """The runs of those that have any."""
    return {name: runs for name in names if (runs := _runs(found, *NAMES[name]))}


def _rules(found: Found, names: Sequence[str]) -> Table:
    """A row for each rule: means, and changes against Tor's own choice with their intervals."""
    rules = _of_rules(found, names)
    first = rules.get("Tor", ())
    confidence = simultaneous_confidence(len(COMPARED) * max(1, len(rules) - 1))
    rows = []
    for rule, runs in rules.items():
        cells = (mean_cell(one.by_seed(runs).values(), one.digits) for one in SHOWN.values())
        changes = [NOTHING] * len(COMPARED)
        if runs is not first:
            changes = _changes(first, runs, confidence)
        rows.append((rule, f"{len(runs)}", *cells, *changes))
    return Table("Rules", ("rule", "networks", *SHOWN, *COMPARED), tuple(rows))


def _settings(found: Found) -> Table:
    """A row for each kind of network: what `rtt` changes there against Tor's own choice."""
    rtt = "paths.circuits=3,paths.policy=rtt,paths.round_trips=probe"
    pairs = {}
    for words, key in SETTINGS.items():
        keys = sorted(filter(None, [*rtt.split(","), key.removeprefix(",")]))
        pair = [_runs(found, "vanilla", one) for one in (NETWORK + key, ",".join([NETWORK, *keys]))]
        if all(pair):
            pairs[words] = pair
    confidence = simultaneous_confidence(len(COMPARED) * max(1, len(pairs)))
    rows = []
    for words, (first, other) in pairs.items():
        cells = (
            mean_cell(one.by_seed(runs).values(), one.digits)
            for one in (FIRST_BYTE, BULK_LAST_BYTE)
            for runs in (first, other)
        )
        used = mean_cell(BUSIEST_RELAYS_USE.by_seed(first).values(), 0)
        rows.append((words, f"{len(other)}", used, *cells, *_changes(first, other, confidence)))
    times = ("web, first byte, s", "with rtt, s", "bulk, last byte, s", "bulk with rtt, s")
    columns = ("busiest relay, %", *times)
    return Table("Settings", ("network", "networks", *columns, *COMPARED), tuple(rows))


def _changes(first: Sequence[Run], other: Sequence[Run], confidence: float) -> list[str]:
    """What each of the compared metrics changes by, from the first runs to the others."""
    return [
        change_text(change(one.by_seed(first), one.by_seed(other), confidence))
        for one in COMPARED.values()
    ]


def _sentence(found: Found, first: str, other: str, metric: Metric) -> str:
    """What the runs say of a rule against another, as `compare` says it of variants.

    Its interval holds together with those of the other two metrics.
    """
    ones, others = (metric.by_seed(_runs(found, *NAMES[rule])) for rule in (first, other))
    confidence = simultaneous_confidence(len(COMPARED))
    return sentence(metric, (first, other), change(ones, others, confidence), confidence)


def _changed(found: Found, first: str, other: str, metric: Metric) -> str:
    """The change from a rule's runs to another's, with the interval of a single comparison."""
    ones, others = (metric.by_seed(_runs(found, *NAMES[rule])) for rule in (first, other))
    return change_text(change(ones, others)) if ones and others else NOTHING


def _measured(runs: Sequence[Run]) -> str:
    """How long a run measures, and for how long its traffic goes on before."""
    for run in runs:
        return f"{run.summary.duration_s:g} s after {run.summary.warm_up_s:g} s of warm-up"
    return NOTHING


def _runs(found: Found, variant: str, scenario: str) -> Sequence[Run]:
    """The runs of a variant in a scenario, of the part that has most of them."""
    alike = [
        runs
        for part in found.parts
        for group, runs in part.valid.items()
        if (group.variant, group.scenario) == (variant, scenario)
    ]
    return max(alike, key=len, default=())


def _means(title: str, found: Found, columns: Mapping[str, Metric]) -> Table:
    """A row for each rule: means over networks."""
    rows = tuple(
        (rule, *(mean_cell(one.by_seed(runs).values(), one.digits) for one in columns.values()))
        for rule, runs in _of_rules(found, SEEN).items()
    )
    return Table(title, ("rule", *columns), rows)


def _with_and_without_liars(found: Found, rule: str) -> tuple[Sequence[Run], Sequence[Run]]:
    """The runs of a rule where relays are honest, and those where a tenth of them lies."""
    variant, scenario = NAMES[rule]
    lied_to = scenario.replace("circuits=3,", "circuits=3,paths.liars=10%,")
    return _runs(found, variant, scenario), _runs(found, variant, lied_to)


def _liars(found: Found) -> Table:
    """A row for each rule: what relays get that lie, and the same relays when they don't."""
    pairs = {rule: _with_and_without_liars(found, rule) for rule in LIED_TO}
    pairs = {rule: pair for rule, pair in pairs.items() if all(pair)}
    confidence = simultaneous_confidence(max(1, len(pairs)))
    rows = []
    for rule, pair in pairs.items():
        honest, lying = (WITH_A_LIAR.by_seed(runs) for runs in pair)
        cells = (mean_cell(one.values(), WITH_A_LIAR.digits) for one in (honest, lying))
        rows.append((rule, *cells, change_text(change(honest, lying, confidence))))
    columns = ("rule", "honest, %", "lying, %", "change")
    return Table("Relays that lie", columns, tuple(rows))
