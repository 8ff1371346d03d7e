"""Which of a plan's keys make a run what it is, and which are only for readers.

For the plan's own key, and for whoever compares two plans. Plans are plain data here, as JSON has
them: one may be of another version of the testbed.
"""

from collections.abc import Collection, Mapping
from typing import Any

ONLY_FOR_READERS = frozenset({"scenario_title", "variant_title", "traffic_overridden", "path"})
"""Keys, at any depth, that change no result: `path` is where a patch or a generator lies."""

FOLLOWS_FROM_SEED = frozenset({"seed", "netem_seeds"})
"""Keys by which alone two runs of a comparison differ."""


def identity(plan: Any, passed_over: Collection[str] = ONLY_FOR_READERS) -> Any:  # noqa: ANN401
    """What makes a run what it is: a plan's data without some keys."""
    if isinstance(plan, Mapping):
        return {
            key: identity(value, passed_over)
            for key, value in plan.items()
            if key not in passed_over
        }
    if isinstance(plan, list | tuple):
        return [identity(value, passed_over) for value in plan]
    return plan
