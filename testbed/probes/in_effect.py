"""Whether Tor does what a variant's keys say: congestion control, scheduler, linked circuits.

What the shared link carries is `probes.premise`'s.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import partial

from stem.control import EventType
from stem.response.events import CircuitBandwidthEvent, LogEvent

from testbed.check import Check
from testbed.choices import CONGESTION_CONTROL_OPTION, has_fixed_window
from testbed.lab.network import Lab
from testbed.plan_model import Plan
from testbed.probes.premise import none_of, probe_all_circuits
from testbed.tor.circuits import LEGS, Circuits, Leg, PolicysCircuits, linked_legs
from testbed.tor.configuration import has_weights
from testbed.tor.network import TorNetwork

LOGGING_S = 0.2
"""Tor tells what it has logged as soon as it comes to it. Hundreds of Tors log much meanwhile."""

NOT_KNOWN = "not known to this Tor"
"""Observed by a check of something that came with a later Tor."""

_SCHEDULER_BY_MESSAGE = {
    "Setting KIST scheduler with kernel support": "KIST",
    "Setting KIST scheduler without kernel support": "KISTLite",
}
"""What Tor logs each time that it has looked which scheduler to take; it is silent on Vanilla."""


async def choices_in_effect(lab: Lab, network: TorNetwork) -> list[Check]:
    """The checks of all choices, before measuring."""
    checks = [await _check_congestion_control(lab, network), await _check_scheduler(network)]
    if lab.plan.tor.conflux and lab.plan.paths:
        checks.append(check_linked_sets(lab.plan, network, "before"))
    return checks


def weights_in_effect(plan: Plan, network: TorNetwork) -> Iterator[Check]:
    """Whether the consensus has the plan's weights, and the bandwidth weights that follow.

    As the first client has it. Without weights in the plan there is nothing to check.
    """
    if not has_weights(plan):
        return
    relays = plan.of_kind("relay")
    controller = network[plan.clients[0]].controller
    seen = {status.fingerprint: status.bandwidth for status in controller.get_network_statuses()}
    wrong = [
        f"{relay.name} weighs {weight}, not {relay.weight}"
        for relay in relays
        if (weight := seen.get(network.fingerprints[relay.name])) != relay.weight
    ]
    yield none_of("relays with another weight in the consensus", wrong)
    consensus = controller.get_info("dir/status-vote/current/consensus-microdesc")
    found = re.search(r"^bandwidth-weights (.+)$", consensus, re.MULTILINE)
    told = found[1].split() if found else []
    weights = {name: int(value) for name, value in (one.split("=") for one in told)}
    expected = plan.bandwidth_weights
    yield Check(
        name="bandwidth weights in the consensus",
        expected=_said(expected),
        observed=_said(weights),
        ok=weights == expected,
        value=dict(weights),
        bound=expected,
    )


def _said(weights: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in weights.items()) or "none"


async def _check_congestion_control(lab: Lab, network: TorNetwork) -> Check:
    """Whether the clients' circuits have negotiated what the consensus asks for.

    A client tells of a circuit's congestion window (CIRC_BW in the control-spec) if and only if
    it and the exit have agreed on congestion control for that circuit. A Tor that knows no
    congestion control would tell of none either way, so that nothing is judged by that.
    """
    name = "clients whose circuit has congestion control"
    clients = set(lab.plan.clients)
    if not network.knows(CONGESTION_CONTROL_OPTION):
        return Check(name=name, expected=f"0 of {len(clients)}", observed=NOT_KNOWN, ok=None)
    with_window: set[str] = set()

    def on_bandwidth(client: str, event: CircuitBandwidthEvent) -> None:
        if "CWND" in event.keyword_args:
            with_window.add(client)

    listeners = {client: partial(on_bandwidth, client) for client in clients}
    for client, listener in listeners.items():
        network[client].controller.add_event_listener(listener, EventType.CIRC_BW)
    await probe_all_circuits(lab, network)
    for client, listener in listeners.items():
        network[client].controller.remove_event_listener(listener)
    expected = set() if has_fixed_window(lab.plan.tor.consensus_params) else clients
    return Check(
        name=name,
        expected=f"{len(expected)} of {len(clients)}",
        observed=f"{len(with_window)} of {len(clients)}",
        ok=with_window == expected,
    )


async def _check_scheduler(network: TorNetwork) -> Check:
    """Whether each Tor has the first scheduler of its list: it takes another without a word."""
    wanted = {
        name: tor.controller.get_conf("Schedulers").split(",")[0]
        for name, tor in network.tors.items()
    }
    seen = dict.fromkeys(network.tors, "Vanilla")

    def on_log(name: str, event: LogEvent) -> None:
        for message, scheduler in _SCHEDULER_BY_MESSAGE.items():
            if message in event.message:
                seen[name] = scheduler

    listeners = {name: partial(on_log, name) for name in network.tors}
    for name, tor in network.tors.items():
        tor.controller.add_event_listener(listeners[name], EventType.INFO)
        # Any setting, also one that changes nothing, makes Tor look which scheduler to take.
        tor.controller.set_conf("TestingEnableCellStatsEvent", "0")
    await asyncio.sleep(LOGGING_S)
    for name, tor in network.tors.items():
        tor.controller.remove_event_listener(listeners[name])
    others = [f"{name}: {seen[name]}" for name in wanted if seen[name] != wanted[name]]
    expected = ", ".join(sorted(set(wanted.values())))
    return Check(
        name="scheduler", expected=expected, observed="; ".join(others) or expected, ok=not others
    )


def check_linked_sets(plan: Plan, network: TorNetwork, when: str) -> Check:
    """Whether every client has one linked set, of legs that share the exit and nothing before."""
    wrong = [
        f"{client}: {', '.join(map(str, legs)) or 'none'}"
        for client, path in plan.paths.items()
        if not _is_sound_set(legs := linked_legs(network[client]), network.fingerprints[path[-1]])
    ]
    return Check(
        name=f"linked sets {when} measuring",
        expected=f"one for each client, {LEGS} legs by guards and middles of their own",
        observed="; ".join(wrong) or "so",
        ok=not wrong,
    )


def check_spread(plan: Plan, circuits: Circuits) -> Check:
    """Whether each client's streams were spread over its circuits in turn, if that is the rule.

    That each stream ran on the circuit of its rule is a check of its own (streams on other
    circuits). A stream that was not opened may be missing on any of them.
    """
    uniform = plan.tor.stream_rule == "uniform"
    spread, wrong = [], []
    for each in circuits:
        assert isinstance(each, PolicysCircuits)
        counts = [each.opened[circuit.number] for circuit in each.circuits()]
        spread.append(f"{each.client}: {' '.join(map(str, counts))}")
        unopened = each.given.total() - each.opened.total()
        if max(counts, default=0) - min(counts, default=0) > 1 + unopened:
            wrong.append(each.client)
    return Check(
        name="streams on each circuit",
        expected="as many on each, or one more" if uniform else "as addresses and ports have it",
        observed="; ".join(spread),
        ok=not wrong if uniform else None,
    )


def _is_sound_set(legs: list[Leg], exit_fingerprint: str) -> bool:
    before_exit = [hop for leg in legs for hop in leg.hops[:-1]]
    return (
        len(legs) == LEGS
        and len({leg.set_id for leg in legs}) == 1
        and {leg.hops[-1] for leg in legs} == {exit_fingerprint}
        and len(set(before_exit)) == len(before_exit)
    )
