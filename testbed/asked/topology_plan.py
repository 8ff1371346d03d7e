"""The parts of a plan on a topology: nodes, links and each client's traffic."""

from pathlib import Path

from testbed.asked.scenario import Scenario
from testbed.asked.scenario_links import LinkSettings
from testbed.asked.scenario_values import DEFAULT
from testbed.asked.topology import ROLES, TorTopo, load_topology
from testbed.basics.errors import InputError
from testbed.basics.seeds import netem_seeds
from testbed.basics.toml_file import label, shown, suggestion
from testbed.inside.traffic.models import MODELS
from testbed.plan.addresses import data_address, management_address
from testbed.plan.model import PlannedLink, PlannedNode
from testbed.plan.network import Shape
from testbed.plan.older import FLAGS_BY_ROLE, KIND_BY_ROLE


def topology_of(scenario: Scenario, file: Path) -> TorTopo:
    """Load and build the scenario's topology.

    Raises:
        InputError: there is no such topology, or it can't be built with these parameters.
    """
    try:
        return load_topology(scenario.topology, file.parent, scenario.parameters)
    except InputError as error:
        raise InputError(f"{label(file)}: topology: {error}") from error


def node_of(topology: TorTopo, name: str) -> PlannedNode:
    """A host of a topology, with kind, flags and addresses by its role and number."""
    role = topology.roles()[name]
    kind = KIND_BY_ROLE.get(role, "relay")
    group, number = ROLES.index(role), topology.number(name)
    return PlannedNode(
        name=name,
        kind=kind,
        flags=FLAGS_BY_ROLE.get(role, ()),
        role=role,
        address=None if kind == "authority" else data_address(0, group, number),
        management_address=None if kind == "server" else management_address(group, number),
    )


def check_second_path(scenario: Scenario, file: Path, topology: TorTopo) -> None:
    """Refuse a topology in which Tor finds no guard and middle for a linked set's second leg."""
    for client in topology.nodes_with("client"):
        guards = topology.neighbours(client, "guard")
        middles = {middle for guard in guards for middle in topology.neighbours(guard, "middle")}
        if min(len(guards), len(middles)) < 2:
            raise InputError(
                f"{label(file)}: topology = {shown(scenario.topology)} has one path from {client}"
                " to the exit, but linked circuits (conflux = true) need two: take two_paths"
            )


def links_of(
    scenario: Scenario, file: Path, topology: TorTopo, seed: int
) -> tuple[PlannedLink, ...]:
    """The emulated links, each as the scenario says for links between its two roles.

    Raises:
        InputError: the scenario says nothing about them, contradicts itself, or names roles
            without a link.
    """
    roles = topology.roles()
    ends_by_pair: dict[str, list[tuple[str, str]]] = {}
    for first, second in topology.emulated_links():
        ends_by_pair.setdefault(f"{roles[first]}-{roles[second]}", []).append((first, second))
    for pair in scenario.links:
        if pair not in (DEFAULT, *ends_by_pair):
            raise InputError(
                f"{label(file)}: links.{pair}: {scenario.topology} has no link between"
                f" {' and '.join(pair.split('-'))}; it has: {', '.join(ends_by_pair)}"
            )
    return tuple(
        _link(ends, pair, _settings(scenario, file, pair), seed)
        for pair, all_ends in ends_by_pair.items()
        for ends in all_ends
    )


def _settings(scenario: Scenario, file: Path, pair: str) -> LinkSettings:
    try:
        settings = scenario.link(pair)
    except KeyError as error:
        raise InputError(
            f"{label(file)}: the links {pair} of {scenario.topology} have no rate:"
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


def _link(ends: tuple[str, str], pair: str, settings: LinkSettings, seed: int) -> PlannedLink:
    first_role, second_role = pair.split("-")
    shape = Shape(**settings.model_dump())
    return PlannedLink(
        ends=ends,
        roles=(first_role, second_role),
        there=shape,
        back=shape,
        netem_seeds=netem_seeds(ends, seed),
    )


def traffic_by_client(
    scenario: Scenario, file: Path, topology: TorTopo, override: str | None
) -> dict[str, str]:
    """Each client's model: its own if the scenario gives it one, else the model under test."""
    clients = topology.nodes_with("client")
    for client, model in scenario.clients.items():
        if client not in clients:
            raise InputError(
                f"{label(file)}: clients.{client} is not a client of {scenario.topology}:"
                f" {suggestion(client, clients)}"
            )
        _check_model(f"{label(file)}: clients.{client} =", model)
    _check_model(f"{label(file)}: traffic =", scenario.traffic)
    if override is not None:
        _check_model("--traffic", override)
    if set(scenario.clients) == set(clients):
        raise InputError(
            f"{label(file)}: [clients] gives every client a model of its own: leave out the"
            f" clients that run the model under test, {shown(override or scenario.traffic)}"
        )
    return {
        client: scenario.clients.get(client, override or scenario.traffic) for client in clients
    }


def _check_model(subject: str, model: str) -> None:
    if model not in MODELS:
        raise InputError(f"{subject} {shown(model)} is not a model: {suggestion(model, MODELS)}")
