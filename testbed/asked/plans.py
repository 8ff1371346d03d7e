"""Makes the plan of a run: scenario, variant, topology and seed, resolved and checked.

Nothing is started or built here; versions of programs and the machine are in the manifest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.asked.competing import competing_streams
from testbed.asked.deployment import patches_of_some, relays_with
from testbed.asked.duration import check_duration, given_duration_s
from testbed.asked.generator import own_generator
from testbed.asked.output import changed_name
from testbed.asked.policy import check_circuits, planned_policy, with_liars
from testbed.asked.processors import onionskin_patches, with_processors
from testbed.asked.scenario import (
    NODE_ROLES,
    AnyScenario,
    SampledScenario,
    Scenario,
    is_sampled,
    read_scenario,
    scenario_file,
)
from testbed.asked.scenario_values import DEFAULT
from testbed.asked.topology_plan import (
    check_second_path,
    links_of,
    node_of,
    topology_of,
    traffic_by_client,
)
from testbed.asked.variant import Variant, read_variant
from testbed.asked.watched import use_of_paths, watched_pairs
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value, label, shown, suggestion
from testbed.plan.choices import GUARD_PARAMETERS
from testbed.plan.model import FIXED, TOR, Plan, PlannedNode, PlannedPolicy
from testbed.plan.programs import Patch, Tor

LARGEST_SEED = 2**31 - 1


def make_plan(
    scenario: str,
    variant: str,
    *,
    seed: int = 1,
    duration: str | float | None = None,
    traffic: str | None = None,
    tgen: str | None = None,
    changes: Mapping[str, Value] | None = None,
) -> Plan:
    """Resolve and check a scenario and a variant.

    Args:
        scenario: a name in scenarios/ or the path of a .toml file.
        variant: a name, `NAME(key=value)`, the path of a .toml file, or several with "+" between.
        seed: 0 to 2**31 - 1; the source of everything random in the run.
        duration: instead of the scenario's, such as "90 s"; a bare number is seconds.
        traffic: instead of the scenario's, for the clients without a model of their own.
        tgen: a program instead of the bundled generator: a path, or a name on PATH.
        changes: values instead of those in the scenario's file, by dotted keys.

    Raises:
        InputError: one of them doesn't exist, or can't be run as it is.
    """
    check_seed(seed)
    tor = read_variant(variant)
    made = _of_sampled if is_sampled(scenario_file(scenario)) else _of_topology
    content, file, parts = made(scenario, tor, seed, traffic, changes or {})
    check_circuits(tor, parts["policy"], file)
    nodes = with_processors(parts["nodes"], content.nodes, file)
    at_relays = relays_with(tor, nodes, seed, drawn=made is _of_sampled, file=file)
    plan = Plan(
        scenario=changed_name(file.stem, changes or {}),
        scenario_title=content.title,
        variant=tor.name,
        variant_title=tor.title,
        topology=Path(content.topology).stem,
        seed=seed,
        duration_s=content.duration_s if duration is None else given_duration_s(duration),
        warm_up_s=content.warm_up_s,
        congestion_control=_congestion_control(content, file, parts["nodes"]),
        tor=_tor(tor, parts["policy"], onionskin_patches(nodes), at_relays),
        tgen=None if tgen is None else own_generator(tgen),
        changes=dict(changes or {}),
        **{**parts, "nodes": nodes},
    )
    subject = f"{label(file)}: duration" if duration is None else "--duration"
    check_duration(plan, subject)
    return plan if content.kernels == 1 else _in_parts(plan, content.kernels, file)


Parts = Mapping[str, Any]
"""The parts of a plan on a network and its clients, by `Plan`'s keys."""


def check_seed(seed: object) -> None:
    """Raise InputError if it can't be a run's seed."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"--seed {shown(seed)} is not a whole number from 0 to {LARGEST_SEED}")


def _in_parts(plan: Plan, kernels: int, file: Path) -> Plan:
    # Dividing a network takes longer to import than most plans to make.
    from testbed.asked.kernels import in_parts

    return in_parts(plan, kernels, file)


def _of_topology(
    name: str, tor: Variant, seed: int, traffic: str | None, changes: Mapping[str, Value]
) -> tuple[Scenario, Path, Parts]:
    scenario, file = read_scenario(name, changes)
    topology = topology_of(scenario, file)
    if tor.conflux:
        check_second_path(scenario, file, topology)
    links = links_of(scenario, file, topology, seed)
    nodes = tuple(node_of(topology, name) for name in topology.roles())
    paths = topology.paths()
    named = watched_pairs(scenario.watch, file, use_of_paths(nodes, links, paths.values()))
    parts = {
        "nodes": nodes,
        "links": links,
        "paths": paths,
        "watched": tuple(dict.fromkeys([topology.shared_link, *named])),
        "only_watched": scenario.watch is not None,
        "policy": planned_policy(scenario, file, default=FIXED),
        "traffic": traffic or scenario.traffic,
        "traffic_overridden": traffic is not None and traffic != scenario.traffic,
        "traffic_by_client": traffic_by_client(scenario, file, topology, traffic),
        "competing": competing_streams(scenario, file, topology, links),
    }
    return scenario, file, parts


def _of_sampled(
    name: str, tor: Variant, seed: int, traffic: str | None, changes: Mapping[str, Value]
) -> tuple[SampledScenario, Path, Parts]:
    # Reading a consensus takes longer to import than most plans to make.
    from testbed.asked.drawing import read_source
    from testbed.asked.sampled_plan import expected_use, sampled_parts

    source = read_source(name, changes)
    scenario, file = source.said, source.file
    if traffic is not None:
        raise InputError(
            f"--traffic {shown(traffic)}: {label(file)} gives every client a model of its own:"
            " change the shares in [clients]"
        )
    policy = planned_policy(scenario, file, default=TOR)
    if policy.name == FIXED:
        raise InputError(
            f'{label(file)}: paths.policy = "{FIXED}": a drawn network has no paths: take "{TOR}",'
            ' a rule such as "rtt", or the path of a Python file with a policy'
        )
    most = max(scenario.clients, key=lambda model: scenario.clients[model])
    watch, drawn = scenario.watch, source.draw(seed)
    parts: dict[str, Any] = {
        "policy": with_liars(policy, scenario.paths, drawn.network.of_kind("relay"), seed),
        "traffic": most,
        "traffic_overridden": False,
        "competing": (),
        "watched": watched_pairs(watch, file, expected_use(drawn)) if watch else (),
        "only_watched": watch is not None,
        "measured_weights": scenario.network.bandwidth_file is not None,
        "relay_rates": None if scenario.network.relay_rates == 1 else scenario.network.relay_rates,
    }
    if not policy.is_tors:
        parts["coordinates"] = {
            site.name: (site.latitude_deg, site.longitude_deg) for site in drawn.network.sites
        }
    return scenario, file, {**parts, **sampled_parts(drawn)}


def _congestion_control(
    scenario: AnyScenario, file: Path, nodes: Iterable[PlannedNode]
) -> dict[str, str]:
    """The congestion control of each node's TCP, by the node's name."""
    roles = {node.role: None for node in nodes if node.role in NODE_ROLES}
    for role in scenario.tcp.congestion_control:
        if role not in (*roles, DEFAULT):
            raise InputError(
                f"{label(file)}: tcp.congestion_control.{role}: no node of {scenario.topology} has"
                f" this role: {suggestion(role, (*roles, DEFAULT))}"
            )
    return {node.name: scenario.tcp.of_role(node.role) for node in nodes}


def planned_patch(path: Path) -> Patch:
    """A patch of Tor as a plan has it."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Patch(name=path.name, path=label(path), sha256=sha256)


def _tor(
    variant: Variant,
    policy: PlannedPolicy,
    patches: Iterable[Path],
    at_relays: tuple[str, ...] | None,
) -> Tor:
    """The variant as a plan has it, with what policy and scenario add."""
    guards = GUARD_PARAMETERS if policy.entry_guards else {}
    all_patches = (*variant.patches, *patches_of_some(variant), *patches)
    return Tor(
        variant=variant.name,
        patches=tuple(planned_patch(path) for path in all_patches),
        source=str(variant.source) if variant.source else None,
        release=variant.release,
        torrc_all=variant.torrc_all,
        torrc_relay=variant.torrc_relay,
        torrc_client=variant.torrc_client,
        consensus_params={**guards, **variant.consensus_params},
        premise=variant.shared_link,
        cgo=variant.cgo,
        ipsec=variant.ipsec,
        connections_per_pair=variant.connections_per_pair,
        per_circuit_up_to=variant.per_circuit_up_to,
        parallel_circuits=variant.parallel_circuits,
        stream_rule=variant.stream_rule,
        at_relays=at_relays,
    )
