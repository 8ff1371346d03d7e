"""What the paper publishes of its schedule (section 7), for tables that show ours beside it."""

from math import ceil

from flashflow.parameters import PAPER

RELAYS = 6419
TOTAL_BIT_PER_S = 608e9
TEAM_BIT_PER_S = 3e9
SLOTS = 599
HOURS = 5.0
NEW_MEDIAN_WAIT_S = 30
NEW_LONGEST_WAIT_S = 13 * 60
FACTOR = 2.84
"""The median day of July 2019, measured by three measurers of 1 Gbit/s; and f as section 7 has it.
Section 4.2's formula gives 2.95 with section 6.1's parameters."""


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
