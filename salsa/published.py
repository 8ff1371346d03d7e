"""Published numbers on shared links; all shares are in percent of the links.

Where each stands in the paper is said in `studies/shared-links/published.toml`, which has them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from testbed.basics.toml_file import PROJECT, read_toml


class Span(NamedTuple):
    """A range from the least to the greatest value."""

    low: float
    high: float


_FILE: Mapping[str, Any] = read_toml(PROJECT / "studies" / "shared-links" / "published.toml")
_FIGURE_8 = _FILE["figure_8"]
_NOVEMBER_2021 = _FILE["section_4_1_7"]

SHADOW_BY_SCALE: Mapping[float, float] = {one["scale"]: one["shadow"] for one in _FILE["figure_4"]}
SALSA_BY_SCALE: Mapping[float, float] = {one["scale"]: one["salsa"] for one in _FILE["figure_4"]}
BY_EXIT_CLASS: Mapping[str, float] = _FILE["figure_5"]["shared"]
EXITS_BY_CLASS: Mapping[str, int] = _FILE["figure_5"]["exits"]
BY_PER_CLIENT: Mapping[int, float] = {one["circuits"]: one["shared"] for one in _FILE["figure_6"]}
"""Shares by the number of circuits of a client."""

LINKS_WITH_TWO: float = _FILE["figure_7"]["with_two"]
LINKS_WITH_MORE: float = _FILE["figure_7"]["with_more"]

NOVEMBER_2021 = Span(*_NOVEMBER_2021["all"])
NOVEMBER_2021_GUARD_MIDDLE = Span(*_NOVEMBER_2021["guard_middle"])
NOVEMBER_2021_MIDDLE_EXIT = Span(*_NOVEMBER_2021["middle_exit"])
NOVEMBER_2021_MIXED = Span(*_NOVEMBER_2021["mixed"])
INTERNAL_SHARE: float = _NOVEMBER_2021["internal_share"]
"""The internal share in `NOVEMBER_2021_MIXED`."""

CIRCUITS_WITH_ONE: int = _NOVEMBER_2021["circuits_with_one"]
CIRCUITS_WITH_TWO: int = _NOVEMBER_2021["circuits_with_two"]

YEAR_2021 = Span(*_FIGURE_8["today"])
YEAR_2021_AT_CAPACITY = Span(*_FIGURE_8["at_capacity"])
CAPACITY_CIRCUITS: int = _FIGURE_8["capacity_circuits"]
