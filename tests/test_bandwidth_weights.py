"""Bandwidth weights, against examples worked out by hand and against the authorities' own."""

import pytest

from testbed.network import distilled
from testbed.network.bandwidth_weights import FIRST_TOTAL, Totals, bandwidth_weights, totals
from testbed.network.consensus import Consensus
from testbed.network.finding import read_consensuses

SCALE = 10_000

# The totals as authorities have them: the relays', and 1 for each class.
BY_HAND = {
    # 1: E and G are at least T/3. Wee = (E+G+M)/3E = 90/120, Wmg = (2G-E-M)/3G = 30/120.
    "1": (Totals(40, 10, 40, 10), {"Wgg": 7500, "Wee": 7500, "Wgd": 3333, "Wed": 3333}),
    # 2a: both are below T/3, and the scarcer one is below the other even with all of D.
    "2a, exits": (Totals(30, 60, 5, 5), {"Wgg": SCALE, "Wee": SCALE, "Wgd": 0, "Wed": SCALE}),
    "2a, guards": (Totals(5, 60, 30, 5), {"Wgg": SCALE, "Wee": SCALE, "Wgd": SCALE, "Wed": 0}),
    # 2b: Wee = (E-G+M)/E = 15/25, Wed = (D-2E+4G-2M)/3D = 55/75, the rest of D in halves.
    "2b1": (Totals(30, 20, 25, 25), {"Wgg": SCALE, "Wee": 6000, "Wed": 7333, "Wgd": 1333}),
    # There Wme would be (10-20)/25: so Wed = (D-2E+G+M)/3D = 25/135, Wmd = (D-2M+G+E)/3D = 40/135.
    "2b2": (Totals(10, 20, 25, 45), {"Wgg": SCALE, "Wee": SCALE, "Wed": 1851, "Wgd": 5187}),
    # 3a: E+D is below T/3. Wmg = (G-M)/2G = 40/120.
    "3a, exits": (Totals(60, 20, 10, 10), {"Wgg": 6667, "Wee": SCALE, "Wgd": 0, "Wed": SCALE}),
    "3a, guards": (Totals(10, 20, 60, 10), {"Wgg": SCALE, "Wee": 6667, "Wgd": SCALE, "Wed": 0}),
    # Middles have more weight than guards, so all guards stay guards.
    "3a, middles": (Totals(35, 50, 10, 5), {"Wgg": SCALE, "Wee": SCALE, "Wgd": 0, "Wed": SCALE}),
    # 3b: Wgg = (G+M)/2G = 50/80, Wed = (D-2E+G+M)/3D = 70/120, the rest of D in halves.
    "3b, exits": (Totals(40, 10, 10, 40), {"Wgg": 6250, "Wee": SCALE, "Wed": 5833, "Wgd": 2083}),
    "3b, guards": (Totals(10, 10, 40, 40), {"Wgg": SCALE, "Wee": 6250, "Wgd": 5833, "Wed": 2083}),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_examples_worked_out_by_hand(case: str) -> None:
    of, expected = BY_HAND[case]
    weights = bandwidth_weights(of_relays(of))
    assert {name: weights[name] for name in expected} == expected
    assert weights["Wmg"] == SCALE - weights["Wgg"]
    assert weights["Wme"] == SCALE - weights["Wee"]


@pytest.mark.parametrize("case", ["1", "2b1", "2b2", "3b, exits", "3b, guards"])
def test_where_there_is_enough_all_positions_get_a_third(case: str) -> None:
    of, _ = BY_HAND[case]
    weights = bandwidth_weights(of_relays(of))
    guards = weights["Wgg"] * of.guard + weights["Wgd"] * of.both
    exits = weights["Wee"] * of.exit + weights["Wed"] * of.both
    middles = (
        SCALE * of.middle
        + weights["Wmg"] * of.guard
        + weights["Wme"] * of.exit
        + weights["Wmd"] * of.both
    )
    for position in (guards, middles, exits):
        assert position == pytest.approx(SCALE * sum(of) / 3, rel=0.001)


def test_where_authorities_write_none_there_are_none() -> None:
    """Case 2b with more than a third of the weight in middles."""
    assert bandwidth_weights(of_relays(Totals(20, 40, 25, 15))) == {}


def of_relays(of: Totals) -> Totals:
    """Totals without the authorities' initial 1."""
    return Totals(*(total - FIRST_TOTAL for total in of))


# Results of networkstatus_compute_bw_weights_v10() in Tor 0.4.9.11, for these totals and 1 each.
OF_TOR = {
    Totals(0, 10, 10, 10): {"Wgg": SCALE, "Wgd": 9394, "Wmd": 303, "Wee": SCALE, "Wed": 303},
    Totals(10, 10, 0, 10): {"Wgg": SCALE, "Wgd": 303, "Wmd": 303, "Wee": SCALE, "Wed": 9393},
    Totals(10, 10, 10, 0): {"Wgg": SCALE, "Wgd": 3333, "Wmd": 3333, "Wee": SCALE, "Wed": 3333},
    Totals(74400, 14002, 9800, 33000): {
        "Wgg": 5942,
        "Wgd": 0,
        "Wmd": 0,
        "Wee": SCALE,
        "Wed": SCALE,
    },
}


@pytest.mark.parametrize("of", OF_TOR)
def test_small_totals_as_tor_computes_them(of: Totals) -> None:
    """The initial 1 leaves no class empty, and shows in the last digit."""
    weights = bandwidth_weights(of)
    assert {name: weights[name] for name in ("Wgg", "Wgd", "Wmd", "Wee", "Wed")} == OF_TOR[of]


@pytest.mark.parametrize("consensus", read_consensuses(distilled.names()), ids=lambda one: one.name)
def test_as_the_authorities_computed_them(consensus: Consensus) -> None:
    """The weights equal each consensus's line "bandwidth-weights" to the last digit."""
    assert bandwidth_weights(totals(consensus)) == consensus.bandwidth_weights
