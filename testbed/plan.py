"""The plan of a run: scenario, variant, topology and seed, resolved, checked, as plain data.

Nothing is started or built here; versions of programs and the machine are the manifest's.
"""

import hashlib
import ipaddress
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from testbed.errors import InputError
from testbed.plan_identity import identity
from testbed.queue_disciplines import FIFO
from testbed.scenario import DEFAULT, CompetingKeys, LinkSettings, Scenario, read_scenario
from testbed.seeds import derived_seed
from testbed.toml_file import PROJECT, Value, label, shown, suggestion
from testbed.topology import ROLES, TorTopo, load_topology
from testbed.tor.choices import CONFLUX
from testbed.tor.policies import STREAM_RULES
from testbed.traffic.models import MODELS
from testbed.units import duration_s as read_duration_s
from testbed.variant import SharedLinkPremise, TorrcLines, Variant, read_variant

FULL_SIZE_PACKET_BYTES = 1514
"""An Ethernet frame with a payload of 1500 bytes, as the qdiscs of the links count it."""

COMPETING_PORT = 5201
"""Of the first entry of competing streams; the next ones' follow. iperf3's own default."""
FIRST_STREAM_PORT = 20_000

LARGEST_SEED = 2**31 - 1

_DATA_PLANE = ipaddress.IPv4Address("10.0.0.0")
_MANAGEMENT = ipaddress.IPv4Address("10.1.0.0")


class PlanPart(BaseModel):
    """A part of a plan: plain data that nothing changes; other versions' keys are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(PlanPart):
    """A host with its addresses.

    Attributes:
        address: on the emulated links, out of 10.0.0.0/16; the authority has none.
        management_address: on the management network, out of 10.1.0.0/16; a server has none.
    """

    name: str
    role: str
    address: str | None
    management_address: str | None


class Link(PlanPart):
    """An emulated link; what it does, it does in each direction alike.

    Attributes:
        ends: the two nodes, the one on the client's side first.
        roles: the roles of the ends, in the same order.
        rate_bit_per_s: what the link carries, counted in whole Ethernet frames.
        delay_ms: one way.
        loss: share of the packets that are lost, independently of each other.
        bundles: whether TCP's bundles of segments cross as one, and are lost as one. Then `loss`
            is of bundles.
        queue_packets: room for packets that wait, beyond those in the delay line.
        queue_in_sender: what waits is in the sender's own network card, so that its TCP knows of
            it. Only without delay and loss.
        queue_discipline: one of `testbed.queue_disciplines`.
        queue_parameters: what the scenario says of it, by the names of its keys there.
        netem_seeds: the seeds of the loss in the direction away from the first and from the
            second end. They depend on the run's seed and the ends only, so that every variant
            meets the same sequence of losses.
    """

    ends: tuple[str, str]
    roles: tuple[str, str]
    rate_bit_per_s: int
    delay_ms: float
    loss: float
    bundles: bool = False
    queue_packets: int
    queue_in_sender: bool = False
    queue_discipline: str = FIFO
    queue_parameters: dict[str, bool | int | str] = {}
    netem_seeds: tuple[int, int]

    @property
    def queue_kind(self) -> str:
        """What there is to say of the queue beside its length: empty for a plain FIFO."""
        parts = [
            "" if self.queue_discipline == FIFO else self.queue_discipline,
            *(f"{name} {value}" for name, value in self.queue_parameters.items()),
            "sender's" if self.queue_in_sender else "",
            "bundles" if self.bundles else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def holds_packets(self) -> int:
        """What a full link holds in full-size packets: bandwidth-delay product and queue."""
        bits_under_way = self.rate_bit_per_s * self.delay_ms / 1000
        return math.ceil(bits_under_way / (8 * FULL_SIZE_PACKET_BYTES)) + self.queue_packets


class Competing(PlanPart):
    """TCP streams beside the circuits, all from one node to another along a route of nodes.

    Attributes:
        rate_bit_per_s: what a stream sends at the most; None: as fast as it goes.
        port: the receiver's.
        stream_ports: the sender's, one a stream; they tell the streams from iperf3's control
            connection.
    """

    sender: str
    receiver: str
    route: tuple[str, ...]
    streams: int
    congestion_control: str
    rate_bit_per_s: int | None = None
    port: int
    stream_ports: tuple[int, ...]


class Patch(PlanPart):
    """A patch to Tor; `path` is relative to the project where it lies in it, "" in the guest."""

    name: str
    path: str = ""
    sha256: str

    def file(self) -> Path:
        """Where the patch lies on this machine."""
        return PROJECT / self.path


class Tor(PlanPart):
    """The variant: what is built, how it is configured, what must hold on the shared link.

    Attributes:
        source, release: a tree of Tor's source, or a pinned release; the default one if both are
            None.
        ipsec: whether neighbouring relays have ESP between them; what Tor knows nothing of.
        connections_per_pair, per_circuit_up_to, parallel_circuits, stream_rule: as in `Variant`.
    """

    variant: str
    patches: tuple[Patch, ...]
    source: str | None = None
    release: str | None = None
    torrc_all: TorrcLines
    torrc_relay: TorrcLines
    torrc_client: TorrcLines
    consensus_params: dict[str, int]
    premise: SharedLinkPremise
    ipsec: bool = False
    connections_per_pair: int | None = None
    per_circuit_up_to: int | None = None
    parallel_circuits: int = 1
    stream_rule: str = STREAM_RULES[0]

    @property
    def promise(self) -> str:
        """What must hold on the shared link, in words: the premise, or what a number says of it."""
        if self.connections_per_pair:
            return f"up to {self.connections_per_pair} connections, shared by circuits' numbers"
        if self.per_circuit_up_to:
            return f"one connection per circuit up to {self.per_circuit_up_to}, then shared"
        return self.premise

    @property
    def conflux(self) -> bool:
        """Whether each client has a linked set, built by Tor itself, and not one circuit.

        Only the key `conflux` sets the option: variants' own torrc lines can't.
        """
        return CONFLUX[True].torrc.items() <= self.torrc_all.items()


class Generator(PlanPart):
    """A traffic generator of the user's own, which plays both ends of every transfer."""

    path: str = ""
    sha256: str


class Plan(PlanPart):
    """All that a run needs to know.

    Attributes:
        scenario: the file's name, and what was changed in it, such as
            "SharedDropping,links.middle-exit.loss=0.2%".
        changes: values instead of those of the scenario's file, by dotted keys.
        topology: its name, or its file's: nodes, links and paths are all that is built.
        traffic: the model of every client that has none of its own in the scenario.
        traffic_overridden: whether it is another one than the scenario's file says.
        duration_s: how long is measured.
        paths: guard, middle and exit of each client's circuit.
        shared_link: the nodes at the ends of the link that all circuits cross.
        traffic_by_client, congestion_control: by the node's name.
        tgen: None for the bundled generator.
    """

    scenario: str
    scenario_title: str
    variant: str
    variant_title: str
    topology: str
    traffic: str
    traffic_overridden: bool
    seed: int
    duration_s: float
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    paths: dict[str, tuple[str, str, str]]
    shared_link: tuple[str, str]
    traffic_by_client: dict[str, str]
    congestion_control: dict[str, str]
    competing: tuple[Competing, ...]
    tor: Tor
    tgen: Generator | None = None
    changes: dict[str, Value] = {}

    @property
    def unchanged_scenario(self) -> str:
        """The scenario's name without what is changed in it."""
        return self.scenario.partition(",")[0] if self.changes else self.scenario

    @property
    def key(self) -> str:
        """The run's name: 16 hexadecimal digits over everything that can change its result."""
        # Without defaults, so that a plan keeps its key when plans learn to say something more.
        content = identity(self.model_dump(mode="json", exclude_defaults=True))
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def node(self, name: str) -> Node:
        """The node of that name; KeyError if there is none."""
        try:
            return next(node for node in self.nodes if node.name == name)
        except StopIteration:
            raise KeyError(name) from None

    def nodes_with(self, *roles: str) -> list[Node]:
        """The nodes of these roles."""
        return [node for node in self.nodes if node.role in roles]

    def links_between(self, role: str, other_role: str) -> list[Link]:
        """The links between two roles, in whichever order they are given."""
        return [link for link in self.links if set(link.roles) == {role, other_role}]


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
    _check_seed(seed)
    said, file = read_scenario(scenario, changes)
    tor = read_variant(variant)
    topology = _topology(said, file)
    if tor.conflux:
        _check_ways(said, file, topology)
    links = _links(said, file, topology, seed)
    traffic_by_client = _traffic_by_client(said, file, topology, traffic)
    plan = Plan(
        scenario=changed_name(file.stem, changes or {}),
        scenario_title=said.title,
        variant=tor.name,
        variant_title=tor.title,
        topology=Path(said.topology).stem,
        traffic=traffic or said.traffic,
        traffic_overridden=traffic is not None and traffic != said.traffic,
        seed=seed,
        duration_s=said.duration_s if duration is None else _given_duration_s(duration),
        nodes=tuple(_node(topology, name) for name in topology.roles()),
        links=links,
        paths=topology.paths(),
        shared_link=topology.shared_link,
        traffic_by_client=traffic_by_client,
        congestion_control={
            name: said.tcp.of_role(role) for name, role in topology.roles().items()
        },
        competing=_competing(said, file, topology, links),
        tor=_tor(tor),
        tgen=None if tgen is None else _generator(tgen),
        changes=dict(changes or {}),
    )
    subject = f"{label(file)}: duration" if duration is None else "--duration"
    _check_duration(plan, topology, subject)
    return plan


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


def _check_seed(seed: object) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"--seed {shown(seed)} is no whole number from 0 to {LARGEST_SEED}")


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
    """A node with its addresses: the third number is its role's, the fourth its own."""
    role = topology.roles()[name]
    offset = 256 * (1 + ROLES.index(role)) + topology.number(name)
    return Node(
        name=name,
        role=role,
        address=None if role == "authority" else str(_DATA_PLANE + offset),
        management_address=None if role == "server" else str(_MANAGEMENT + offset),
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
    if settings.queue_in_sender and (settings.delay_ms or settings.loss):
        raise InputError(
            f"{label(file)}: links.{pair}.queue_in_sender = true is for links without delay and"
            " loss; leave out one of them"
        )
    return settings


def _link(ends: tuple[str, str], pair: str, settings: LinkSettings, seed: int) -> Link:
    first, second = ends
    first_role, second_role = pair.split("-")
    return Link(
        ends=ends,
        roles=(first_role, second_role),
        rate_bit_per_s=settings.rate_bit_per_s,
        delay_ms=settings.delay_ms,
        loss=settings.loss,
        bundles=settings.bundles,
        queue_packets=settings.queue_packets,
        queue_in_sender=settings.queue_in_sender,
        queue_discipline=settings.queue_discipline,
        queue_parameters=settings.queue_parameters,
        netem_seeds=(
            derived_seed(seed, "netem", first, second),
            derived_seed(seed, "netem", second, first),
        ),
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
    if len({link.bundles for link in links if frozenset(link.ends) in hops}) > 1:
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


def _generator(program: str) -> Generator:
    found = shutil.which(program)
    if found is None:
        raise InputError(f"--tgen {shown(program)}: {_why_no_program(program)}")
    path = Path(found).resolve()
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"--tgen {path}: {error.strerror}") from error
    return Generator(path=str(path), sha256=sha256)


def _why_no_program(program: str) -> str:
    path = Path(program)
    if path.is_dir():
        return "is a directory, not a program"
    if not path.exists():
        return "there is no such program: give its path, or a name that is on PATH"
    if os.access(path, os.X_OK):
        return f'is not on PATH: write "./{path}" for the one in this directory'
    return f"is not executable: `chmod +x {path}`"


def _check_duration(plan: Plan, topology: TorTopo, subject: str) -> None:
    shortest_s = shortest_duration_s(plan, topology.routes())
    if plan.duration_s < shortest_s:
        raise InputError(
            f"{subject} {plan.duration_s:g} s is too short for one transfer of every client:"
            f" the links need at least {math.ceil(shortest_s * 10) / 10:g} s"
        )


def shortest_duration_s(plan: Plan, routes: dict[str, tuple[str, ...]]) -> float:
    """The least time in which every client can complete one transfer, in seconds.

    That is two round trips (the stream's opening, then the request) and the time in which the
    busiest link on the client's way carries one transfer of each client that uses it. It is a
    bound: headers, slow start, Tor's window and competing streams come on top.
    """
    links = {frozenset(link.ends): link for link in plan.links}
    load_bits: dict[frozenset[str], float] = dict.fromkeys(links, 0.0)
    ways = {client: [frozenset(hop) for hop in pairwise(route)] for client, route in routes.items()}
    for client, way in ways.items():
        for hop in way:
            load_bits[hop] += 8 * MODELS[plan.traffic_by_client[client]].load_bytes
    return max(
        max(load_bits[hop] / links[hop].rate_bit_per_s for hop in way)
        + 2 * sum(2 * links[hop].delay_ms for hop in way) / 1000
        for way in ways.values()
    )
