"""Show the network that a seed draws for a scenario, and how it could be divided.

A topology is only divided, as nothing of it is drawn. Starts no virtual machine.

```sh
./run.py network SmallNetwork --seed 2
./run.py network SmallNetwork --seed 2 --v3bw weights.v3bw
./run.py network SmallNetwork --parts 4
./run.py network NoDropping --parts 4
```

It shows the relays of a consensus by class and weight, clients and servers in the countries of
Tor's users, and the round trips between them ([drawn networks](networks.md)). `--v3bw` writes the
relays' weights as a [bandwidth file](networks.md#weights-that-were-measured). "Load" is the use of
its rate that the busiest relay is expected to have, and which `relay_rates` give other uses: on
average over what clients may choose, where they share what relays have. Where few clients load
much, a run's busiest relay is another. The last part is how the network could be divided among
kernels on several cores, and how much faster that could be
([computed](performance.md#on-several-cores)). A run has one kernel unless its scenario has
`kernels`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands import _options
from commands._split import print_split, split_record
from testbed.asked.drawing import read_source
from testbed.asked.expected_connections import CIRCUITS, expected_connections
from testbed.asked.expected_use import relay_rates_for, relays_use
from testbed.asked.plans import check_seed, make_plan
from testbed.asked.scenario import is_sampled, scenario_file
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.network.bandwidth_file import write_bandwidth_file
from testbed.network.drawn import Drawn, bandwidth_file_of
from testbed.network.summary import (
    SHOWN_WEIGHTS,
    ClassSummary,
    NetworkSummary,
    OverSeeds,
    RoundTrips,
    over_seeds,
    summary,
)
from testbed.plan.model import Plan

_COUNTRIES_SHOWN = 12
_NOTHING = "-"
_PARTS = 2
_USES = (0.4, 0.7, 0.95)
"""The busiest relay's use in networks with a low, a middle and a high load."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `network`."""
    _options.add_scenario(parser)
    seeds = parser.add_mutually_exclusive_group()
    _options.add_seed(seeds, "the seed that draws the network")
    seeds.add_argument(
        "--seeds",
        type=_options.whole(2),
        metavar="N",
        help="show each class's share of the weight over the networks of seeds 1 to N instead",
    )
    _options.add_set(parser)
    parser.add_argument("--map", type=Path, metavar="FILE.svg", help="plot a map, as SVG or PNG")
    parser.add_argument(
        "--v3bw",
        type=Path,
        metavar="FILE",
        help="write the relays' weights as a bandwidth file, for the key network.bandwidth_file",
    )
    parser.add_argument(
        "--parts",
        type=_options.whole(2),
        metavar="K",
        help="show which nodes each of K kernels would have (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Print a network in numbers, or the networks of several seeds."""
    check_seed(given.seed)
    for option in ("map", "v3bw", "parts"):
        if given.seeds and getattr(given, option):
            raise InputError(f"--{option} shows the network of one --seed: leave --seeds out")
    changes = dict(given.set)
    plan = make_plan(given.scenario, "vanilla", seed=given.seed, changes=changes)
    parts = given.parts or _PARTS
    if not (given.seeds or given.map or given.v3bw or is_sampled(scenario_file(given.scenario))):
        if given.json:
            print(json.dumps({"split": split_record(plan, parts)}, indent=1))
        else:
            print_split(Console(), plan, parts)
        return VALID
    source = read_source(given.scenario, changes)
    if given.seeds:
        rows = over_seeds([summary(source.draw(seed)) for seed in range(1, given.seeds + 1)])
        if given.json:
            print(json.dumps([asdict(row) for row in rows], indent=1))
        else:
            _print_over_seeds(Console(), source.file.stem, given.seeds, rows)
        return VALID
    drawn = source.draw(given.seed)
    if given.map:
        from analysis.figures.network_map import network_map

        places = (drawn.network.nodes, drawn.places)
        network_map(drawn.scenario, drawn.seed, *places).save_as(given.map)
        say(messages, f"map in {given.map}")
    if given.v3bw:
        write_bandwidth_file(given.v3bw, bandwidth_file_of(drawn))
        say(messages, f"weights in {given.v3bw}")
    if given.json:
        content = {
            "summary": summary(drawn).record(),
            "traffic_by_client": drawn.traffic_by_client,
            "network": drawn.network.model_dump(mode="json"),
            "relays_use": relays_use(plan),
            "split": split_record(plan, parts),
        }
        print(json.dumps(content, indent=1))
    else:
        _print_summary(Console(), summary(drawn))
        _print_measured(Console(), drawn)
        _print_connections(Console(), plan)
        _print_load(Console(), plan)
        print_split(Console(), plan, parts)
    return VALID


def _print_summary(console: Console, of: NetworkSummary) -> None:
    """Print a drawn network in numbers."""
    kinds = ("relay", "client", "server", "authority")
    nodes = ", ".join(_counted(of.nodes.get(kind, 0), kind) for kind in kinds)
    say(console, f"{of.scenario}, seed {of.seed}: {nodes}", style="bold")
    say(console, f"from the consensus {of.consensus}; {of.sites} sites, {of.links} links")
    console.print(_classes(of.classes))
    console.print(_weights(of))
    console.print(_countries(of))
    if of.round_trips:
        say(console, _round_trips(of.round_trips))
    traffic = [f"{_counted(count, 'client')} {name}" for name, count in _by_count(of)]
    say(console, f"Traffic: {', '.join(traffic)}")


def _print_measured(console: Console, drawn: Drawn) -> None:
    """Print the weights that are from a bandwidth file, beside the consensus's."""
    if not drawn.drawn_weights:
        return
    relays = drawn.network.of_kind("relay")
    totals = sum(relay.weight or 0 for relay in relays), sum(drawn.drawn_weights.values())
    table = _table(
        "relay",
        "class",
        "rate,\nMbit/s",
        "weight by\nbandwidth file",
        "%",
        "in the\nconsensus",
        "%",
    )
    for relay in relays:
        weights = relay.weight or 0, drawn.drawn_weights[relay.name]
        shares = [f"{100 * one / of:.1f}" for one, of in zip(weights, totals, strict=True)]
        rate = _shown_rate((relay.rate_up_bit_per_s or 0) / 1e6)
        cells = (str(weights[0]), shares[0], str(weights[1]), shares[1])
        table.add_row(relay.name, relay.relay_class, rate, *cells)
    console.print(table)


def _print_connections(console: Console, plan: Plan) -> None:
    """Print how many connections the relay with most of them is expected to have."""
    if (
        not plan.policy.tor_chooses_paths
    ):  # who asks for circuits decides at which relays they begin
        return
    most = {
        guards: f"{max(expected_connections(plan, guards).values()):.0f}"
        for guards in (plan.guards_to_use, None)
    }
    words = [
        f"{most[guards]} with {guards} entry guards"
        if guards
        else f"{most[None]} without entry guards"
        for guards in most
    ]
    circuits = f"where relays share one and clients have built {CIRCUITS} circuits"
    say(console, f"Connections of a relay, at most: {', '.join(words)} ({circuits})")


def _print_load(console: Console, plan: Plan) -> None:
    """Print how much the busiest relay is expected to be used, and how to change that."""
    uses = relays_use(plan)
    busiest = max(uses, key=lambda relay: uses[relay])
    rates = ", ".join(f"{100 * relay_rates_for(plan, use):.2g} %" for use in _USES)
    percents = ", ".join(f"{100 * use:.0f}" for use in _USES)
    say(
        console,
        f"Load: {busiest} is expected to use {100 * uses[busiest]:.0f} % of its rate;"
        f" {percents} % with relay_rates {rates}",
    )


def _print_over_seeds(
    console: Console, scenario: str, seeds: int, rows: Sequence[OverSeeds]
) -> None:
    """Print shares and weights over the networks of the seeds 1 to `seeds`."""
    say(console, f"{scenario}, seeds 1 to {seeds}", style="bold")
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
