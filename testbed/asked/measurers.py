"""The plan by which the relays of a drawn network are measured: measurers instead of clients."""

from collections.abc import Mapping, Sequence

from testbed.asked.plans import make_plan, planned_patch
from testbed.asked.scenario import SAMPLED, is_sampled, scenario_file
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.basics.errors import InputError
from testbed.basics.seeds import derived_seed
from testbed.basics.toml_file import Value, label
from testbed.plan.model import Plan, PlannedLink, PlannedNode

PATCH = TOR_CONFIGS / "patches" / "measured.patch"
"""The patch of Tor by which relays can be measured."""

MEASURER = "measurer"


def measuring_plan(
    scenario: str,
    rates_bit_per_s: Sequence[int],
    *,
    seed: int,
    changes: Mapping[str, Value] | None = None,
    clients: int = 0,
    ratio: float | None = None,
) -> Plan:
    """Plan a network with these measurers, which are where its first clients would be.

    Args:
        scenario: the name or file of a scenario whose network is drawn.
        rates_bit_per_s: each measurer's rate, up and down.
        changes: values instead of those in the scenario's file, by dotted keys.
        clients: how many have traffic while relays are measured, with the scenario's shares of
            traffic and its way of choosing paths.
        ratio: r, the largest share of a measured relay's traffic that may be its clients';
            None for the patch's own (25 %).

    Raises:
        InputError: the scenario can't be run, or its network isn't drawn.
    """
    plan = _with_measurers(scenario, rates_bit_per_s, seed, changes, clients)
    tor = plan.tor.model_copy(
        update={
            "patches": (*plan.tor.patches, planned_patch(PATCH)),
            "torrc_relay": {**plan.tor.torrc_relay, **_torrc(seed, ratio)},
        }
    )
    return plan.model_copy(update={"tor": tor})


def scanning_plan(
    scenario: str,
    rate_bit_per_s: int,
    *,
    seed: int,
    changes: Mapping[str, Value] | None = None,
    clients: int = 0,
) -> Plan:
    """Plan a network with one measurer, whose Tor client downloads through the relays.

    Relays count what they carry, as they do where addresses are public.

    Args:
        rate_bit_per_s: the measurer's rate, up and down.

    For the others and the errors see `measuring_plan`.
    """
    plan = _with_measurers(scenario, [rate_bit_per_s], seed, changes, clients)
    counting = {**plan.tor.torrc_relay, "CountPrivateBandwidth": ["1"]}
    return plan.model_copy(update={"tor": plan.tor.model_copy(update={"torrc_relay": counting})})


def _with_measurers(
    scenario: str,
    rates_bit_per_s: Sequence[int],
    seed: int,
    changes: Mapping[str, Value] | None,
    clients: int,
) -> Plan:
    """The plan of a drawn network with measurers; see `measuring_plan`."""
    _check_is_drawn(scenario)
    smaller: dict[str, Value] = {"network.clients": len(rates_bit_per_s) + clients}
    if not clients:
        smaller["network.servers"] = 1
        smaller["paths.entry_guards"] = smaller["paths.learn_timeouts"] = False
    plan = make_plan(scenario, "vanilla", seed=seed, changes={**(changes or {}), **smaller})
    rates = dict(zip(plan.clients, rates_bit_per_s, strict=False))
    names = {client: f"{MEASURER}{number}" for number, client in enumerate(rates, 1)}
    return plan.model_copy(
        update={
            "nodes": tuple(_node(node, names, rates) for node in plan.nodes),
            "links": tuple(_link(link, names, rates) for link in plan.links),
            "server_by_client": _renamed(plan.server_by_client, names),
            "traffic_by_client": {
                one: of for one, of in plan.traffic_by_client.items() if one not in names
            },
            "congestion_control": _renamed(plan.congestion_control, names),
        }
    )


def _check_is_drawn(scenario: str) -> None:
    """Refuse a scenario whose network isn't drawn."""
    file = scenario_file(scenario)
    if not is_sampled(file):
        raise InputError(
            f"{label(file)}: its clients reach one relay each, and measurers must reach all of"
            f' them: take a scenario with topology = "{SAMPLED}", such as SmallNetwork'
        )


def _renamed(by_node: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {names.get(node, node): value for node, value in by_node.items()}


def _torrc(seed: int, ratio: float | None) -> dict[str, list[str]]:
    """The options of relays that can be measured."""
    lines = {"MeasurementKey": [measurement_key(seed)]}
    if ratio is not None:
        lines["MeasurementBackground"] = [f"{100 * ratio:.0f}"]
    return lines


def measurement_key(seed: int) -> str:
    """What a network's measurers must know."""
    return f"{derived_seed(seed, 'measurement key'):016x}"


def _node(node: PlannedNode, names: Mapping[str, str], rates: Mapping[str, int]) -> PlannedNode:
    if node.name not in names:
        return node
    rate = rates[node.name]
    of_measurer = {"rate_up_bit_per_s": rate, "rate_down_bit_per_s": rate}
    return node.model_copy(update={"name": names[node.name], **of_measurer})


def _link(link: PlannedLink, names: Mapping[str, str], rates: Mapping[str, int]) -> PlannedLink:
    host, router = link.ends
    if host not in names:
        return link
    there, back = (
        shape.model_copy(update={"rate_bit_per_s": rates[host]})
        for shape in (link.there, link.back)
    )
    return link.model_copy(update={"ends": (names[host], router), "there": there, "back": back})
