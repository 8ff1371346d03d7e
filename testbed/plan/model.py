"""The plan of a run as plain data: nodes, links, clients, policy, Tor, and all else a run needs.

`asked.plans` makes it; versions of programs and the machine are in the manifest.
"""

import hashlib
import json
from functools import cached_property
from itertools import pairwise
from operator import not_
from typing import Any, Literal

from pydantic import Field, model_validator

from testbed.basics.toml_file import Value
from testbed.plan.choices import (
    GUARDS_PARAMETER,
)
from testbed.plan.identity import identity
from testbed.plan.network import Kind, Link, Node
from testbed.plan.older import in_todays_form
from testbed.plan.processor import Processor
from testbed.plan.programs import PlanPart, TgenProgram, Tor

Pair = tuple[str, str]

LEAST_SAMPLE_INTERVAL_S = 0.5
MOST_SAMPLES_PER_S = 16.0
"""The most samples of all relays together."""

FIXED, TOR = "fixed", "tor"
"""Policies: circuits along the plan's paths, or those that Tor builds and uses by itself."""


OWN_THIRD = 1 / 3
"""The waiting at one of a circuit's three relays, if it is the same at all."""


class PlannedNode(Node):
    """A host with its addresses, or a site's router.

    Attributes:
        role: its name in a scenario's keys: one of a topology's roles, otherwise the kind.
        address: on the emulated links, in 10.0.0.0/8; an authority has none.
        management_address: on the management network, in 10.1.0.0/16; a server and a router
            have none.
        processor: None: its programs compute for nothing.
    """

    role: str
    address: str | None
    management_address: str | None
    processor: Processor | None = None


class PlannedLink(Link):
    """An emulated link.

    Attributes:
        ends: the two nodes; in a topology the one on the client's side first.
        roles: the roles of the ends, in the same order.
        there, back: the shape of each direction.
        netem_seeds: the seeds of the loss in the direction away from the first and from the
            second end. They depend only on the run's seed and the ends, so every variant meets
            the same sequence of losses.
    """

    roles: tuple[str, str]
    netem_seeds: tuple[int, int]

    @property
    def is_way(self) -> bool:
        """Whether it is a way between two sites, which has no interfaces of its own."""
        return self.roles == ("router", "router")


class Competing(PlanPart):
    """TCP streams beside the circuits, all from one node to another along a route of nodes.

    Attributes:
        rate_bit_per_s: a stream's highest rate; None: unlimited.
        port: the receiver's.
        stream_ports: the sender's, one for each stream; iperf3's control connection has another.
    """

    sender: str
    receiver: str
    route: tuple[str, ...]
    streams: int
    congestion_control: str
    rate_bit_per_s: int | None = None
    port: int
    stream_ports: tuple[int, ...]


class PlannedPolicy(PlanPart):
    """The policy that decides on a client's circuits, and on the circuit of each stream.

    Attributes:
        name: "fixed", "tor", or the name of the user's file.
        entry_guards: whether clients keep to a few guards (`UseEntryGuards`).
        learn_timeouts: whether they give up circuits that are slower than most of those before,
            (`LearnCircuitBuildTimeout`), with build times from before the run.
        text: the user's file. (Not "source", which means a path on the host.)
        rule: by which a stream gets one of the circuits that Tor has built
            (`inside.policies.selection`); None if the policy is none of these.
        circuits: how many of them are kept open at least; None: as many as Tor keeps.
        round_trips: which of a circuit's round trips the rule goes by: "build", "stream", "probe".
        probe_interval_s: the time between two probes of a circuit; None without probes.
        close_unused_s: after which time a circuit without a stream is closed.
        liars: the relays that lie about round trips (`inside.tor.liars`).
        liars_hide: the share of the waiting in a round trip that each of them on it hides.
    """

    name: str = FIXED
    entry_guards: bool = False
    learn_timeouts: bool = False
    text: str | None = None
    rule: str | None = None
    circuits: int | None = None
    round_trips: Literal["build", "stream", "probe"] = "stream"
    probe_interval_s: float | None = None
    close_unused_s: float = 300.0
    liars: tuple[str, ...] = ()
    liars_hide: float = OWN_THIRD

    @property
    def is_tors(self) -> bool:
        """Whether Tor itself builds circuits and gives each stream its circuit."""
        return self.name == TOR and self.rule is None

    @property
    def tor_chooses_paths(self) -> bool:
        """Whether Tor chooses the relays of circuits."""
        return self.name == TOR or self.rule is not None


class Plan(PlanPart):
    """Everything that a run needs to know.

    Attributes:
        scenario: the file's name, and what was changed in it, such as
            "SharedDropping,links.middle-exit.loss=0.2%".
        changes: values that replace those of the scenario's file, by dotted keys.
        topology: its name, or its file's; only `nodes`, `links` and `paths` are built.
        traffic: the model of every client that has none of its own in the scenario.
        traffic_overridden: whether it differs from the model in the scenario's file.
        duration_s: how long the run measures.
        warm_up_s: how long the traffic goes on before that.
        links: those between two routers are the ways of packets from site to site.
        paths: guard, middle and exit of each client's circuit, if the topology defines them.
        watched: the pairs of relays whose connections are sampled, the clients' side first: a
            topology's shared link, and those that the scenario names.
        only_watched: whether other relays are left out of the record.
        relay_rates: the share of its rate that each relay of a drawn network gets; None: all.
        measured_weights: whether the relays' weights are from a bandwidth file, not the consensus.
        coordinates: latitude and longitude of each site in degrees, by its name, if a policy may
            need them; empty if the network has no sites.
        bandwidth_weights: those that follow from the relays' weights, and must be in the consensus.
        server_by_client: each client's server; clients that aren't listed have the first one.
        traffic_by_client, congestion_control: by the node's name.
        tgen: None for the bundled generator.
        parts: the names of each kernel's nodes, if several kernels carry it out (`plan.parts`).
        part: which of them carries out this copy of the plan.
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
    warm_up_s: float = 0.0
    nodes: tuple[PlannedNode, ...]
    links: tuple[PlannedLink, ...]
    paths: dict[str, tuple[str, str, str]] = Field(default={})
    watched: tuple[Pair, ...] = ()
    only_watched: bool = False
    relay_rates: float | None = None
    measured_weights: bool = False
    policy: PlannedPolicy = PlannedPolicy()
    coordinates: dict[str, tuple[float, float]] = Field(default={})
    bandwidth_weights: dict[str, int] = Field(default={})
    server_by_client: dict[str, str] = Field(default={})
    traffic_by_client: dict[str, str]
    congestion_control: dict[str, str]
    competing: tuple[Competing, ...]
    tor: Tor
    tgen: TgenProgram | None = None
    changes: dict[str, Value] = Field(default={})
    parts: tuple[tuple[str, ...], ...] = Field(default=(), exclude_if=not_)
    part: int = Field(default=0, exclude_if=not_)

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_version(cls, data: Any) -> Any:  # noqa: ANN401
        return in_todays_form(data)

    @property
    def unchanged_scenario(self) -> str:
        """The scenario's name without its changes."""
        return self.scenario.partition(",")[0] if self.changes else self.scenario

    @property
    def key(self) -> str:
        """The run's key: 16 hexadecimal digits of a hash over all that can change its result."""
        # Without defaults, so a plan keeps its key when plans get another field.
        content = identity(self.model_dump(mode="json", exclude_defaults=True))
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def traffic_s(self) -> float:
        """How long clients begin transfers: the warm-up, and then while the run measures."""
        return self.warm_up_s + self.duration_s

    @property
    def clients(self) -> list[str]:
        """The clients' names."""
        return [node.name for node in self.of_kind("client")]

    @property
    def processors(self) -> dict[str, Processor]:
        """The processors that take time, by their nodes."""
        return {node.name: node.processor for node in self.nodes if node.processor}

    def node(self, name: str) -> PlannedNode:
        """The node of that name; KeyError if there is none."""
        return self._node_by_name[name]

    @cached_property
    def _node_by_name(self) -> dict[str, PlannedNode]:
        return {node.name: node for node in self.nodes}

    def of_kind(self, *kinds: Kind) -> list[PlannedNode]:
        """The nodes of these kinds, in the plan's order."""
        return [node for node in self.nodes if node.kind in kinds]

    @property
    def kernels(self) -> int:
        """How many kernels carry it out."""
        return max(1, len(self.parts))

    def is_here(self, name: str) -> bool:
        """Whether this part of the plan has a node."""
        return not self.parts or name in self.parts[self.part]

    def here(self, *kinds: Kind) -> list[PlannedNode]:
        """The nodes of this part, of some kinds or of all, in the plan's order."""
        return [
            node
            for node in self.nodes
            if self.is_here(node.name) and (not kinds or node.kind in kinds)
        ]

    def circuits_across(self, pair: Pair) -> int:
        """How many of the clients' circuits go from one relay to the other by the plan's paths.

        Zero if the plan has no paths.
        """
        crossing = sum(pair in pairwise(path) for path in self.paths.values())
        return crossing * self.tor.parallel_circuits

    @property
    def crossed_pairs(self) -> list[Pair]:
        """The watched pairs that a path crosses: their connections follow from the plan."""
        return [pair for pair in self.watched if self.circuits_across(pair)]

    @property
    def shared_link(self) -> Pair | None:
        """The first watched pair that every client's path crosses; None if there is none."""
        shared = (
            pair
            for pair in self.crossed_pairs
            if all(pair in pairwise(path) for path in self.paths.values())
        )
        return next(shared, None)

    @property
    def uncrossed_pairs(self) -> list[Pair]:
        """The other watched pairs."""
        return [pair for pair in self.watched if not self.circuits_across(pair)]

    @property
    def uncrossed_interval_s(self) -> float:
        """The time between samples of the uncrossed pairs: longer if they have many relays.

        Checks need the samples of the crossed ones, which are `LEAST_SAMPLE_INTERVAL_S` apart.
        """
        relays = {relay for pair in self.uncrossed_pairs for relay in pair}
        return max(LEAST_SAMPLE_INTERVAL_S, len(relays) / MOST_SAMPLES_PER_S)

    @property
    def recorded_relays(self) -> list[str]:
        """The relays whose connections, memory and queues are recorded, in the plan's order."""
        watched = {relay for pair in self.watched for relay in pair}
        relays = [relay.name for relay in self.of_kind("relay")]
        return [relay for relay in relays if relay in watched or not self.only_watched]

    @property
    def guards_to_use(self) -> int | None:
        """At how many guards a client's circuits begin; None without entry guards.

        By `NumEntryGuards`, or else by the consensus, or else by Tor's default. A circuit that ends
        at one of them begins at the client's next guard.
        """
        if not self.policy.entry_guards:
            return None
        lines = {**self.tor.torrc_all, **self.tor.torrc_client}
        (number,) = lines.get("NumEntryGuards", ["0"])
        return int(number) or self.tor.consensus_params.get(GUARDS_PARAMETER, 1)

    def server_of(self, client: str) -> str:
        """The name of a client's server."""
        return self.server_by_client.get(client) or self.of_kind("server")[0].name

    def nodes_with(self, *roles: str) -> list[PlannedNode]:
        """The nodes of these roles."""
        return [node for node in self.nodes if node.role in roles]

    def links_between(self, role: str, other_role: str) -> list[PlannedLink]:
        """The links between two roles, given in either order."""
        return [link for link in self.links if set(link.roles) == {role, other_role}]
