"""The plan of a run: scenario, variant, topology and seed, resolved, checked, as plain data.

Nothing is started or built here; versions of programs and the machine are the manifest's.
"""

import hashlib
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from testbed.addresses import data_address, management_address
from testbed.errors import InputError
from testbed.network.model import Shape
from testbed.plan_model import (
    FIXED,
    TOR,
    Competing,
    Link,
    Node,
    Patch,
    Plan,
    PlannedPolicy,
    TgenProgram,
    Tor,
)
from testbed.plan_older import FLAGS_BY_ROLE, KIND_BY_ROLE
from testbed.plan_watched import use_of_paths, watched_pairs
from testbed.policies.reading import read_policy
from testbed.scenario import (
    DEFAULT,
    NODE_ROLES,
    AnyScenario,
    CompetingKeys,
    LinkSettings,
    SampledScenario,
    Scenario,
    is_sampled,
    read_scenario,
    scenario_file,
)
from testbed.seeds import netem_seeds
from testbed.toml_file import Value, label, shown, suggestion
from testbed.topology import ROLES, TorTopo, load_topology
from testbed.traffic.models import MODELS
from testbed.units import duration_s as read_duration_s
from testbed.variant import Variant, read_variant

COMPETING_PORT = 5201
"""Of the first entry of competing streams; the next ones' follow. iperf3's own default."""
FIRST_STREAM_PORT = 20_000

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
        variant: a name in tor-configs/ or the path of a .toml file.
        seed: 0 to 2**31 - 1; the source of everything random in the run.
        duration: instead of the scenario's, such as "90 s"; a bare number is seconds.
        traffic: instead of the scenario's, for the clients without a model of their own.
        tgen: a program instead of the bundled generator: a path, or a name on PATH.
        changes: values instead of those in the scenario's file, by dotted keys.

    Raises:
        InputError: one of them isn't there, or can't be run as it says.
    """
    check_seed(seed)
    tor = read_variant(variant)
    made = _of_sampled if is_sampled(scenario_file(scenario)) else _of_topology
    said, file, parts = made(scenario, tor, seed, traffic, changes or {})
    _check_circuits(tor, parts["policy"], file)
    plan = Plan(
        scenario=changed_name(file.stem, changes or {}),
        scenario_title=said.title,
        variant=tor.name,
        variant_title=tor.title,
        topology=Path(said.topology).stem,
        seed=seed,
        duration_s=said.duration_s if duration is None else _given_duration_s(duration),
        congestion_control=_congestion_control(said, file, parts["nodes"]),
        tor=_tor(tor),
        tgen=None if tgen is None else _generator(tgen),
        changes=dict(changes or {}),
        **parts,
    )
    subject = f"{label(file)}: duration" if duration is None else "--duration"
    _check_duration(plan, subject)
    return plan


Parts = Mapping[str, Any]
"""What a plan says of a network and its clients, by the names of `Plan`'s keys."""


def check_seed(seed: object) -> None:
    """InputError if it can't be a run's."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"--seed {shown(seed)} is no whole number from 0 to {LARGEST_SEED}")


def _of_topology(
    name: str, tor: Variant, seed: int, traffic: str | None, changes: Mapping[str, Value]
) -> tuple[Scenario, Path, Parts]:
    said, file = read_scenario(name, changes)
    topology = _topology(said, file)
    if tor.conflux:
        _check_ways(said, file, topology)
    links = _links(said, file, topology, seed)
    nodes = tuple(_node(topology, name) for name in topology.roles())
    paths = topology.paths()
    parts = {
        "nodes": nodes,
        "links": links,
        "paths": paths,
        "shared_link": topology.shared_link,
        "watched": watched_pairs(said.watch, file, use_of_paths(nodes, links, paths.values())),
        "policy": _policy(said, file, default=FIXED),
        "traffic": traffic or said.traffic,
        "traffic_overridden": traffic is not None and traffic != said.traffic,
        "traffic_by_client": _traffic_by_client(said, file, topology, traffic),
        "competing": _competing(said, file, topology, links),
    }
    return said, file, parts


def _of_sampled(
    name: str, tor: Variant, seed: int, traffic: str | None, changes: Mapping[str, Value]
) -> tuple[SampledScenario, Path, Parts]:
    # Reads a consensus, which takes longer to import than most plans take in all.
    from testbed.drawing import read_source
    from testbed.plan_sampled import expected_use, sampled_parts

    source = read_source(name, changes)
    said, file = source.said, source.file
    if traffic is not None:
        raise InputError(
            f"--traffic {shown(traffic)}: {label(file)} gives every client a model of its own:"
            " change the shares in [clients]"
        )
    policy = _policy(said, file, default=TOR)
    if policy.name == FIXED:
        raise InputError(
            f'{label(file)}: paths.policy = "{FIXED}": a drawn network has no paths: take "{TOR}",'
            " or the path of a Python file that says them"
        )
    most = max(said.clients, key=lambda model: said.clients[model])
    drawn = source.draw(seed)
    parts = {
        "policy": policy,
        "traffic": most,
        "traffic_overridden": False,
        "competing": (),
        "watched": said.watch and watched_pairs(said.watch, file, expected_use(drawn)),
        "relay_rates": None if said.network.relay_rates == 1 else said.network.relay_rates,
    }
    return said, file, {**parts, **sampled_parts(drawn)}


def _policy(said: AnyScenario, file: Path, default: str) -> PlannedPolicy:
    """Who decides on circuits, as a scenario says it."""
    name = said.paths.policy or default
    if name in (FIXED, TOR):
        return PlannedPolicy(name=name, entry_guards=said.paths.entry_guards)
    return read_policy(name, file, entry_guards=said.paths.entry_guards)


def _congestion_control(said: AnyScenario, file: Path, nodes: Iterable[Node]) -> dict[str, str]:
    """That of each node's TCP, by its name."""
    roles = {node.role: None for node in nodes if node.role in NODE_ROLES}
    for role in said.tcp.congestion_control:
        if role not in (*roles, DEFAULT):
            raise InputError(
                f"{label(file)}: tcp.congestion_control.{role}: no node of {said.topology} has this"
                f" role: {suggestion(role, (*roles, DEFAULT))}"
            )
    return {node.name: said.tcp.of_role(node.role) for node in nodes}


def changed_name(scenario: str, changes: Mapping[str, Value]) -> str:
    """A scenario's name with what is changed in it, fit for a folder: no spaces, no slashes."""
    said = [f"{key}={shown(value)}" for key, value in sorted(changes.items())]
    return ",".join([scenario, *(re.sub(r"[^\w.%=+-]", "", one) for one in said)])


def default_output(plan: Plan, machine: str = "virtual") -> Path:
    """Where a run's results go unless told otherwise, below the working directory.

    Those of the host machine have a folder of their own: they are no further runs of the others.
    """
    scenario = f"{plan.scenario}-{plan.traffic}" if plan.traffic_overridden else plan.scenario
    folder = Path("results" if machine == "virtual" else f"results-{machine}")
    return folder / scenario / plan.variant / f"seed-{plan.seed}"


def check_output(path: Path) -> None:
    """Refuse a directory for results that is there already or can't come to be.

    Raises:
        InputError: the path exists, or something on the way to it is no directory, or none that
            may be written to.
    """
    if path.exists() or path.is_symlink():
        raise InputError(f"the output {path} exists: give another --out, or remove it")
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"the output {path} can't be made: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"the output {path} can't be made: {there} can't be written to")


def _check_circuits(tor: Variant, policy: PlannedPolicy, file: Path) -> None:
    """Refuse a variant that says which circuits a client has, beside a policy that says so."""
    if tor.conflux and policy.text is not None:
        raise InputError(
            f"{label(file)}: {tor.name} has conflux = true, where Tor builds each client's linked"
            f" sets itself; here the circuits are said by paths.policy = {shown(policy.name)}:"
            " leave out one of them"
        )
    if tor.parallel_circuits > 1 and policy.name != FIXED:
        raise InputError(
            f"{label(file)}: {tor.name} has parallel_circuits = {tor.parallel_circuits}, which are"
            f' by the topology\'s paths (paths.policy = "{FIXED}"); here the circuits are said by'
            f" paths.policy = {shown(policy.name)}: leave out one of them"
        )


def _given_duration_s(duration: str | float) -> float:
    """The duration of the command line, where a bare number means seconds."""
    text = str(duration).strip()
    try:
        return read_duration_s(f"{text} s" if text[-1:].isdigit() else text)
    except ValueError as error:
        raise InputError(f"--duration {shown(duration)} {error}") from error


def _topology(said: Scenario, file: Path) -> TorTopo:
    try:
        return load_topology(said.topology, file.parent, said.parameters)
    except InputError as error:
        raise InputError(f"{label(file)}: topology: {error}") from error


def _node(topology: TorTopo, name: str) -> Node:
    role = topology.roles()[name]
    kind = KIND_BY_ROLE.get(role, "relay")
    group, number = ROLES.index(role), topology.number(name)
    return Node(
        name=name,
        kind=kind,
        flags=FLAGS_BY_ROLE.get(role, ()),
        role=role,
        address=None if kind == "authority" else data_address(0, group, number),
        management_address=None if kind == "server" else management_address(group, number),
    )


def _check_ways(said: Scenario, file: Path, topology: TorTopo) -> None:
    """Refuse a topology in which Tor finds no guard and middle for a linked set's second leg."""
    for client in topology.nodes_with("client"):
        guards = topology.neighbours(client, "guard")
        middles = {middle for guard in guards for middle in topology.neighbours(guard, "middle")}
        if min(len(guards), len(middles)) < 2:
            raise InputError(
                f"{label(file)}: topology = {shown(said.topology)} has one way from {client} to the"
                " exit, linked circuits (conflux = true) need two: take two_paths"
            )


def _links(said: Scenario, file: Path, topology: TorTopo, seed: int) -> tuple[Link, ...]:
    roles = topology.roles()
    ends_by_pair: dict[str, list[tuple[str, str]]] = {}
    for first, second in topology.emulated_links():
        ends_by_pair.setdefault(f"{roles[first]}-{roles[second]}", []).append((first, second))
    for pair in said.links:
        if pair not in (DEFAULT, *ends_by_pair):
            raise InputError(
                f"{label(file)}: links.{pair}: {said.topology} has no link between"
                f" {' and '.join(pair.split('-'))}; it has: {', '.join(ends_by_pair)}"
            )
    return tuple(
        _link(ends, pair, _settings(said, file, pair), seed)
        for pair, all_ends in ends_by_pair.items()
        for ends in all_ends
    )


def _settings(said: Scenario, file: Path, pair: str) -> LinkSettings:
    try:
        settings = said.link(pair)
    except KeyError as error:
        raise InputError(
            f"{label(file)}: the links {pair} of {said.topology} have no rate:"
            f' write one in links.{pair} or in links.default, for example rate = "300 Mbit/s"'
        ) from error
    if settings.largest_bundle_segments and not settings.bundles:
        raise InputError(
            f"{label(file)}: links.{pair}.largest_bundle says how large bundles are, but bundles is"
            " false: write bundles = true too, or leave it out"
        )
    if settings.queue_in_sender and (settings.delay_ms or settings.loss):
        raise InputError(
            f"{label(file)}: links.{pair}.queue_in_sender = true is for links without delay and"
            " loss; leave out one of them"
        )
    return settings


def _link(ends: tuple[str, str], pair: str, settings: LinkSettings, seed: int) -> Link:
    first_role, second_role = pair.split("-")
    shape = Shape(**settings.model_dump())
    return Link(
        ends=ends,
        roles=(first_role, second_role),
        there=shape,
        back=shape,
        netem_seeds=netem_seeds(ends, seed),
    )


def _traffic_by_client(
    said: Scenario, file: Path, topology: TorTopo, override: str | None
) -> dict[str, str]:
    """Each client's model: its own if the scenario gives it one, else the one under test."""
    clients = topology.nodes_with("client")
    for client, model in said.clients.items():
        if client not in clients:
            raise InputError(
                f"{label(file)}: clients.{client} is no client of {said.topology}:"
                f" {suggestion(client, clients)}"
            )
        _check_model(f"{label(file)}: clients.{client} =", model)
    _check_model(f"{label(file)}: traffic =", said.traffic)
    if override is not None:
        _check_model("--traffic", override)
    if set(said.clients) == set(clients):
        raise InputError(
            f"{label(file)}: [clients] gives every client a model of its own:"
            f" leave out the clients that run the one under test, {shown(override or said.traffic)}"
        )
    return {client: said.clients.get(client, override or said.traffic) for client in clients}


def _check_model(subject: str, model: str) -> None:
    if model not in MODELS:
        raise InputError(f"{subject} {shown(model)} is no model: {suggestion(model, MODELS)}")


def _competing(
    said: Scenario, file: Path, topology: TorTopo, links: tuple[Link, ...]
) -> tuple[Competing, ...]:
    """The competing streams, node by node.

    Two nodes of the two roles compete if both lie on some client's way to the server; their
    streams follow that way.
    """
    competing: list[Competing] = []
    next_port = FIRST_STREAM_PORT
    for number, keys in enumerate(said.competing, start=1):
        routes = _routes_between(keys, topology)
        if not routes:
            raise InputError(
                f"{label(file)}: competing[{number}]: {said.topology} has no way from"
                f" {keys.sender} to {keys.receiver}: name two different roles on a circuit's way"
            )
        for route in routes:
            _check_bundles(f"{label(file)}: competing[{number}]", route, links)
            competing.append(
                Competing(
                    sender=route[0],
                    receiver=route[-1],
                    route=route,
                    streams=keys.streams,
                    congestion_control=keys.congestion_control,
                    rate_bit_per_s=keys.rate_bit_per_s,
                    port=COMPETING_PORT + len(competing),
                    stream_ports=tuple(range(next_port, next_port + keys.streams)),
                )
            )
            next_port += keys.streams
    return tuple(competing)


def _check_bundles(subject: str, route: tuple[str, ...], links: tuple[Link, ...]) -> None:
    """Refuse streams that would bring bundles to a link which takes none."""
    hops = {frozenset(hop) for hop in pairwise(route)}
    if len({link.there.bundles for link in links if frozenset(link.ends) in hops}) > 1:
        raise InputError(
            f"{subject}: from {route[0]} to {route[-1]}, some links have bundles = true and some"
            " have not: the nodes between them would hand bundles on; say the same of all of them"
        )


def _routes_between(keys: CompetingKeys, topology: TorTopo) -> list[tuple[str, ...]]:
    places = tuple(ROLES.index(role) for role in (keys.sender, keys.receiver))
    if places[0] == places[1]:
        return []
    routes = {
        way[min(places) : max(places) + 1][:: 1 if places[0] < places[1] else -1]: None
        for way in topology.routes().values()
    }
    return list(routes)


def _tor(variant: Variant) -> Tor:
    return Tor(
        variant=variant.name,
        patches=tuple(
            Patch(
                name=path.name,
                path=label(path),
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in variant.patches
        ),
        source=str(variant.source) if variant.source else None,
        release=variant.release,
        torrc_all=variant.torrc_all,
        torrc_relay=variant.torrc_relay,
        torrc_client=variant.torrc_client,
        consensus_params=variant.consensus_params,
        premise=variant.shared_link,
        ipsec=variant.ipsec,
        connections_per_pair=variant.connections_per_pair,
        per_circuit_up_to=variant.per_circuit_up_to,
        parallel_circuits=variant.parallel_circuits,
        stream_rule=variant.stream_rule,
    )


def _generator(program: str) -> TgenProgram:
    found = shutil.which(program)
    if found is None:
        raise InputError(f"--tgen {shown(program)}: {_why_no_program(program)}")
    path = Path(found).resolve()
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"--tgen {path}: {error.strerror}") from error
    return TgenProgram(path=str(path), sha256=sha256)


def _why_no_program(program: str) -> str:
    path = Path(program)
    if path.is_dir():
        return "is a directory, not a program"
    if not path.exists():
        return "there is no such program: give its path, or a name that is on PATH"
    if os.access(path, os.X_OK):
        return f'is not on PATH: write "./{path}" for the one in this directory'
    return f"is not executable: `chmod +x {path}`"


def _check_duration(plan: Plan, subject: str) -> None:
    shortest_s = shortest_duration_s(plan)
    if plan.duration_s < shortest_s:
        raise InputError(
            f"{subject} {plan.duration_s:g} s is too short for one transfer of every client:"
            f" the links need at least {math.ceil(shortest_s * 10) / 10:g} s"
        )


def shortest_duration_s(plan: Plan) -> float:
    """The least time in which every client can complete one transfer, in seconds.

    That is two round trips (the stream's opening, then the request) and the time in which the
    busiest link on the payload's way carries one transfer of each client whose payload takes it,
    in the same direction. It is a bound: headers, slow start, Tor's window and competing streams
    come on top. Of a client whose relays are not the plan's to say, the way is its own access link.
    """
    shapes = {
        (here, there): shape for link in plan.links for here, there, shape in link.directions()
    }
    access = {link.ends[0]: link.ends for link in plan.links}
    load_bits = dict.fromkeys(shapes, 0.0)
    ways: list[list[tuple[str, str]]] = []
    for client in plan.clients:
        path = plan.paths.get(client)
        route = (client, *path, plan.server_of(client)) if path else access[client]
        model = MODELS[plan.traffic_by_client[client]]
        way = list(pairwise(route if model.upload else route[::-1]))
        for hop in way:
            load_bits[hop] += 8 * model.load_bytes
        ways.append(way)
    return max(
        max(load_bits[hop] / (shapes[hop].rate_bit_per_s or math.inf) for hop in way)
        + 2 * sum(2 * shapes[hop].delay_ms for hop in way) / 1000
        for way in ways
    )
