"""The differences between two plans, to explain why a run is not the one that was asked for.

Plans are compared as plain data, since one may come from another version of the testbed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from testbed.plan.identity import FOLLOWS_FROM_SEED, ONLY_FOR_READERS, identity
from testbed.plan.older import in_todays_form
from testbed.plan.queue_disciplines import FIFO

_OFF = {"null", "false", "0.0", "[]", "{}", '"fifo"', '"fixed"'}
"""Values without effect, of keys that only one of two versions of the testbed has."""

_MISSING = "missing"
_MOST_NAMED = 4


def differences(
    there: Mapping[str, Any], here: Mapping[str, Any], *, but_seed: bool = False
) -> str:
    """Describe what differs between two plans and can change a result; empty if nothing does.

    Args:
        there, here: plans as in JSON (`Plan.model_dump(mode="json")`).
        but_seed: ignore the seed and what follows from it.

    Returns:
        Such as "duration_s is 20.0, not 300.0; links.3.loss is 0.001, not 0.0; and 2 more".
    """
    passed_over = ONLY_FOR_READERS | (FOLLOWS_FROM_SEED if but_seed else set())
    plans = [in_todays_form(plan) for plan in (there, here)]
    if but_seed and all(map(_is_drawn, plans)):
        plans = [_without_draws(plan) for plan in plans]
    values = [dict(leaves(identity(plan, passed_over))) for plan in plans]
    pairs = {
        key: [plan.get(key, _MISSING) for plan in values] for key in dict.fromkeys(chain(*values))
    }
    named = [
        f"{key} is {one}, not {other}"
        for key, (one, other) in pairs.items()
        if one != other and not {one, other} <= _OFF | {_MISSING}
    ]
    if len(named) > _MOST_NAMED:
        named[_MOST_NAMED:] = [f"and {len(named) - _MOST_NAMED} more"]
    return "; ".join(named)


def _is_drawn(plan: Mapping[str, Any]) -> bool:
    return any(node.get("kind") == "router" for node in plan.get("nodes", ()))


def _without_draws(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """A drawn network's plan reduced to what its scenario says, whatever its seed drew."""
    kinds = Counter(node["kind"] for node in plan["nodes"] if node["kind"] != "router")
    shapes = [link[way] for link in plan["links"] for way in ("there", "back")]
    watched, policy, tor = (plan.get(key, {}) for key in ("watched", "policy", "tor"))
    # How many relays lie or have a patch differs by seed: they have a share of the weight.
    return {
        **plan,
        "nodes": kinds,
        "processors": sorted({json.dumps(node.get("processor")) for node in plan["nodes"]}),
        "links": {
            # A way over several links loses more than a single link.
            "loss": min((shape["loss"] for shape in shapes if shape["loss"]), default=0.0),
            "queue_discipline": sorted({shape.get("queue_discipline", FIFO) for shape in shapes}),
            "queue_packets": sorted({shape["queue_packets"] for shape in shapes}),
        },
        "traffic_by_client": Counter(plan["traffic_by_client"].values()),
        "congestion_control": sorted({*plan["congestion_control"].values()}),
        "watched": len(watched),
        "bandwidth_weights": {},
        "coordinates": {},
        "policy": {**policy, "liars": bool(policy.get("liars"))},
        "server_by_client": {},
        "tor": {**tor, "at_relays": bool(tor.get("at_relays"))},
    }


def leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Each plain value as JSON, by its path of keys and indices, such as "links.3.loss"."""
    if isinstance(data, Mapping):
        parts = [(str(key), value) for key, value in data.items()]
    elif isinstance(data, list | tuple) and data:
        parts = [(str(number), value) for number, value in enumerate(data)]
    else:
        yield path, json.dumps(data)
        return
    for key, value in parts:
        yield from leaves(value, f"{path}.{key}" if path else key)
