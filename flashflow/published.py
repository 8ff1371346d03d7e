"""What the paper publishes of its schedule (section 7), for tables that show ours beside it."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from flashflow.parameters import PAPER
from testbed.basics.toml_file import PROJECT, read_toml

_SECTION_7: Mapping[str, Any] = read_toml(PROJECT / "studies" / "capacity" / "published.toml")[
    "section_7"
]
RELAYS: int = _SECTION_7["relays"]
TOTAL_BIT_PER_S: float = 1e9 * _SECTION_7["total_gbit_per_s"]
TEAM_BIT_PER_S: float = 1e9 * _SECTION_7["team_gbit_per_s"]
SLOTS: int = _SECTION_7["slots"]
HOURS: float = _SECTION_7["hours"]
NEW_MEDIAN_WAIT_S: int = _SECTION_7["new_median_wait_s"]
NEW_LONGEST_WAIT_S: int = _SECTION_7["new_longest_wait_s"]
FACTOR: float = _SECTION_7["factor"]


def least_slots(factor: float) -> int:
    """The slots that the published team needs for the published network if it is always busy."""
    return ceil(factor * TOTAL_BIT_PER_S / TEAM_BIT_PER_S)


SECTION_7 = (
    "published",
    str(RELAYS),
    f"{TOTAL_BIT_PER_S / 1e9:.0f}",
    f"{TEAM_BIT_PER_S / 1e9:g}",
    str(least_slots(PAPER.excess)),
    str(SLOTS),
    f"{HOURS:.1f}",
    "-",
    f"{NEW_MEDIAN_WAIT_S} ({NEW_LONGEST_WAIT_S})",
)
"""A row of the table of schedules."""

FACTOR_IN_SECTION_7 = (
    f"The paper's section 7 has f = {FACTOR}, where its formula gives {PAPER.excess:.2f}: its team"
    f" needs at least {least_slots(FACTOR)} slots with the first, and {least_slots(PAPER.excess)},"
    " which is what it publishes, with the second."
)
