"""What two plans don't have in common, for whoever must say why a run is not the one asked for.

Plans are compared as plain data: one may be of another version of the testbed.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from testbed.plan_identity import FOLLOWS_FROM_SEED, ONLY_FOR_READERS, identity
from testbed.plan_older import in_todays_form

_OFF = {"null", "false", "0.0", "[]", "{}", '"fifo"', '"fixed"'}
"""What a key says that one version of the testbed has and another hasn't, if it changes nothing."""

_MISSING = "missing"
_MOST_NAMED = 4


def differences(
    there: Mapping[str, Any], here: Mapping[str, Any], *, but_seed: bool = False
) -> str:
    """What can change a run's result and is not the same in two plans; empty if all is.

    Args:
        there, here: plans as JSON has them (`Plan.model_dump(mode="json")`).
        but_seed: their seeds may differ.

    Returns:
        Such as "duration_s is 20.0, not 300.0; links.3.loss is 0.001, not 0.0; and 2 more".
    """
    passed_over = ONLY_FOR_READERS | (FOLLOWS_FROM_SEED if but_seed else set())
    values = [dict(leaves(identity(in_todays_form(plan), passed_over))) for plan in (there, here)]
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


def leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Each plain value as JSON, by its keys and places, such as "links.3.loss"."""
    if isinstance(data, Mapping):
        parts = [(str(key), value) for key, value in data.items()]
    elif isinstance(data, list | tuple) and data:
        parts = [(str(number), value) for number, value in enumerate(data)]
    else:
        yield path, json.dumps(data)
        return
    for key, value in parts:
        yield from leaves(value, f"{path}.{key}" if path else key)
