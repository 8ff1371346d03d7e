"""Drawn networks on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from testbed.network.summary import (
    SHOWN_WEIGHTS,
    ClassSummary,
    NetworkSummary,
    OverSeeds,
    RoundTrips,
)

_COUNTRIES_SHOWN = 12
_NOTHING = "-"


def print_summary(console: Console, of: NetworkSummary) -> None:
    """Print what a drawn network is like."""
    kinds = ("relay", "client", "server", "authority")
    told = ", ".join(_counted(of.nodes.get(kind, 0), kind) for kind in kinds)
    _say(console, f"{of.scenario}, seed {of.seed}: {told}", style="bold")
    _say(console, f"from the consensus {of.consensus}; {of.sites} sites, {of.links} links")
    console.print(_classes(of.classes))
    console.print(_weights(of))
    console.print(_countries(of))
    if of.round_trips:
        _say(console, _round_trips(of.round_trips))
    traffic = [f"{_counted(count, 'client')} {name}" for name, count in _by_count(of)]
    _say(console, f"Traffic: {', '.join(traffic)}")


def print_over_seeds(
    console: Console, scenario: str, seeds: int, rows: Sequence[OverSeeds]
) -> None:
    """Print figures over the networks of the seeds 1 to `seeds`."""
    _say(console, f"{scenario}, seeds 1 to {seeds}", style="bold")
    table = _table("", "consensus", "mean", "deviation", "least", "greatest")
    for row in rows:
        values = (row.consensus, row.mean, row.deviation, row.least, row.greatest)
        digits = 2 if "%" in row.figure else 0
        table.add_row(row.figure, *(f"{value:.{digits}f}" for value in values))
    console.print(table)


def _classes(classes: Sequence[ClassSummary]) -> Table:
    table = _table(
        "class",
        "relays",
        "of the\nconsensus",
        "weight,\n%",
        "consensus's,\n%",
        "least rate,\nMbit/s",
        "median",
        "greatest",
    )
    for one in classes:
        rates = (
            one.least_rate_mbit_per_s,
            one.median_rate_mbit_per_s,
            one.greatest_rate_mbit_per_s,
        )
        table.add_row(
            one.relay_class,
            str(one.relays),
            str(one.consensus_relays),
            f"{one.weight_percent:.1f}",
            f"{one.consensus_weight_percent:.1f}",
            *(_NOTHING if rate is None else _shown_rate(rate) for rate in rates),
        )
    return table


def _shown_rate(rate_mbit_per_s: float) -> str:
    return f"{rate_mbit_per_s:.{1 if rate_mbit_per_s < 10 else 0}f}"


def _weights(of: NetworkSummary) -> Table:
    table = _table("bandwidth weights, 1/10000", *SHOWN_WEIGHTS)
    for name, weights in (
        ("of the drawn relays", of.bandwidth_weights),
        ("of the consensus", of.consensus_bandwidth_weights),
    ):
        table.add_row(name, *(str(weights.get(one, _NOTHING)) for one in SHOWN_WEIGHTS))
    return table


def _countries(of: NetworkSummary) -> Table:
    table = _table(
        "country",
        "relays",
        "weight,\n%",
        "consensus's,\n%",
        "clients",
        "servers",
        "Tor's users,\n%",
    )
    for one in of.countries[:_COUNTRIES_SHOWN]:
        table.add_row(
            one.country,
            str(one.relays),
            f"{one.weight_percent:.1f}",
            f"{one.consensus_weight_percent:.1f}",
            str(one.clients),
            str(one.servers),
            f"{one.users_percent:.1f}",
        )
    others = of.countries[_COUNTRIES_SHOWN:]
    if others:
        table.add_row(
            f"{len(others)} others",
            str(sum(one.relays for one in others)),
            f"{sum(one.weight_percent for one in others):.1f}",
            f"{sum(one.consensus_weight_percent for one in others):.1f}",
            str(sum(one.clients for one in others)),
            str(sum(one.servers for one in others)),
            f"{sum(one.users_percent for one in others):.1f}",
        )
    return table


def _round_trips(of: RoundTrips) -> str:
    least, greatest = "-".join(of.least), "-".join(of.greatest)
    return (
        f"Round trips between sites: {of.least_ms:.1f} ms ({least}) to {of.greatest_ms:.1f} ms"
        f" ({greatest}), median {of.median_ms:.1f} ms"
    )


def _by_count(of: NetworkSummary) -> list[tuple[str, int]]:
    return sorted(of.clients_by_traffic.items(), key=lambda item: -item[1])


def _counted(count: int, kind: str) -> str:
    plural = "authorities" if kind == "authority" else f"{kind}s"
    return f"{count} {kind if count == 1 else plural}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
