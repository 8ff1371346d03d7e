"""Plans of older versions in today's form: plain data in, plain data out.

`plan.model` says what a key means; keys that were added later have their defaults there.
"""

from collections.abc import Mapping
from typing import Any

from testbed.plan.network import Flag, Kind

_OF_BOTH_DIRECTIONS = (
    *("rate_bit_per_s", "delay_ms", "loss", "bundles"),
    *("queue_packets", "queue_in_sender", "queue_discipline", "queue_parameters"),
)
"""Keys of a link that held for both directions, until each got a shape of its own."""

KIND_BY_ROLE: Mapping[str, Kind] = {
    "client": "client",
    "server": "server",
    "authority": "authority",
}
"""The kinds of the roles that aren't relays."""

FLAGS_BY_ROLE: Mapping[str, tuple[Flag, ...]] = {"guard": ("guard",), "exit": ("exit",)}


def in_todays_form(plan: Any) -> Any:  # noqa: ANN401
    """The plan in today's form; unchanged if it has that form, or is no plan."""
    if not isinstance(plan, Mapping):
        return plan
    changed = dict(plan)
    for key, upgrade in (("nodes", _node), ("links", _link)):
        if isinstance(parts := plan.get(key), list | tuple):
            changed[key] = [upgrade(part) if isinstance(part, Mapping) else part for part in parts]
    if "shared_link" in changed or ("watched" in changed and "only_watched" not in changed):
        changed |= _watched(changed.pop("shared_link", None), changed.get("watched"))
    return changed


def _watched(shared_link: Any, named: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """The watched pairs of a plan that has the topology's shared link as a separate key."""
    pairs = [shared_link] if shared_link else []
    pairs += [pair for pair in named or () if pair != shared_link]
    return {"watched": pairs, "only_watched": named is not None}


def _node(node: Mapping[str, Any]) -> Mapping[str, Any]:
    role = node.get("role")
    if "kind" in node or not isinstance(role, str):
        return node
    flags = list(FLAGS_BY_ROLE.get(role, ()))
    return {**node, "kind": KIND_BY_ROLE.get(role, "relay"), "flags": flags}


def _link(link: Mapping[str, Any]) -> Mapping[str, Any]:
    if "there" in link or "rate_bit_per_s" not in link:
        return link
    shape = {key: link[key] for key in _OF_BOTH_DIRECTIONS if key in link}
    others = {key: value for key, value in link.items() if key not in shape}
    return {**others, "there": shape, "back": dict(shape)}
