"""Scenario files: topology, links, competing streams, traffic, duration; or what a network is.

Whether the topology has such links and nodes is checked in `plans`; networks are drawn in
`drawing`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from testbed.asked.processors import NodeKeys
from testbed.asked.scenario_links import (
    LinkKeys,
    LinkSettings,
    check_disciplines,
    check_sfq,
    link_settings,
    not_its_key,
    with_pairs_in_order,
)
from testbed.asked.scenario_values import (
    DEFAULT,
    CongestionControl,
    QueueDiscipline,
    RoundTrips,
    ScenarioPart,
    Switch,
    Watch,
    known_congestion_control,
)
from testbed.asked.topology import ROLES
from testbed.basics.errors import InputError
from testbed.basics.toml_file import (
    PROJECT,
    KeyProblemError,
    Text,
    Value,
    find_file,
    label,
    read_model,
    read_toml,
    shown,
    suggestion,
)
from testbed.basics.units import Duration, Loss, Queue, Rate, Share, WarmUp
from testbed.inside.traffic.models import MODELS
from testbed.plan.addresses import MOST_HOSTS
from testbed.plan.choices import MOST_SIDE_BY_SIDE
from testbed.plan.parts import MOST_KERNELS
from testbed.plan.queue_disciplines import DISCIPLINES, FIFO

SCENARIOS = PROJECT / "scenarios"

NODE_ROLES = (*ROLES, "relay")
"""The roles that a scenario can name; in a drawn network, a relay is guard, middle or exit."""

SAMPLED = "sampled"
"""The topology of scenarios whose network is drawn from a consensus."""

WARM_UP_S = 30.0
"""The warm-up of a drawn network, unless its scenario says otherwise: the longest pause of `page`,
so that every client has begun, and Tor has built what it builds upon a client's first stream
(docs/networks.md, "When measuring begins")."""


class TcpKeys(ScenarioPart):
    """The nodes' TCP: one congestion control for all, or one for each role."""

    congestion_control: dict[str, CongestionControl] = Field(default={DEFAULT: "cubic"})
    """That of all nodes' TCP, or a table by role: `{ default = "cubic", exit = "bbr" }`; in a drawn
    network relays have the role `relay`."""

    @field_validator("congestion_control", mode="before")
    @classmethod
    def _by_role(cls, value: object) -> object:
        if not isinstance(value, dict):
            return {DEFAULT: known_congestion_control(value)}
        for role in value:
            if role not in (*NODE_ROLES, DEFAULT):
                known = suggestion(role, (*NODE_ROLES, DEFAULT))
                raise KeyProblemError(role, f"is no role: {known}")
        return {DEFAULT: "cubic", **value}

    def of_role(self, role: str) -> str:
        """Return the congestion control of the nodes with a role."""
        return self.congestion_control.get(role, self.congestion_control[DEFAULT])


class CompetingKeys(ScenarioPart):
    """TCP streams that compete with the circuits: their number and the roles of their ends.

    `rate` limits the payload of each stream.
    """

    sender: str = Field(alias="from")
    """The role that sends."""
    receiver: str = Field(alias="to")
    """The role that receives."""
    streams: int = Field(ge=1, le=128, strict=True)
    """Their number."""
    congestion_control: CongestionControl = "cubic"
    """That of the senders' TCP."""
    rate_bit_per_s: Rate | None = Field(None, alias="rate")
    """The highest rate of each stream's payload."""

    @field_validator("sender", "receiver")
    @classmethod
    def _role(cls, role: str) -> str:
        if role not in ROLES or role == "authority":
            raise ValueError(f"is no role on the links: {suggestion(role, ROLES[:-1])}")
        return role


class PathsKeys(ScenarioPart):
    """The policy for circuits and streams: "fixed", "tor", a rule, or the path of a Python file.

    `policy` is None if the file names none; a path is relative to the scenario's file. The others
    are None if the file doesn't say them. Guards and timeouts then hold where Tor chooses in a
    drawn network; `asked.policy` has the defaults of the others, which only rules have.
    """

    policy: Text | None = None
    """A policy's name, or the path of [a Python file](policies.md#one-of-your-own); without it the
    topology's paths, or Tor's own choice in a drawn network."""
    entry_guards: Switch | None = None
    """Whether Tor's clients have [two entry guards](policies.md#where-tor-chooses); without it,
    where Tor chooses in a drawn network."""
    learn_timeouts: Switch | None = None
    """Whether Tor's clients have [learned build timeouts](policies.md#where-tor-chooses); without
    it, where Tor chooses in a drawn network."""
    circuits: int | None = Field(default=None, ge=1, le=MOST_SIDE_BY_SIDE, strict=True)
    """The number of circuits among which [a rule](policies.md#which-circuit-carries-a-stream)
    chooses."""
    round_trips: RoundTrips | None = None
    """From what the round trips come that a rule compares."""
    probe_interval_s: Duration | None = Field(default=None, alias="probe_interval")
    """How often a rule's circuits are probed."""
    close_unused_s: Duration | None = Field(default=None, alias="close_unused")
    """After what time a rule closes a circuit without streams."""
    liars: Share | None = None
    """The share of the relays' weight that lies about [round trips](adversaries.md)."""
    liars_hide: Share | None = None
    """The share of its part of a round trip that a liar hides."""


class AnyScenario(ScenarioPart):
    """The keys of every scenario file.

    `watch` is pairs of relays such as "guard1-middle1", `ALL_RELAY_PAIRS`, or the number of busiest
    pairs; None if the file has none. `warm_up_s` is how long the traffic goes on before measuring
    begins. `kernels` is how many kernels carry a run out under one clock.
    """

    title: Text
    """What tables and reports call it."""
    description: str = ""
    """Sentences for readers."""
    topology: Text
    """A name in `topologies/`, a path relative to the file, or `"sampled"` for [a drawn
    network](networks.md)."""
    duration_s: Duration = Field(alias="duration")
    """How long the run measures: transfers that begin in this time count."""
    warm_up_s: WarmUp = Field(0.0, alias="warm_up")
    """How long clients make traffic [before that](networks.md#when-measuring-begins)."""
    tcp: TcpKeys = TcpKeys()
    """[The nodes' TCP](#tcp)."""
    paths: PathsKeys = PathsKeys()
    """[How circuits and streams are chosen](#paths)."""
    watch: Watch = None
    """[Pairs of relays](scenarios.md#what-is-watched) to watch more closely."""
    nodes: dict[str, NodeKeys] = Field(default={})
    """[How fast processors are](#nodes), by node, role, class or `default`."""
    kernels: int = Field(default=1, ge=1, le=MOST_KERNELS, strict=True)
    """How many kernels share the run, [each on a core](performance.md#on-several-cores) if there
    are as many."""


class Scenario(AnyScenario):
    """A scenario on a topology. Pairs of roles in `links` are ordered from the client's side."""

    traffic: Text
    """The clients' traffic model (`./run.py list`); `--traffic` overrides it."""
    parameters: dict[str, Annotated[int, Field(strict=True)]] = Field(default={})
    """The topology's parameters, such as `clients = 16` in `eight_clients`."""
    links: dict[str, LinkKeys]
    """[Links](#links) by the roles at their ends, such as `middle-exit`; `default` has what the
    others lack."""
    clients: dict[str, Text] = Field(default={})
    """Traffic models of single clients, such as `client1 = "bulk"`."""
    competing: tuple[CompetingKeys, ...] = ()
    """[TCP streams between two roles](#competing), for as long as the traffic lasts."""

    @field_validator("links", mode="before")
    @classmethod
    def _pairs_in_order(cls, links: object) -> object:
        """Order the roles in every key."""
        return with_pairs_in_order(links) if isinstance(links, dict) else links

    @field_validator("links")
    @classmethod
    def _keys_of_their_disciplines(cls, links: dict[str, LinkKeys]) -> dict[str, LinkKeys]:
        check_disciplines(links)
        return links

    def link(self, pair: str) -> LinkSettings:
        """Resolve the settings of the links between two roles; KeyError if they have no rate."""
        return link_settings(self.links, pair)


class NetworkKeys(ScenarioPart):
    """The source of a drawn network, and its number of nodes of each kind.

    `consensus` is the name of one that comes with the project, or a file's path; `places` is a
    folder like places/ of the project; `bandwidth_file` has the relays' weights instead of the
    consensus's, with `{seed}` in its name for a file for each seed. Paths are relative to the
    scenario's file. `relay_rates` is the share of its rate that each relay has, `loss` that of each
    direction of each link between two sites, `client_loss` that of the clients' own links,
    `queue_discipline` that of the hosts' own links, with Linux's usual parameters.
    A consensus has measured weights only if three authorities or more vote for them (dir-spec,
    "Computing a consensus from a set of votes").
    """

    consensus: Text
    """A name in `consensuses/`, or a file's path."""
    relays: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    """The number of relays."""
    relay_rates: Share = 1.0
    """The share of its rate that each relay has."""
    clients: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    """The number of clients."""
    servers: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    """The number of servers."""
    authorities: int = Field(3, ge=3, le=MOST_HOSTS, strict=True)
    """The number of directory authorities."""
    places: Text | None = None
    """A folder like `places/` of the project, which is taken without it."""
    bandwidth_file: Text | None = None
    """A [file with the relays' weights](networks.md#weights-that-were-measured) instead of the
    consensus's; `{seed}` in its name stands for the seed."""
    loss: Loss = 0.0
    """The loss of each direction of each link between two sites."""
    client_loss: Loss = 0.0
    """The loss of each direction of each client's own link, as of a lossy access."""
    queue_discipline: QueueDiscipline = FIFO
    """That of the hosts' own links, with Linux's usual parameters."""
    queue_packets: Queue | None = Field(None, alias="queue")
    """Its length; without it the discipline's own."""

    @model_validator(mode="after")
    def _queue_of_its_discipline(self) -> Self:
        if self.queue_packets and "queue_packets" not in DISCIPLINES[self.queue_discipline].keys:
            raise KeyProblemError("queue", not_its_key("queue_packets", self.queue_discipline))
        if self.queue_packets and self.queue_discipline == "sfq":
            check_sfq("queue", {"queue_packets": self.queue_packets})
        return self

    @property
    def room_packets(self) -> int:
        """Return the length of queues: the file's, or their discipline's default."""
        return self.queue_packets or DISCIPLINES[self.queue_discipline].queue_packets


class SampledScenario(AnyScenario):
    """A scenario whose network is drawn by the seed; `clients` are shares by traffic model."""

    warm_up_s: WarmUp = Field(WARM_UP_S, alias="warm_up")
    """How long clients make traffic [before measuring begins](networks.md#when-measuring-begins).
"""
    network: NetworkKeys
    """[What is drawn](#network)."""
    clients: dict[str, Share]
    """The share of the clients with each traffic model, such as `page = "95 %"`; together 100 %."""

    @field_validator("clients")
    @classmethod
    def _shares_of_all(cls, clients: dict[str, float]) -> dict[str, float]:
        for model in clients:
            if model not in MODELS:
                raise KeyProblemError(model, f"is no traffic model: {suggestion(model, MODELS)}")
        if abs(sum(clients.values()) - 1) > 1e-9:
            sum_of_all = " + ".join(f"{100 * share:g} %" for share in clients.values()) or "0 %"
            raise ValueError(f"are {sum_of_all} of the clients: the shares must add up to 100 %")
        return clients


def scenario_file(name: str) -> Path:
    """Find a scenario's file by its name or its path; InputError if there is none."""
    return find_file("scenario", name, SCENARIOS)


def read_scenario(name: str, changes: Mapping[str, Value] | None = None) -> tuple[Scenario, Path]:
    """Read the scenario of that name in scenarios/, or the file at that path; return its file too.

    Args:
        changes: values instead of those in the file, by dotted keys such as
            "links.middle-exit.loss".

    Raises:
        InputError: there is none, or it has a key or value that it can't have.
    """
    path = scenario_file(name)
    scenario = read_model(path, Scenario, changes)
    if not scenario.links:
        raise InputError(f'{label(path)}: links is empty: write default = {{ rate = "…" }}')
    return scenario, path


def read_sampled_scenario(
    name: str, changes: Mapping[str, Value] | None = None
) -> tuple[SampledScenario, Path]:
    """Read, as `read_scenario`, a scenario whose network is drawn.

    Raises:
        InputError: there is none, it has a key or value that it can't have, or it has a topology.
    """
    path = scenario_file(name)
    if not is_sampled(path):
        topology = shown(read_toml(path).get("topology", ""))
        raise InputError(
            f"{label(path)}: topology = {topology}: nothing is drawn; networks with topology ="
            f' "{SAMPLED}" are'
        )
    return read_model(path, SampledScenario, changes), path


def is_sampled(path: Path) -> bool:
    """Whether a scenario's network is drawn from a consensus.

    Raises:
        InputError: the file can't be read, or isn't TOML.
    """
    return bool(read_toml(path).get("topology") == SAMPLED)


def scenario_title(name: str) -> str:
    """Return the title of any scenario; raises as `read_scenario`."""
    path = scenario_file(name)
    return read_model(path, SampledScenario if is_sampled(path) else Scenario).title
