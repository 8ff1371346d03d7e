"""The stages in which a Tor network starts, each with the condition that ends it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from stem import DescriptorUnavailable

from testbed.inside.tor.configuration import has_weights
from testbed.inside.tor.control import ControlConnection
from testbed.inside.tor.network import TorNetwork
from testbed.inside.waiting import wait_until
from testbed.plan.model import Plan, PlannedNode

PUBLICATION_TIMEOUT_S = 120.0
CONSENSUS_TIMEOUT_S = 200.0
"""The first vote is held within a moment of `let_vote`; a second one would come later than this,
and a consensus that lacks a relay means that something is wrong with that relay."""
KNOWLEDGE_TIMEOUT_S = 300.0
"""A relay asks for the consensus from its start, at growing intervals while there is none."""
FIRST_VOTE_INTERVAL_S = 20
"""Intervals begin at whole multiples of this on the Unix clock; by the delays in the authority's
torrc, the vote is held 12 s later."""
LATEST_CALL_S = 4
"""How long after an interval's beginning its vote can still be set."""
FLAGS = {"guard": "Guard", "exit": "Exit"}
FLAGS_OF_ALL = {"Running", "Valid"}
"""The flags that each relay must have in the consensus before a client starts. Not Stable: in real
time a relay that starts a second after the others is not, and no circuit of ours needs it."""
FLAG_WITHOUT_WEIGHTS = "Fast"
"""Equal weights make all relays Fast; otherwise the authorities decide."""
Question = Callable[[], object]
"""A function whose result is true once something is there."""


def _still_missing(pending: list[tuple[Question, str]]) -> Iterator[str]:
    """The first thing that isn't there yet; what is there is removed, and not asked about again."""
    while pending:
        is_there, name = pending[0]
        if not is_there():
            yield name
            return
        del pending[0]


def write_weights(plan: Plan, network: TorNetwork) -> None:
    """Give the authorities the relays' weights, as scanners do (bandwidth-file-spec 1.0)."""
    if not has_weights(plan):
        return
    lines = [f"{int(time.time())}\n"]
    for relay in plan.of_kind("relay"):
        lines.append(f"node_id=${network.fingerprints[relay.name]} bw={relay.weight}\n")
    for authority in plan.here("authority"):
        network[authority.name].files.bandwidths.write_text("".join(lines))


def let_vote(fingerprints: Mapping[str, str], authorities: Sequence[ControlConnection]) -> None:
    """Wait until the authorities know all relays, and let them hold their first vote soon after.

    Not at once: they count a relay as running only after a connection to it.
    """
    pending: list[tuple[Question, str]] = [
        (
            partial(authority.get_info, f"desc/id/{fingerprint}", ""),
            f"{relay}'s descriptor at the authority",
        )
        for authority in authorities
        for relay, fingerprint in fingerprints.items()
    ]
    missing = partial(_still_missing, pending)
    wait_until(missing, PUBLICATION_TIMEOUT_S, "waiting for the relays")
    since_beginning_s = time.time() % FIRST_VOTE_INTERVAL_S
    if since_beginning_s > LATEST_CALL_S:
        time.sleep(FIRST_VOTE_INTERVAL_S - since_beginning_s)
    for authority in authorities:
        authority.set_conf("TestingV3AuthInitialVotingInterval", f"{FIRST_VOTE_INTERVAL_S} seconds")


def wait_for_consensus(plan: Plan, network: TorNetwork, authority: ControlConnection) -> None:
    """Wait until the consensus lists every relay with the flags of its role."""

    def missing() -> Iterator[str]:
        try:
            listed = {
                status.fingerprint: set(status.flags) for status in authority.get_network_statuses()
            }
        except DescriptorUnavailable:
            yield "a consensus"
            return
        for relay in plan.of_kind("relay"):
            wanted = FLAGS_OF_ALL | {FLAGS[flag] for flag in relay.flags}
            if not has_weights(plan):
                wanted.add(FLAG_WITHOUT_WEIGHTS)
            flags = wanted - listed.get(network.fingerprints[relay.name], set())
            if flags:
                yield f"{relay.name} with the flags {' '.join(sorted(flags))} in the consensus"

    wait_until(missing, CONSENSUS_TIMEOUT_S, "waiting for the consensus")


def wait_for_knowledge(plan: Plan, network: TorNetwork) -> None:
    """Wait until every relay and client here has the consensus and every relay's descriptor.

    A relay that doesn't know its neighbour refuses the streams that come from it, and an exit that
    hasn't made its own descriptor yet refuses all streams.
    """
    pending: list[tuple[Question, str]] = [
        (
            partial(_knows, network[node.name].controller, _others(network, node)),
            f"{node.name}'s descriptors of the relays",
        )
        for node in plan.here("relay", "client")
    ]
    pending += [
        (partial(_has_exit_policy, network[relay.name].controller), f"{relay.name}'s descriptor")
        for relay in plan.here("relay")
    ]
    missing = partial(_still_missing, pending)
    wait_until(missing, KNOWLEDGE_TIMEOUT_S, "waiting for descriptors")


def _has_exit_policy(relay: ControlConnection) -> bool:
    """Whether a relay has made its own descriptor, which has its exit policy."""
    return relay.get_info("exit-policy/full", None) is not None


def _others(network: TorNetwork, node: PlannedNode) -> list[str]:
    """The fingerprints of all relays but the node itself."""
    return [one for relay, one in network.fingerprints.items() if relay != node.name]


def _knows(controller: ControlConnection, fingerprints: Sequence[str]) -> bool:
    """Whether a Tor has the descriptors of all these relays.

    One question for all of them, as most of the time it has all or none.
    """
    return bool(controller.get_info([f"md/id/{one}" for one in fingerprints], {}))
