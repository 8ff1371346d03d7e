"""The order of the testbed's own scenarios and variants in tables, and their baseline.

Users' own scenarios and variants follow by name.
"""

BASELINE = "NoDropping"
"""The scenario that changes in the others are measured against."""

IN_BUNDLES = "Bundles"
"""The end of the names of scenarios whose links carry and lose TCP's bundles as a whole."""

OF_2021 = "-2021"
"""The end of the names of variants that run on a Tor of that year."""

FIRST_VARIANTS = ("vanilla", "pctls")
TWO_CLIENTS = ("One", "Two", "Three")
_EIGHT_CLIENTS = (BASELINE, "DroppingRemaining", "SharedDropping")

SCENARIO_ORDER = (
    *_EIGHT_CLIENTS,
    *(f"{scenario}{IN_BUNDLES}" for scenario in _EIGHT_CLIENTS),
    *TWO_CLIENTS,
)
VARIANT_ORDER = (*FIRST_VARIANTS, *(f"{variant}{OF_2021}" for variant in FIRST_VARIANTS))
USUAL_TRAFFIC = "bulk"
TRAFFIC_ORDER = (USUAL_TRAFFIC, "audio", "video", "web")
"""The traffic models that come first in tables and figures."""
