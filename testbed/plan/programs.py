"""The programs of a run as the plan names them: Tor as the variant has it, and a generator."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from testbed.basics.toml_file import PROJECT
from testbed.plan.choices import (
    CONFLUX,
    PLAIN_CONNECTIONS,
    STREAM_RULES,
    SharedLinkPremise,
    TorrcLines,
)
from testbed.plan.connections import (
    ConnectionRule,
    OneConnection,
    OnePerCircuit,
    OwnUpTo,
    SharedByNumber,
)


class PlanPart(BaseModel):
    """A part of a plan: immutable plain data; keys of other versions are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Patch(PlanPart):
    """A patch to Tor; `path` is relative to the project if it lies inside, and "" in the guest."""

    name: str
    path: str = ""
    sha256: str

    def file(self) -> Path:
        """The patch's file on this machine."""
        return PROJECT / self.path


class Tor(PlanPart):
    """The variant: how Tor is built and configured, and what must hold on the shared link.

    Attributes:
        source, release: a tree of Tor's source, or a pinned release; if both are None, the default
            release.
        cgo: whether circuits have Counter Galois Onion; None if that is left to Tor.
        ipsec: whether neighbouring relays have ESP between them, without Tor's knowledge.
        connections_per_pair, per_circuit_up_to, parallel_circuits, stream_rule: as in
            `asked.variant.Variant`.
        at_relays: the relays that have `torrc_relay` and ESP; None if all have.
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
    cgo: bool | None = None
    ipsec: bool = False
    connections_per_pair: int | None = None
    per_circuit_up_to: int | None = None
    parallel_circuits: int = 1
    stream_rule: str = STREAM_RULES[0]
    at_relays: tuple[str, ...] | None = None

    def is_at(self, relay: str) -> bool:
        """Whether a relay has what the variant gives relays."""
        return self.at_relays is None or relay in self.at_relays

    def holds_between(self, opener: str, peer: str) -> bool:
        """Whether connections that one relay opens to another are as the variant has them.

        A relay opens connections without TLS only to relays that know them.
        """
        return self.is_at(opener) and (self.is_at(peer) or not self.needs_both_ends)

    @property
    def needs_both_ends(self) -> bool:
        """Whether a relay can do what the variant says only with relays that do so, too."""
        return self.ipsec or PLAIN_CONNECTIONS in self.torrc_relay

    @property
    def connection_rule(self) -> ConnectionRule:
        """How circuits share connections between two relays, which must hold in every run."""
        if self.connections_per_pair:
            return SharedByNumber(self.connections_per_pair)
        if self.per_circuit_up_to:
            return OwnUpTo(self.per_circuit_up_to)
        return OnePerCircuit() if self.premise == OnePerCircuit().words else OneConnection()

    @property
    def conflux(self) -> bool:
        """Whether each client has a linked set, built by Tor itself, instead of one circuit.

        Only the key `conflux` sets the option: a variant's own torrc lines can't.
        """
        return CONFLUX[True].torrc.items() <= self.torrc_all.items()


class TgenProgram(PlanPart):
    """The user's own traffic generator, which plays both ends of every transfer."""

    path: str = ""
    sha256: str
