"""The keys by which a variant chooses: their values, and each value in torrc and consensus.

Which other keys a variant has is `testbed.asked.variant_file`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

TorrcLines = dict[str, list[str]]
"""torrc options as they will be written: each option's values, one line a value."""

SharedLinkPremise = Literal["one connection", "one connection per circuit"]
"""The connections that the shared link's two relays must have while a run measures."""


@dataclass(frozen=True)
class Setting:
    """A choice as Tor has it: options in every Tor's torrc, and consensus parameters."""

    torrc: Mapping[str, list[str]] = field(default_factory=dict)
    consensus: Mapping[str, int] = field(default_factory=dict)


Settings = Mapping[str | bool, Setting]
"""The setting of each value of a key."""

CC_ALGS: Settings = {
    "sendme": Setting(consensus={"cc_alg": 0}),
    "vegas": Setting(consensus={"cc_alg": 2}),
}
"""Congestion control of circuits: a fixed window of 1000 cells, or Vegas (proposal 324).

Client and exit negotiate it for each circuit, if the consensus says so and the exit has the
subprotocol FlowCtrl=2, as every exit of this Tor does. Westwood (1) and NOLA (3) are only names
in Tor, which uses Vegas instead.
"""

SCHEDULERS: Settings = {
    name: Setting(torrc={"Schedulers": [name]}) for name in ("KIST", "KISTLite", "Vanilla")
}
"""Schedulers, which decide on the connection whose cells go to the kernel next. Each is alone in
Tor's list of preferences, so a Tor that lacks it exits instead of silently taking another."""

CONFLUX: Settings = {
    False: Setting(),
    True: Setting(
        torrc={"ConfluxEnabled": ["1"]},
        consensus={
            "cfx_num_legs_set": 2,
            # One set for each client, as it has one circuit otherwise.
            "cfx_max_linked_set": 1,
            "cfx_max_prebuilt_set": 1,
            # A leg fails where the topology has no link for it, and Tor gives up after three.
            "cfx_max_unlinked_leg_retry": 255,
        },
    ),
}
"""Linked sets of two circuits that share their streams' cells (proposal 329)."""

CGO: Settings = {
    True: Setting(),
    False: Setting(torrc={"WithoutCounterGaloisOnion": ["1"]}),
}
"""Counter Galois Onion (proposal 359): another relay encryption, with other relay cells.

A Tor from 0.4.9 on asks for it wherever it asks for congestion control, and a relay refuses it
elsewhere (`negotiate_v3_ntor_server_circ_params` in Tor 0.4.9's onion_crypto.c). Without it only by
`CGO_PATCH`, as Tor has no option of its own for it."""

CGO_PATCH = "without-cgo.patch"
FIRST_WITH_CGO = (0, 4, 9)
"""The first series of Tor that has it."""

LEGS = 2
"""The number of circuits in a linked set."""

GUARDS_PARAMETER = "guard-n-primary-guards-to-use"

GUARD_PARAMETERS: Mapping[str, int] = {
    "guard-n-primary-dir-guards-to-use": 2,
    GUARDS_PARAMETER: 2,
}
"""How many guards a client with entry guards uses: as in the consensus of 2026-04-18, 23:00 UTC."""

CHOICES: Mapping[str, Settings] = {
    "cc_alg": CC_ALGS,
    "scheduler": SCHEDULERS,
    "conflux": CONFLUX,
    "cgo": CGO,
}
"""The settings by the variant's key, then by its value."""


STREAM_RULES = ("uniform", "hashing")
"""The rules for a stream's choice of a parallel circuit (MCTor); see `inside.policies.parallel`."""

FIRST_RELAYS = ("drawn", "heaviest")
"""Which relays have a variant that only some have: drawn by the seed, or those of most weight."""

MOST_SIDE_BY_SIDE = 32
"""The most parallel circuits of a client, or connections between two relays: as many circuits as a
Tor builds at a time (MaxClientCircuitsPending), with a connection for each."""


@dataclass(frozen=True)
class Number:
    """A key of a variant whose value is a number of connections or circuits side by side.

    Attributes:
        patch: the patch without which the key has no meaning.
        options: lines for each relay's torrc, with `$number` in place of the key's value; empty if
            only clients need the number.
    """

    patch: str
    options: Mapping[str, str] = field(default_factory=dict)


NUMBERS: Mapping[str, Number] = {
    "connections_per_pair": Number(
        "connections-per-pair.patch",
        {"ConnectionsPerPair": "$number", "PerCircuitConnections": "0"},
    ),
    "per_circuit_up_to": Number(
        "connections-per-pair.patch",
        {"ConnectionsPerPair": "$number", "PerCircuitConnections": "1"},
    ),
    "parallel_circuits": Number("per-circuit-connections.patch"),
}
"""The numbers by the variant's key."""


PLAIN_CONNECTIONS, PLAIN_CONNECTIONS_TO = "PlainRelayConnections", "PlainRelayConnectionsTo"
"""torrc options: relays' connections to each other have no TLS; and to which relays only."""

CONGESTION_CONTROL_OPTION = "__AlwaysCongestionControl"
"""An option that a Tor knows if and only if it has congestion control of circuits (0.4.7)."""


def torrc_options(key: str) -> set[str]:
    """The torrc options that a key sets, whatever its value."""
    return {option for setting in CHOICES[key].values() for option in setting.torrc}


def consensus_parameters(key: str) -> set[str]:
    """The consensus parameters that a key sets, whatever its value."""
    return {name for setting in CHOICES[key].values() for name in setting.consensus}


def has_fixed_window(consensus_params: Mapping[str, int]) -> bool:
    """Whether circuits have the fixed window; without `cc_alg` they have Vegas, Tor's default.

    A Tor without congestion control (before 0.4.7) has the fixed window in any case.
    """
    return CC_ALGS["sendme"].consensus.items() <= consensus_params.items()


def asks_for_congestion_control(consensus_params: Mapping[str, int]) -> bool:
    """Whether the consensus explicitly asks for something other than the fixed window."""
    return "cc_alg" in consensus_params and not has_fixed_window(consensus_params)
