"""What a variant chooses with a key: the values, and what each is in torrc and consensus.

Which other keys a variant has, and how variants extend each other, is `testbed.variant`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Setting:
    """What a choice is to Tor: options of every Tor's torrc, and consensus parameters."""

    torrc: Mapping[str, list[str]] = field(default_factory=dict)
    consensus: Mapping[str, int] = field(default_factory=dict)


Settings = Mapping[str | bool, Setting]
"""What each value of a key is."""

CC_ALGS: Settings = {
    "sendme": Setting(consensus={"cc_alg": 0}),
    "vegas": Setting(consensus={"cc_alg": 2}),
}
"""Congestion control of circuits: a fixed window of 1000 cells, or Vegas (proposal 324).

Client and exit negotiate it for each circuit, if the consensus says so and the exit has the
subprotocol FlowCtrl=2, as every exit of this Tor does. Westwood (1) and NOLA (3) are but names in
Tor: it takes Vegas instead.
"""

SCHEDULERS: Settings = {
    name: Setting(torrc={"Schedulers": [name]}) for name in ("KIST", "KISTLite", "Vanilla")
}
"""Which connection's cells are handed to the kernel, and when. Alone in Tor's list of preferences:
a Tor that can't have it ends, instead of taking another in silence."""

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

CHOICES: Mapping[str, Settings] = {
    "cc_alg": CC_ALGS,
    "scheduler": SCHEDULERS,
    "conflux": CONFLUX,
}
"""The settings by the variant's key, then by its value."""


STREAM_RULES = ("uniform", "hashing")
"""Which of a client's parallel circuits a stream takes (MCTor); see `testbed.policies.parallel`."""

MOST_SIDE_BY_SIDE = 32
"""Circuits of a client, or connections between two relays, side by side: as many circuits as a Tor
lets be under construction at a time (MaxClientCircuitsPending), on a connection each."""


@dataclass(frozen=True)
class Number:
    """A key of a variant whose value is a number of connections or circuits side by side.

    Attributes:
        patch: without which it means nothing.
        options: of each relay's torrc, with `$number` for the key's value, by which the relays get
            to know it; none of a client's own.
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
"""By the variant's key."""


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
    """Whether the consensus asks for something else than the fixed window, in so many words."""
    return "cc_alg" in consensus_params and not has_fixed_window(consensus_params)
