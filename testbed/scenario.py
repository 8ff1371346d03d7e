"""What a scenario file may say: topology, links, competing streams, traffic, duration.

Whether the topology has such links and nodes is checked where they meet, in `testbed.plan`; what a
sampled network is drawn from, in `testbed.drawing`.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from testbed.addresses import MOST_HOSTS
from testbed.errors import InputError
from testbed.queue_disciplines import (
    CAKE_DIFFSERVS,
    CAKE_ISOLATIONS,
    DISCIPLINES,
    FIFO,
    OWN_KEYS,
    SFQ_DEFAULTS,
)
from testbed.toml_file import (
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
from testbed.topology import ROLES
from testbed.traffic.models import MODELS
from testbed.units import Delay, Duration, Interval, Loss, Queue, Rate, Segments, Share, Size

SCENARIOS = PROJECT / "scenarios"

CONGESTION_CONTROLS = ("cubic", "reno", "bbr", "vegas", "westwood")
"""The kernel's TCP congestion controls that a scenario can choose."""

NODE_ROLES = (*ROLES, "relay")
"""What nodes are to a scenario: in a drawn network, a relay is guard, middle or exit in turn."""

SAMPLED = "sampled"
"""The topology of scenarios whose network is drawn from a consensus."""

DEFAULT = "default"
"""The key of what holds for everything that has no entry of its own."""

ALL_RELAY_PAIRS = "all relay pairs"
_BUSIEST = re.compile(r"the ([1-9]\d*) busiest")


def _one_of(choices: tuple[str, ...]) -> Callable[[object], object]:
    """A validator of words: only these."""

    def known(value: object) -> object:
        if value not in choices:
            raise ValueError(f"is unknown: {suggestion(str(value), choices)}")
        return value

    return known


_known_congestion_control = _one_of(CONGESTION_CONTROLS)


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("is no power of two: write for example 1024")
    return value


def _whole_seconds(duration_s: float) -> int:
    if duration_s != int(duration_s):
        raise ValueError("is not a whole number of seconds, which is what the kernel counts")
    return int(duration_s)


def _places(value: object) -> object:
    """Pairs of relays, `ALL_RELAY_PAIRS` as it is, or how many of the busiest."""
    if value == ALL_RELAY_PAIRS:
        return value
    if isinstance(value, str) and (found := _BUSIEST.fullmatch(value)):
        return int(found[1])
    pairs = [value] if isinstance(value, str) else value
    if not (
        isinstance(pairs, list)
        and pairs
        and all(isinstance(pair, str) and pair.count("-") == 1 for pair in pairs)
    ):
        raise ValueError(
            f'names no pairs of relays: write "{ALL_RELAY_PAIRS}", "the 5 busiest", or a list such'
            ' as ["relay1-relay2"]'
        )
    return tuple(pairs)


CongestionControl = Annotated[str, BeforeValidator(_known_congestion_control)]
QueueDiscipline = Annotated[str, BeforeValidator(_one_of(tuple(DISCIPLINES)))]
Isolation = Annotated[str, BeforeValidator(_one_of(CAKE_ISOLATIONS))]
Diffserv = Annotated[str, BeforeValidator(_one_of(CAKE_DIFFSERVS))]
WholeSeconds = Annotated[Duration, AfterValidator(_whole_seconds)]
PowerOfTwo = Annotated[int, AfterValidator(_power_of_two)]
Switch = Annotated[bool, Field(strict=True)]
Watch = Annotated[tuple[str, ...] | int | str | None, BeforeValidator(_places)]


class ScenarioPart(BaseModel):
    """A table of a scenario file: unknown keys are errors, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LinkKeys(ScenarioPart):
    """What a scenario says of a kind of link, each direction alike; None where it says nothing.

    `queue` is the room for packets that wait for the link, on top of those that are under way
    in the delay line: a queue of 1000 packets is 1000 packets whatever the delay. With
    `queue_in_sender` it is the sender's own network card's, with `bundles` TCP's bundles of
    segments cross as one, of `largest_bundle` at most: `testbed.lab.links.shape`. The keys from
    `target` on are those of a queue discipline: `testbed.queue_disciplines`.
    """

    rate_bit_per_s: Rate | None = Field(None, alias="rate")
    delay_ms: Delay | None = Field(None, alias="delay")
    loss: Loss | None = None
    bundles: Switch | None = None
    largest_bundle_segments: Segments | None = Field(None, alias="largest_bundle", ge=2)
    queue_packets: Queue | None = Field(None, alias="queue")
    queue_in_sender: Switch | None = None
    queue_discipline: QueueDiscipline | None = None

    target_us: Interval | None = Field(None, alias="target")
    interval_us: Interval | None = Field(None, alias="interval")
    ecn: Switch | None = None
    ce_threshold_us: Interval | None = Field(None, alias="ce_threshold")
    flows: int | None = Field(None, ge=1, le=65_408, strict=True)
    quantum_bytes: Size | None = Field(None, alias="quantum", ge=256, le=2**20)
    memory_limit_bytes: Size | None = Field(None, alias="memory_limit")
    drop_batch: int | None = Field(None, ge=1, le=10_000, strict=True)
    tupdate_us: Interval | None = Field(None, alias="tupdate")
    alpha: int | None = Field(None, ge=0, le=32, strict=True)
    beta: int | None = Field(None, ge=0, le=32, strict=True)
    bytemode: Switch | None = None
    rtt_us: Interval | None = Field(None, alias="rtt")
    isolation: Isolation | None = None
    diffserv: Diffserv | None = None
    ack_filter: Switch | None = None
    depth: int | None = Field(None, ge=1, le=127, strict=True)
    divisor: PowerOfTwo | None = Field(None, ge=1, le=65_536, strict=True)
    perturb_s: WholeSeconds | None = Field(None, alias="perturb")
    headdrop: Switch | None = None

    def of_queue(self) -> dict[str, Any]:
        """What it says of the queue itself, by the names of `OWN_KEYS`."""
        return self.model_dump(exclude_none=True, include=set(OWN_KEYS))


class LinkSettings(ScenarioPart):
    """A kind of link with everything known.

    A rate in bit/s, a one-way delay in ms, the share of packets lost, whether bundles cross as
    one and how large they may be, the queue in packets beyond those in the delay line, whether it
    is in the sender's own card, its discipline, and what is said of that by the names of
    `OWN_KEYS`.
    """

    rate_bit_per_s: int
    delay_ms: float = 0.0
    loss: float = 0.0
    bundles: bool = False
    largest_bundle_segments: int | None = None
    queue_packets: int
    queue_in_sender: bool = False
    queue_discipline: str = FIFO
    queue_parameters: dict[str, bool | int | str] = {}


class TcpKeys(ScenarioPart):
    """The kernels' TCP: one congestion control for all nodes, or one for each role."""

    congestion_control: dict[str, CongestionControl] = {DEFAULT: "cubic"}

    @field_validator("congestion_control", mode="before")
    @classmethod
    def _by_role(cls, value: object) -> object:
        if not isinstance(value, dict):
            return {DEFAULT: _known_congestion_control(value)}
        for role in value:
            if role not in (*NODE_ROLES, DEFAULT):
                known = suggestion(role, (*NODE_ROLES, DEFAULT))
                raise KeyProblemError(role, f"is no role: {known}")
        return {DEFAULT: "cubic", **value}

    def of_role(self, role: str) -> str:
        """The congestion control of the nodes of a role."""
        return self.congestion_control.get(role, self.congestion_control[DEFAULT])


class CompetingKeys(ScenarioPart):
    """TCP streams that compete with the circuits: how many, and from which role to which.

    With `rate`, no stream sends more than that of its payload.
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
    """Who decides on circuits and streams: "fixed", "tor", or the path of a Python file.

    `policy` is None where nothing is said; the file's path is seen from the scenario's.
    """

    policy: Text | None = None
    entry_guards: Switch = False


class AnyScenario(ScenarioPart):
    """What every scenario file says.

    `watch` is pairs of relays such as "guard1-middle1", `ALL_RELAY_PAIRS`, or how many of the
    busiest pairs; None where nothing is said.
    """

    title: Text
    description: str = ""
    topology: Text
    duration_s: Duration = Field(alias="duration")
    tcp: TcpKeys = TcpKeys()
    paths: PathsKeys = PathsKeys()
    watch: Watch = None


class Scenario(AnyScenario):
    """A scenario on a topology. Pairs of roles in `links` are ordered from the client's side."""

    traffic: Text
    parameters: dict[str, Annotated[int, Field(strict=True)]] = {}
    links: dict[str, LinkKeys]
    clients: dict[str, Text] = {}
    competing: tuple[CompetingKeys, ...] = ()

    @field_validator("links", mode="before")
    @classmethod
    def _pairs_in_order(cls, links: object) -> object:
        """The same links with every key's roles in order, so that exit-middle is middle-exit."""
        if not isinstance(links, dict):
            return links
        in_order: dict[str, Any] = {}
        for key, settings in links.items():
            name = key if key == DEFAULT else role_pair(key)
            if name in in_order:
                raise KeyProblemError(key, f"says again what {name} says: keep one of them")
            in_order[name] = settings
        return in_order

    @field_validator("links")
    @classmethod
    def _keys_of_their_disciplines(cls, links: dict[str, LinkKeys]) -> dict[str, LinkKeys]:
        for pair, keys in links.items():
            discipline, said = _said_of_queue(links, pair)
            for key in keys.of_queue():
                if key not in DISCIPLINES[discipline].keys:
                    raise KeyProblemError(f"{pair}.{_name(key)}", _not_its_key(key, discipline))
            if discipline == "sfq":
                _check_sfq(f"{pair}.queue", said)
        return links

    def link(self, pair: str) -> LinkSettings:
        """The settings of the links between two roles; what they don't say, `default` says.

        Raises:
            KeyError: neither says a rate.
        """
        said: dict[str, Any] = {}
        for key in (DEFAULT, pair):
            if key in self.links:
                said |= self.links[key].model_dump(exclude_none=True, exclude=set(OWN_KEYS))
        if "rate_bit_per_s" not in said:
            raise KeyError(pair)
        discipline, parameters = _said_of_queue(self.links, pair)
        said["queue_discipline"] = discipline
        said["queue_packets"] = parameters.pop(
            "queue_packets", DISCIPLINES[discipline].queue_packets
        )
        return LinkSettings(**said, queue_parameters=parameters)


def _said_of_queue(links: dict[str, LinkKeys], pair: str) -> tuple[str, dict[str, Any]]:
    """The queue discipline of the links between two roles, and what is said of it.

    They belong together: a table that names a discipline takes nothing of `default`'s queue.
    """
    discipline, said = FIFO, dict[str, Any]()
    for key in (DEFAULT, pair):
        if key in links:
            if links[key].queue_discipline:
                discipline, said = links[key].queue_discipline or FIFO, {}
            said |= links[key].of_queue()
    return discipline, said


def _name(key: str) -> str:
    """A link's key as a scenario file has it."""
    return LinkKeys.model_fields[key].alias or key


def _not_its_key(key: str, discipline: str) -> str:
    others = [name for name, other in DISCIPLINES.items() if key in other.keys]
    its_keys = ", ".join(_name(own) for own in DISCIPLINES[discipline].keys)
    return (
        f"is a key of the queue discipline{'s' * (len(others) > 1)} {', '.join(others)};"
        f" here it is {discipline}, with the keys: {its_keys}"
    )


def _check_sfq(key: str, said: dict[str, Any]) -> None:
    """Refuse what Linux refuses, and what it would cut without a word."""
    keys = SFQ_DEFAULTS | said
    most = min(keys["flows"], keys["divisor"]) * keys["depth"]
    if not 2 <= keys["queue_packets"] <= most:
        raise KeyProblemError(
            key,
            f"= {keys['queue_packets']} packets: sfq holds at least 2, and here at most"
            f" flows * depth = {most}",
        )


class NetworkKeys(ScenarioPart):
    """What a network is drawn from, and how many there are of each kind of node.

    `consensus` is a name of those that come with the project or a file's path, `places` a folder
    like places/ of the project, both relative to the scenario's file. `relay_rates` is the share of
    its rate that each relay has, `loss` that of each direction of each link between two sites,
    `queue_discipline` that of the hosts' own links, with Linux's usual parameters. Measured weights
    come into a consensus only if three authorities or more vote for them (dir-spec, "Computing a
    consensus from a set of votes").
    """

    consensus: Text
    relays: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    relay_rates: Share = 1.0
    clients: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    servers: int = Field(ge=1, le=MOST_HOSTS, strict=True)
    authorities: int = Field(3, ge=3, le=MOST_HOSTS, strict=True)
    places: Text | None = None
    loss: Loss = 0.0
    queue_discipline: QueueDiscipline = FIFO
    queue_packets: Queue | None = Field(None, alias="queue")

    @model_validator(mode="after")
    def _queue_of_its_discipline(self) -> Self:
        if self.queue_packets and "queue_packets" not in DISCIPLINES[self.queue_discipline].keys:
            raise KeyProblemError("queue", _not_its_key("queue_packets", self.queue_discipline))
        if self.queue_packets and self.queue_discipline == "sfq":
            _check_sfq("queue", {"queue_packets": self.queue_packets})
        return self

    @property
    def room_packets(self) -> int:
        """The length of queues: what is said, or what their discipline has by itself."""
        return self.queue_packets or DISCIPLINES[self.queue_discipline].queue_packets


class SampledScenario(AnyScenario):
    """A scenario whose network each seed draws; `clients` are shares by traffic model."""

    network: NetworkKeys
    clients: dict[str, Share]

    @field_validator("clients")
    @classmethod
    def _shares_of_all(cls, clients: dict[str, float]) -> dict[str, float]:
        for model in clients:
            if model not in MODELS:
                raise KeyProblemError(model, f"is no traffic model: {suggestion(model, MODELS)}")
        if abs(sum(clients.values()) - 1) > 1e-9:
            told = " + ".join(f"{100 * share:g} %" for share in clients.values()) or "0 %"
            raise ValueError(f"are {told} of the clients: the shares must add up to 100 %")
        return clients


def role_pair(key: str) -> str:
    """Two roles such as "exit-middle" in the order from the client's side: "middle-exit".

    Raises:
        KeyProblemError: the key isn't two roles.
    """
    roles = key.split("-")
    neighbours = [f"{first}-{second}" for first, second in pairwise(ROLES[:-1])]
    if len(roles) != 2:
        raise KeyProblemError(
            key, f"is no pair of roles: {suggestion(key, [DEFAULT, *neighbours])}"
        )
    for role in roles:
        if role not in ROLES:
            raise KeyProblemError(key, f"names no role {role}: {suggestion(key, neighbours)}")
    first, second = sorted(roles, key=ROLES.index)
    return f"{first}-{second}"


def scenario_file(name: str) -> Path:
    """The file of a scenario, by its name or its path; InputError if there is none."""
    return find_file("scenario", name, SCENARIOS)


def read_scenario(name: str, changes: Mapping[str, Value] | None = None) -> tuple[Scenario, Path]:
    """The scenario of that name in scenarios/, or in the file at that path, and its file.

    Args:
        changes: values instead of those in the file, by dotted keys such as
            "links.middle-exit.loss".

    Raises:
        InputError: there is none, or it says something that it can't mean.
    """
    path = scenario_file(name)
    scenario = read_model(path, Scenario, changes)
    if not scenario.links:
        raise InputError(f'{label(path)}: links is empty: write default = {{ rate = "…" }}')
    return scenario, path


def read_sampled_scenario(
    name: str, changes: Mapping[str, Value] | None = None
) -> tuple[SampledScenario, Path]:
    """As `read_scenario`, of a scenario whose network is sampled.

    Raises:
        InputError: there is none, it says something that it can't mean, or it has a topology.
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
    """Whether a scenario's file says that its network is drawn from a consensus.

    Raises:
        InputError: the file can't be read, or isn't TOML.
    """
    return bool(read_toml(path).get("topology") == SAMPLED)


def scenario_title(name: str) -> str:
    """The title of any scenario; raises as `read_scenario`."""
    path = scenario_file(name)
    return read_model(path, SampledScenario if is_sampled(path) else Scenario).title
