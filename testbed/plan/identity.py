"""The keys of a plan that determine a run, and those that are only for readers.

A plan's own key and comparisons of plans need them. Plans are plain data here, as in JSON, since
one may come from another version of the testbed.
"""

from collections.abc import Collection, Mapping
from typing import Any

ONLY_FOR_READERS = frozenset({"scenario_title", "variant_title", "traffic_overridden", "path"})
"""Keys, at any depth, that change no result: `path` is where a patch or a generator lies."""

FOLLOWS_FROM_SEED = frozenset({"seed", "netem_seeds"})
"""Keys in which two runs differ that have different seeds, and nothing else."""


def identity(plan: Any, passed_over: Collection[str] = ONLY_FOR_READERS) -> Any:  # noqa: ANN401
    """The data of a plan that determines its run: all but some keys."""
    if isinstance(plan, Mapping):
        return {
            key: identity(value, passed_over)
            for key, value in plan.items()
            if key not in passed_over
        }
    if isinstance(plan, list | tuple):
        return [identity(value, passed_over) for value in plan]
    return plan
