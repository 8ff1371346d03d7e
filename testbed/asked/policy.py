"""Which policy a scenario's [paths] asks for, with what it needs, as a plan has it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.asked.scenario import AnyScenario, PathsKeys
from testbed.asked.variant import Variant
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, shown
from testbed.inside.policies.reading import read_policy
from testbed.inside.policies.selection import RULES
from testbed.plan.malicious import lying_relays
from testbed.plan.model import FIXED, TOR, PlannedPolicy
from testbed.plan.network import Node

PROBE_INTERVAL_S = 5.0
"""The time between two probes of a circuit, unless the scenario says it."""
KINDS = {"build": "build", "streams": "stream", "probe": "probe"}
"""A plan's word for the round trips, by the scenario's."""

STREAM_RULE = "circuitstreamrule"
"""The torrc option of `circuit-stream-rule.patch`, in lower case."""
_OWN_CHOICE = ("entry_guards", "learn_timeouts")
_OF_RULES = {
    "circuits": "circuits",
    "round_trips": "round_trips",
    "probe_interval_s": "probe_interval",
    "close_unused_s": "close_unused",
    "liars": "liars",
    "liars_hide": "liars_hide",
}
"""The scenario's keys that only rules have, by their fields in `PathsKeys`."""


def planned_policy(scenario: AnyScenario, file: Path, default: str) -> PlannedPolicy:
    """The policy that decides on circuits, as a scenario says.

    Args:
        default: the policy unless the scenario names one: `TOR` in a drawn network.

    Raises:
        InputError: there is no such policy, or it can't have one of the keys.
    """
    paths, drawn = scenario.paths, default == TOR
    name = paths.policy or default
    of_rule = (name in RULES and name != TOR) or (name == TOR and paths.circuits is not None)
    own_choice = _own_choice(paths, file, name, drawn=drawn, tor_chooses=of_rule or name == TOR)
    if of_rule:
        return PlannedPolicy(
            name=name, rule=name, **own_choice, **_of_rule(paths, file, name, drawn)
        )
    known = name in (FIXED, TOR)
    policy = PlannedPolicy(name=name, **own_choice) if known else read_policy(name, file)
    for field, key in _OF_RULES.items():
        if (value := getattr(paths, field)) is not None:
            more = "beside paths.circuits " if name == TOR else ""
            raise InputError(
                f"{label(file)}: paths.{key} = {shown(value)}: paths.policy = {shown(name)} doesn't"
                f" have it; rules do {more}({', '.join(RULES)})"
            )
    return policy


def check_circuits(tor: Variant, policy: PlannedPolicy, file: Path) -> None:
    """Refuse a variant and a policy that both decide on a client's circuits."""
    if tor.conflux and (policy.text is not None or policy.rule is not None):
        raise InputError(
            f"{label(file)}: {tor.name} has conflux = true, where Tor builds each client's linked"
            f" sets itself, but paths.policy = {shown(policy.name)} decides on circuits: leave out"
            " one of them"
        )
    if tor.parallel_circuits > 1 and policy.name != FIXED:
        raise InputError(
            f"{label(file)}: {tor.name} has parallel_circuits = {tor.parallel_circuits}, which take"
            f' the topology\'s paths (paths.policy = "{FIXED}"), but paths.policy ='
            f" {shown(policy.name)} decides on circuits: leave out one of them"
        )
    if not policy.is_tors and any(one.lower() == STREAM_RULE for one in tor.torrc_client):
        raise InputError(
            f"{label(file)}: {tor.name} has a rule by which Tor puts streams on circuits, but"
            f" paths.policy = {shown(policy.name)} does that: take {shown(TOR)}, which drawn"
            " networks have by default"
        )


def _own_choice(
    paths: PathsKeys, file: Path, name: str, *, drawn: bool, tor_chooses: bool
) -> dict[str, Any]:
    """Whether clients have entry guards and learn timeouts; InputError if they can't.

    Both hold in a drawn network unless the scenario says otherwise. A topology has no weights by
    which guards and build times could be expected.
    """
    given = {key: getattr(paths, key) for key in _OWN_CHOICE}
    for key, value in given.items():
        if value and not tor_chooses:
            raise InputError(
                f"{label(file)}: paths.{key} = true, but paths.policy = {shown(name)} says which"
                f' relays a circuit has: leave it out, or take "{TOR}"'
            )
    if given["learn_timeouts"] and not drawn:
        raise InputError(
            f"{label(file)}: paths.learn_timeouts = true: which build times a client has learned"
            " follows from a drawn network's weights, which a topology lacks: leave it out"
        )
    return {key: tor_chooses and drawn if value is None else value for key, value in given.items()}


def _of_rule(paths: PathsKeys, file: Path, name: str, drawn: bool) -> dict[str, Any]:
    """What a rule has beside its name; InputError if it can't do with that."""
    rule, of = RULES[name], f"{label(file)}: paths.policy = {shown(name)}"
    if not drawn:
        raise InputError(
            f"{of}: a rule chooses among circuits whose relays Tor chose, but in a topology Tor"
            " also chooses relays to which a client has no link, and can't launch the circuit: take"
            ' a network with topology = "sampled"'
        )
    round_trips = paths.round_trips or "streams"
    if rule.of_congestion and round_trips == "build":
        raise InputError(
            f'{of} compares congestion times, but with paths.round_trips = "build" a circuit has a'
            ' single round trip, whose congestion time is 0: take "streams" or "probe"'
        )
    if paths.round_trips and not rule.of_round_trips:
        raise InputError(
            f"{label(file)}: paths.round_trips = {shown(round_trips)}: the rule {shown(name)} goes"
            " by no round trips: leave it out"
        )
    if paths.probe_interval_s and round_trips != "probe":
        raise InputError(
            f"{label(file)}: paths.probe_interval: nothing is probed with paths.round_trips ="
            f' {shown(round_trips)}: leave it out, or take "probe"'
        )
    if paths.liars_hide is not None and not paths.liars:
        raise InputError(
            f"{label(file)}: paths.liars_hide: no relay lies: leave it out, or write for example"
            ' paths.liars = "10 %"'
        )
    probe_interval_s = paths.probe_interval_s or PROBE_INTERVAL_S
    return {
        "circuits": paths.circuits,
        "round_trips": KINDS[round_trips],
        "probe_interval_s": probe_interval_s if round_trips == "probe" else None,
        **({"close_unused_s": paths.close_unused_s} if paths.close_unused_s else {}),
        **({} if paths.liars_hide is None else {"liars_hide": paths.liars_hide}),
    }


def with_liars(
    policy: PlannedPolicy, paths: PathsKeys, relays: Iterable[Node], seed: int
) -> PlannedPolicy:
    """The policy with the relays of a drawn network that lie about round trips."""
    weights = {relay.name: relay.weight or 0 for relay in relays}
    liars = lying_relays(weights, paths.liars or 0.0, seed)
    return policy.model_copy(update={"liars": liars}) if liars else policy
