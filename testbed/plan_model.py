"""The plan of a run as plain data: nodes, links, clients, policy, Tor, and all else a run needs.

How it comes about is `testbed.plan`'s; versions of programs and the machine are the manifest's.
"""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from testbed.choices import CONFLUX, STREAM_RULES
from testbed.network import model as network
from testbed.plan_identity import identity
from testbed.plan_older import in_todays_form
from testbed.toml_file import PROJECT, Value
from testbed.variant import SharedLinkPremise, TorrcLines

FIXED, TOR = "fixed", "tor"
"""Policies: the circuits of the plan's paths, or whatever Tor builds and takes by itself."""


class PlanPart(BaseModel):
    """A part of a plan: plain data that nothing changes; other versions' keys are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(network.Node):
    """A host with its addresses, or a site's router.

    Attributes:
        role: by what name a scenario's keys mean it: one of a topology's roles, otherwise the kind.
        address: on the emulated links, out of 10.0.0.0/8; an authority has none.
        management_address: on the management network, out of 10.1.0.0/16; a server and a router
            have none.
    """

    role: str
    address: str | None
    management_address: str | None


class Link(network.Link):
    """An emulated link.

    Attributes:
        ends: the two nodes; in a topology the one on the client's side first.
        roles: the roles of the ends, in the same order.
        there, back: what each direction does.
        netem_seeds: the seeds of the loss in the direction away from the first and from the
            second end. They depend on the run's seed and the ends only, so that every variant
            meets the same sequence of losses.
    """

    roles: tuple[str, str]
    netem_seeds: tuple[int, int]

    @property
    def is_way(self) -> bool:
        """Whether it is a way between two sites, and so has no interfaces of its own."""
        return self.roles == ("router", "router")


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


class TgenProgram(PlanPart):
    """A traffic generator of the user's own, which plays both ends of every transfer."""

    path: str = ""
    sha256: str


class PlannedPolicy(PlanPart):
    """Who decides which circuits a client has, and which of them carries a stream.

    Attributes:
        name: one of `testbed.policies.NAMES`, or the name of the user's file.
        entry_guards: whether clients keep to a few guards (`UseEntryGuards`).
        text: of the user's file. (Not "source": guests aren't told what lies where on a host.)
    """

    name: str = FIXED
    entry_guards: bool = False
    text: str | None = None


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
        links: those between two routers are ways that packets take from site to site.
        paths: guard, middle and exit of each client's circuit, where the topology says them.
        shared_link: the nodes at the ends of the link that all circuits cross, if there is one.
        watched: the pairs of relays that the scenario names; None where it says nothing of it.
        relay_rates: the share of its rate that each relay of a drawn network has; None for all.
        bandwidth_weights: those that follow from the relays' weights, and must be in the consensus.
        server_by_client: the server of each client; of a client that isn't there, the first one.
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
    paths: dict[str, tuple[str, str, str]] = {}
    shared_link: tuple[str, str] | None = None
    watched: tuple[tuple[str, str], ...] | None = None
    relay_rates: float | None = None
    policy: PlannedPolicy = PlannedPolicy()
    bandwidth_weights: dict[str, int] = {}
    server_by_client: dict[str, str] = {}
    traffic_by_client: dict[str, str]
    congestion_control: dict[str, str]
    competing: tuple[Competing, ...]
    tor: Tor
    tgen: TgenProgram | None = None
    changes: dict[str, Value] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_version(cls, data: Any) -> Any:  # noqa: ANN401
        return in_todays_form(data)

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

    @property
    def clients(self) -> list[str]:
        """The clients' names."""
        return [node.name for node in self.of_kind("client")]

    def node(self, name: str) -> Node:
        """The node of that name; KeyError if there is none."""
        return self._node_by_name[name]

    @cached_property
    def _node_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def of_kind(self, *kinds: network.Kind) -> list[Node]:
        """The nodes of these kinds, in the plan's order."""
        return [node for node in self.nodes if node.kind in kinds]

    @property
    def watched_pairs(self) -> list[tuple[str, str]]:
        """The pairs of relays whose connections are sampled: the shared link's, and those named."""
        shared = [self.shared_link] if self.shared_link else []
        return list(dict.fromkeys((*shared, *(self.watched or ()))))

    @property
    def watched_relays(self) -> list[str]:
        """The relays of which is recorded what they hold: those of the pairs, or else all."""
        ends = {relay for pair in self.watched_pairs for relay in pair}
        relays = [relay.name for relay in self.of_kind("relay")]
        return relays if self.watched is None else [relay for relay in relays if relay in ends]

    @property
    def relays_with_queues(self) -> list[str]:
        """The relays whose queues are recorded: those watched, or that before the shared link."""
        if self.shared_link and self.watched is None:
            return [self.shared_link[1]]
        return self.watched_relays

    def server_of(self, client: str) -> str:
        """The name of a client's server."""
        return self.server_by_client.get(client) or self.of_kind("server")[0].name

    def nodes_with(self, *roles: str) -> list[Node]:
        """The nodes of these roles."""
        return [node for node in self.nodes if node.role in roles]

    def links_between(self, role: str, other_role: str) -> list[Link]:
        """The links between two roles, in whichever order they are given."""
        return [link for link in self.links if set(link.roles) == {role, other_role}]
