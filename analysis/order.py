"""The testbed's own scenarios and variants: in which order they stand, and what is their baseline.

Users' own follow by name.
"""

BASELINE = "NoDropping"
"""The scenario that the others' changes are against."""

IN_BUNDLES = "Bundles"
"""How the name of a scenario ends whose links carry and lose TCP's bundles whole."""

OF_2021 = "-2021"
"""How the name of a variant ends that is the same on a Tor of that year."""

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
"""What comes first in tables and figures."""
