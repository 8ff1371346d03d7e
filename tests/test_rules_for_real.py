"""Each rule in a run: its streams are where it puts them, by what the run's tables say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import polars
import pytest
from machine import run_scenario

from testbed.basics.seeds import derived_seed
from testbed.inside.policies.interface import PROBE_PORT, Circuit, Place
from testbed.inside.policies.selection import (
    RULES,
    Candidate,
    build_time_s,
    congestion_s,
    round_trip_s,
)
from testbed.plan.model import Plan, PlannedNode
from testbed.results import Run

READERS = """
title = "10 relays, 12 clients that load small files, each with three circuits"
topology = "sampled"
duration = "30 s"
warm_up = "5 s"
[network]
consensus = "2021-11-30"
relays = 10
clients = 12
servers = 2
[clients]
perf-50kb = "100 %"
[paths]
circuits = 3
"""
LATEST_S = 1e-4
"""How far a policy's own times may be from the tables', such as from a stream's to its BEGIN."""


@pytest.mark.experiment
@pytest.mark.parametrize("rule", RULES)
def test_streams_go_by_the_rule(rule: str, tmp_path: Path) -> None:
    (tmp_path / "Readers.toml").write_text(READERS, encoding="utf-8")
    run = run_scenario(
        tmp_path, str(tmp_path / "Readers.toml"), "vanilla", 30, "--set", f"paths.policy={rule}"
    )
    made = [one for client in run.plan.clients for one in choices(run, client)]
    assert [circuit for circuit, _ in made] == [circuit for _, circuit in made]
    assert len(made) > 12


def choices(run: Run, client: str) -> Iterator[tuple[str, str]]:
    """The circuit of each of a client's streams, and the one that the rule gives it.

    A circuit's round trips are those of the traffic's streams that it carried before. The client's
    circuits are open before its first stream, and stay so. A choice that the tables don't decide is
    left out.
    """
    plan, rule = run.plan, RULES[run.plan.policy.rule or ""]
    circuits = circuits_of(run, client)
    streams = run.streams.filter(client=client).sort("time_s", maintain_order=True)
    ends = {row["stream"]: row for row in streams.filter(status="SUCCEEDED").to_dicts()}
    begun_s: dict[str, float] = {}
    for row in streams.iter_rows(named=True):
        if row["status"] != "NEW":
            if row["target"].endswith(f":{PROBE_PORT}"):  # a check's, from before the traffic
                continue
            one, took_s = circuits[row["circuit"]], row["time_s"] - begun_s[row["stream"]]
            circuits[one.circuit.number] = replace(one, round_trips_s=[*one.round_trips_s, took_s])
            continue
        begun_s[row["stream"]] = row["time_s"]
        purpose = f"stream {len(begun_s)}, circuit"
        candidates = [
            replace(
                one,
                places=[*(one.places or ()), *place(plan, server(plan, row["target"]))],
                lot=derived_seed(plan.seed, "policy", client, f"{purpose} {name}", bits=53) / 2**53,
            )
            for name, one in circuits.items()
        ]
        if end := ends.get(row["stream"]):
            assert (end["rule"], end["circuits"]) == (plan.policy.rule, len(candidates))
            if is_decided(plan, candidates):
                accepted = [one for one in candidates if rule.accepts(one)]
                yield end["circuit"], rule.pick(accepted).circuit.number


def is_decided(plan: Plan, candidates: Sequence[Candidate]) -> bool:
    """Whether no two circuits are too alike, and all relays are known whose places count."""
    rule = plan.policy.rule or ""
    if "l" in rule.split("-") and any("" in one.circuit.path for one in candidates):
        return False
    of_rounds = [(round_trip_s, 1), (congestion_s, 2)]
    metrics = [(build_time_s, 0)] if rule == "build-time" else of_rounds
    return not any(
        abs(metric(one) - metric(other)) < LATEST_S
        for metric, least in metrics
        for one, other in combinations(candidates, 2)
        if max(len(one.round_trips_s), len(other.round_trips_s)) >= least
    )


def circuits_of(run: Run, client: str) -> dict[str, Candidate]:
    """A client's circuits by number, in the order in which it asked for them."""
    plan, names = run.plan, names_by_fingerprint(run)
    built = run.circuits.filter("for_streams", status="BUILT", client=client)
    launched = run.circuits.filter(status="LAUNCHED", client=client)
    both = built.join(launched.select("circuit", asked_s="time_s"), "circuit")
    found = {}
    for row in both.sort(polars.col("circuit").cast(int)).iter_rows(named=True):
        path = [names.get(hop, "") for hop in row["hops"].split(",")]
        nodes = [plan.node(client), *(plan.node(relay) for relay in path if relay)]
        found[row["circuit"]] = Candidate(
            Circuit(row["circuit"], tuple(path), 0, build_s=row["time_s"] - row["asked_s"]),
            places=[one for node in nodes for one in place(plan, node)],
        )
    return found


def names_by_fingerprint(run: Run) -> Mapping[str, str]:
    """The names of the relays that any stream used."""
    named = run.streams.drop_nulls("path").select("client", "circuit", "path").unique()
    built = run.circuits.filter(status="BUILT").join(named, ["client", "circuit"])
    names: dict[str, str] = {}
    for hops, path in built.select("hops", "path").iter_rows():
        names |= zip(hops.split(","), path.split(","), strict=True)
    return names


def server(plan: Plan, target: str) -> PlannedNode:
    """The server of a stream's target, which is an address and a port."""
    address = target.rpartition(":")[0]
    return next(node for node in plan.of_kind("server") if node.address == address)


def place(plan: Plan, node: PlannedNode) -> list[Place]:
    """A node's coordinates, if the rule needs any."""
    return [plan.coordinates[node.site]] if node.site in plan.coordinates else []
