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
    receiver: str = Field(alias="to")
    streams: int = Field(ge=1, le=128, strict=True)
    congestion_control: CongestionControl = "cubic"
    rate_bit_per_s: Rate | None = Field(None, alias="rate")

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
    entry_guards: Switch | None = None
    learn_timeouts: Switch | None = None
    circuits: int | None = Field(default=None, ge=1, le=MOST_SIDE_BY_SIDE, strict=True)
    round_trips: RoundTrips | None = None
    probe_interval_s: Duration | None = Field(default=None, alias="probe_interval")
    close_unused_s: Duration | None = Field(default=None, alias="close_unused")


class AnyScenario(ScenarioPart):
    """The keys of every scenario file.

    `watch` is pairs of relays such as "guard1-middle1", `ALL_RELAY_PAIRS`, or the number of busiest
    pairs; None if the file has none. `warm_up_s` is how long the traffic goes on before measuring
    begins.
    """

    title: Text
    description: str = ""
    topology: Text
    duration_s: Duration = Field(alias="duration")
    warm_up_s: WarmUp = Field(0.0, alias="warm_up")
    tcp: TcpKeys = TcpKeys()
    paths: PathsKeys = PathsKeys()
    watch: Watch = None
    nodes: dict[str, NodeKeys] = Field(default={})


class Scenario(AnyScenario):
    """A scenario on a topology. Pairs of roles in `links` are ordered from the client's side."""

    traffic: Text
    parameters: dict[str, Annotated[int, Field(strict=True)]] = Field(default={})
    links: dict[str, LinkKeys]
    clients: dict[str, Text] = Field(default={})
    competing: tuple[CompetingKeys, ...] = ()

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
    direction of each link between two sites, `queue_discipline` that of the hosts' own links, with
    Linux's usual parameters.
    A consensus has measured weights only if three authorities or more vote for them (dir-spec,
    "Computing a consensus from a set of votes").
    """

    consensus: Text
    relays: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    relay_rates: Share = 1.0
    clients: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    servers: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    authorities: int = Field(3, ge=3, le=MOST_HOSTS, strict=True)
    places: Text | None = None
    bandwidth_file: Text | None = None
    loss: Loss = 0.0
    queue_discipline: QueueDiscipline = FIFO
    queue_packets: Queue | None = Field(None, alias="queue")

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
    network: NetworkKeys
    clients: dict[str, Share]

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
