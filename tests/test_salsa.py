"""Shared links: the closed form by hand and by enumeration, the simulation by the closed form.

Simulations of the live network use the consensuses that come with the project.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from made_consensus import FEW, MadeRelay, document

from salsa import simulation
from salsa.cases import EXIT_CLASSES, MIXTURE, MIXTURE_SHARES, PAPER_CIRCUITS, Case, Rule
from salsa.drawing import DrawnCircuits, draw
from salsa.expected import expected
from salsa.links import count_links
from salsa.positions import Positions, exits_by_class, positions, scaled
from salsa.simulation import Estimate, expect, simulate
from testbed.basics.errors import InputError
from testbed.network.consensus import Consensus, parse_document
from testbed.network.finding import read_consensuses
from testbed.network.positions import relay_classes

NOVEMBER = "2021-11-30"


KINDS = [
    Case(internal_share=share, undirected=undirected)
    for share in (0.0, 1.0)
    for undirected in (False, True)
]


THREE = Positions(
    guard=np.array([0.5, 0.3, 0.2]),
    middle=np.array([0.1, 0.6, 0.3]),
    last=np.array([0.25, 0.25, 0.5]),
)
"""Three relays that can each be in every position, so circuits may have a relay several times."""


@pytest.fixture(scope="module")
def november() -> Consensus:
    return read_consensuses([NOVEMBER])[0]


@pytest.fixture(scope="module")
def quarter(november: Consensus) -> Consensus:
    """A quarter of the relays, for which the closed form takes a sixteenth of the time."""
    return scaled(november, 0.25)


def made(*relays: MadeRelay) -> Consensus:
    return parse_document("made", document(relays or FEW).encode()).consensus


def circuits(*paths: str) -> DrawnCircuits:
    """Circuits of relays that are digits: "012" goes from 0 through 1 to 2."""
    columns = zip(*(map(int, path) for path in paths), strict=True)
    return DrawnCircuits(*(np.array(column, dtype=np.int32) for column in columns))


def test_links_of_a_few_circuits_are_counted() -> None:
    # Directed, 1-2 occurs twice; undirected, 0-1 occurs twice and 1-2 three times.
    few = circuits("012", "312", "410", "521")
    counted = count_links(few, 6, undirected=False)
    assert counted.by_parts.tolist() == [0, 6, 1]
    assert counted.guard_middle.tolist() == [0, 4]
    assert counted.middle_exit.tolist() == [0, 2, 1]
    assert counted.circuits_by_shared.tolist() == [2, 2, 0]
    both_ways = count_links(few, 6, undirected=True)
    assert both_ways.by_parts.tolist() == [0, 3, 1, 1]
    assert both_ways.circuits_by_shared.tolist() == [0, 3, 1]


@pytest.mark.parametrize("undirected", [False, True])
def test_links_are_counted_as_a_loop_would(undirected: bool) -> None:
    drawn = draw(THREE, 40, per_client=1, seed=3)
    paths = list(zip(*(one.tolist() for one in drawn), strict=True))
    parts = [[(g, m), (m, e)] for g, m, e in paths]
    if undirected:
        parts = [[(min(link), max(link)) for link in two] for two in parts]
    links = Counter(itertools.chain.from_iterable(parts))
    counted = count_links(drawn, 3, undirected=undirected)
    assert dict(enumerate(counted.by_parts)) == {
        number: Counter(links.values())[number] for number in range(max(links.values()) + 1)
    }
    shared = Counter(sum(links[link] > 1 for link in two) for two in parts)
    assert counted.circuits_by_shared.tolist() == [shared[number] for number in range(3)]


def outcomes(count: int, per_client: int) -> Iterator[tuple[float, DrawnCircuits]]:
    """Every possible set of circuits of the three relays, with its probability."""
    relays = range(3)
    clients = -(-count // per_client)
    for guards in itertools.product(relays, repeat=clients):
        of_circuits = [guards[number // per_client] for number in range(count)]
        for others in itertools.product(itertools.product(relays, relays), repeat=count):
            chance = np.prod([THREE.guard[guard] for guard in guards])
            for middle, last in others:
                chance *= THREE.middle[middle] * THREE.last[last]
            yield (
                float(chance),
                circuits(
                    *(f"{guard}{m}{e}" for guard, (m, e) in zip(of_circuits, others, strict=True))
                ),
            )


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize(("count", "per_client"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_the_closed_form_is_exact(count: int, per_client: int, undirected: bool) -> None:
    sums = np.zeros(6)
    by_parts = np.zeros(2 * count + 1)
    for chance, some in outcomes(count, per_client):
        counted = count_links(some, 3, undirected=undirected)
        for place, counts in enumerate(
            (counted.by_parts, counted.guard_middle, counted.middle_exit)
        ):
            sums[2 * place] += chance * counts.sum()
            sums[2 * place + 1] += chance * counts[2:].sum()
        by_parts[: len(counted.by_parts)] += chance * counted.by_parts
    found = expected(THREE, count, per_client=per_client, undirected=undirected)
    closed = [*found.links, *found.guard_middle, *found.middle_exit]
    np.testing.assert_allclose(closed, sums, atol=1e-12)
    if per_client == 1:
        assert found.by_parts is not None
        np.testing.assert_allclose(
            np.pad(found.by_parts, (0, 9))[: len(by_parts)], by_parts, atol=1e-12
        )


def test_the_closed_form_of_plain_pairs() -> None:
    chances = Positions(
        guard=np.array([0.4, 0.6, 0, 0, 0, 0]),
        middle=np.array([0, 0, 0.3, 0.7, 0, 0]),
        last=np.array([0, 0, 0, 0, 0.2, 0.8]),
    )
    pairs = [g * m for g in (0.4, 0.6) for m in (0.3, 0.7)]
    pairs += [m * e for m in (0.3, 0.7) for e in (0.2, 0.8)]
    n = 5
    shared = sum(1 - (1 - p) ** n - n * p * (1 - p) ** (n - 1) for p in pairs)
    for undirected in (False, True):
        found = expected(chances, n, per_client=1, undirected=undirected)
        assert found.links[1] == pytest.approx(shared, rel=1e-12)


CASES = [
    *KINDS,
    Case(internal_share=0.9, exit_class=MIXTURE),
    Case(exit_class="various", undirected=True),
    Case(per_client=7),
    Case(per_client=16, internal_share=1.0, undirected=True),
    Case(scale=0.04, internal_share=1.0, undirected=True),
    Case(circuits=72_500),
    Case(rules=frozenset([Rule.FLAGS, Rule.EXIT_BY_POLICY])),
]


def test_the_distribution_has_all_links_where_each_has_many_circuits() -> None:
    found = expected(THREE, 200, per_client=1, undirected=False)
    assert found.by_parts is not None
    assert np.sum(found.by_parts) == pytest.approx(found.links[0])


@pytest.mark.parametrize("case", CASES)
def test_the_simulation_agrees_with_the_closed_form(quarter: Consensus, case: Case) -> None:
    if case.circuits == PAPER_CIRCUITS:
        case = replace(case, circuits=PAPER_CIRCUITS // 4)
    simulated, closed = simulate(quarter, case, 20), expect(quarter, case, 0)
    pairs = [
        *zip(simulated.links, closed.links, strict=True),
        *zip(simulated.guard_middle, closed.guard_middle, strict=True),
        *zip(simulated.middle_exit, closed.middle_exit, strict=True),
        (simulated.circuits_with_one, closed.circuits_with_one),
        (simulated.circuits_with_two, closed.circuits_with_two),
        *zip(simulated.by_parts[:4], closed.by_parts[:4], strict=False),
    ]
    for drawn, computed in pairs:
        if drawn is not None and computed is not None:
            assert drawn.deviation is not None
            # At 4 standard errors, one of these 190 numbers would fail in 80 such tests.
            assert abs(drawn.mean - computed.mean) < 4 * drawn.deviation / 20**0.5 + 1e-9


def test_the_interval_of_the_simulation_holds_the_expected_share(november: Consensus) -> None:
    for case in (KINDS[0], KINDS[3]):
        percent = simulate(november, case, 10).shared_percent
        assert percent.low is not None and percent.high is not None
        assert percent.low < expect(november, case, 0).shared_percent.mean < percent.high


def test_the_papers_figures_are_met(november: Consensus) -> None:
    external, _, internal, both_ways = (expect(november, kind, 0) for kind in KINDS)
    assert 3.4 < external.shared_percent.mean < 3.8
    assert 2.8 < external.guard_middle.percent.mean < 3.1
    assert external.shared_percent.mean < internal.shared_percent.mean
    assert internal.shared_percent.mean < both_ways.shared_percent.mean
    # Figure 4, SALSA at scales of 1, 10 and 25 %.
    for scale, published in ((0.01, 53.85), (0.1, 21.19), (0.25, 12.03)):
        share = expect(november, Case(scale=scale), 0).shared_percent.mean
        assert share == pytest.approx(published, rel=0.05)


def test_a_seed_gives_the_same_circuits_and_others_different_ones(november: Consensus) -> None:
    chances = positions(november, Case())
    first, again, other = (draw(chances, 1000, per_client=1, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))
    assert not any(np.array_equal(*pair) for pair in zip(first, other, strict=True))
    internal = draw(positions(november, KINDS[2]), 1000, per_client=1, seed=1)
    assert np.array_equal(internal.guards, first.guards)
    assert np.array_equal(internal.middles, first.middles)
    assert not np.array_equal(internal.lasts, first.lasts)


def test_clients_have_one_guard(november: Consensus) -> None:
    drawn = draw(positions(november, Case()), 1000, per_client=64, seed=1)
    guards = [set(drawn.guards[begin : begin + 64].tolist()) for begin in range(0, 1000, 64)]
    assert all(len(some) == 1 for some in guards)
    assert len(set.union(*guards)) > 8


def test_a_relay_is_rarely_twice_in_a_circuit(november: Consensus) -> None:
    for kind in KINDS:
        chances = positions(november, kind)
        g, m, last = chances.guard, chances.middle, chances.last
        twice = g @ m + m @ last + g @ last - 2 * np.sum(g * m * last)
        assert twice < 300 / 100_000  # section 4.4


def test_rules_keep_relays_apart(november: Consensus) -> None:
    networks = november.relays["network16"].to_numpy()
    few = scaled(november, 0.02)
    for rule, names in ((Rule.NO_RELAY_TWICE, None), (Rule.NO_SAME_16, networks)):
        case = Case(internal_share=1.0, rules=frozenset([rule]))
        consensus = few if names is None else november
        chances = positions(consensus, case)
        named = [
            one if names is None else names[one]
            for one in draw(chances, 20_000, per_client=1, seed=1)
        ]
        plain = draw(replace(chances, kept_apart=()), 20_000, per_client=1, seed=1)
        assert any((a == b).any() for a, b in itertools.combinations(plain, 2))
        assert not any((a == b).any() for a, b in itertools.combinations(named, 2))


def test_relays_kept_apart_are_chosen_by_what_is_left() -> None:
    chances = replace(THREE, kept_apart=(np.arange(3),))
    drawn = draw(chances, 60_000, per_client=1, seed=1)
    last_is_2 = drawn.lasts == 2
    assert last_is_2.mean() == pytest.approx(0.5, abs=0.01)
    # Then the guard is 0 or 1, with 0.5 to 0.3, and the middle is the remaining relay.
    assert (drawn.guards[last_is_2] == 0).mean() == pytest.approx(0.5 / 0.8, abs=0.01)
    assert (drawn.middles == 3 - drawn.guards - drawn.lasts).all()


SIX = Positions(
    guard=np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0]),
    middle=np.full(6, 1 / 6),
    last=np.array([0.2, 0.2, 0.0, 0.0, 0.3, 0.3]),
    kept_apart=(np.arange(6),),
)


def guards_of_clients(drawn: DrawnCircuits, per_client: int) -> list[set[int]]:
    """The guards that each client's circuits have."""
    return [set(row) for row in drawn.guards.reshape(-1, per_client).tolist()]


def test_circuits_that_cannot_have_the_clients_guard_have_its_next_one() -> None:
    """A client with forty circuits has two guards at most where a guard for each conflicting
    circuit, drawn anew, gives a client up to four."""
    drawn = draw(SIX, 40_000, per_client=40, seed=1)
    found = guards_of_clients(drawn, 40)
    assert max(map(len, found)) == 2
    assert not (drawn.guards == drawn.lasts).any()
    anew = np.random.default_rng(1)
    before = drawn.guards.copy()
    firsts = np.array([max(row, key=row.count) for row in before.reshape(-1, 40).tolist()])
    passed = np.flatnonzero(before != np.repeat(firsts, 40))
    chances = SIX.guard
    for place in passed:
        while (guard := anew.choice(6, p=chances)) == drawn.lasts[place]:
            pass
        before[place] = guard
    assert max(map(len, guards_of_clients(drawn._replace(guards=before), 40))) == 4


def test_circuits_have_each_of_their_clients_guards_equally_often() -> None:
    drawn = draw(SIX, 60_000, per_client=60, seed=2, guards=2)
    assert {len(one) for one in guards_of_clients(drawn, 60)} <= {2, 3, 4}
    free = draw(replace(SIX, kept_apart=()), 60_000, per_client=60, seed=2, guards=2)
    assert {len(one) for one in guards_of_clients(free, 60)} == {2}
    shares = [np.mean(row == row[0]) for row in free.guards.reshape(-1, 60)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)
    # A guard is one of a client's first two with p + the sum over others q of q p / (1 - q).
    first = 0.4 + 0.3 * 0.4 / 0.7 + 0.2 * 0.4 / 0.8 + 0.1 * 0.4 / 0.9
    having = np.mean([0 in one for one in guards_of_clients(free, 60)])
    assert having == pytest.approx(first, abs=0.04)
    with pytest.raises(InputError, match="for one guard of a client"):
        expected(SIX, 10, per_client=2, undirected=False, guards=2)


def test_too_few_relays_to_keep_apart_are_refused() -> None:
    two = replace(THREE, kept_apart=(np.array([0, 0, 1]),))
    with pytest.raises(InputError, match="too few relays"):
        draw(two, 10, per_client=1, seed=1)


def test_known_families_are_kept_apart() -> None:
    consensus = made()
    case = Case(rules=frozenset([Rule.NO_SAME_FAMILY]))
    with pytest.raises(InputError, match="has no families"):
        positions(consensus, case)
    families = consensus.relays["family"].to_list()
    families[0] = families[1] = 7
    known = consensus.relays.with_columns(
        consensus.relays["family"].clear(len(FEW)).scatter([0, 1], [7, 7])
    )
    [numbers] = positions(replace(consensus, relays=known), case).kept_apart
    assert numbers.tolist() == [7, 7, -1, -1, -1, -1]


def test_the_internal_share_mixes_the_last_relays(november: Consensus) -> None:
    external, mixed, internal = (
        positions(november, Case(internal_share=share)).last for share in (0.0, 0.9, 1.0)
    )
    np.testing.assert_allclose(mixed, 0.1 * external + 0.9 * internal)


def test_exit_classes_are_of_exits_that_take_all_ports(november: Consensus) -> None:
    of_each = {name: exits_by_class(november, name) for name in EXIT_CLASSES}
    assert of_each["web"] > 1200
    assert of_each["various"] < 60
    last = positions(november, Case(exit_class="various")).last
    assert np.count_nonzero(last) == of_each["various"]
    assert expect(november, Case(exit_class="various"), 0).network.exits == of_each["various"]
    assert sum(MIXTURE_SHARES.values()) == pytest.approx(1)
    assert (1 - MIXTURE_SHARES["web"]) / MIXTURE_SHARES["web"] == pytest.approx(1.7)


def test_an_exit_by_policy_needs_no_flag() -> None:
    consensus = made()
    by_flag = positions(consensus, Case()).last
    by_policy = positions(consensus, Case(rules=frozenset([Rule.EXIT_BY_POLICY]))).last
    assert np.flatnonzero(by_flag).tolist() == [2, 4]
    assert np.flatnonzero(by_policy).tolist() == [2, 4, 5]


def test_relays_are_sampled_as_tornettools_does() -> None:
    guards = [MadeRelay(weight, "Fast Guard") for weight in (70, 10, 50, 20, 40, 30, 60)]
    middles = [MadeRelay(weight) for weight in (5, 1, 3)]
    exits = [MadeRelay(9, "Exit Fast")]
    half = scaled(made(*guards, *middles, *exits), 0.5)
    # Seven guards in four bins: 10 20 | 30 40 | 50 60 | 70. Three middles in two: 1 3 | 5.
    classes = relay_classes(half.relays)
    assert sorted(half.relays["weight"].filter(classes == 1)) == [20, 40, 60, 70]
    assert sorted(half.relays["weight"].filter(classes == 0)) == [3, 5]
    assert half.relays["weight"].filter(classes == 2).to_list() == [9]


def test_a_single_simulation_has_no_interval() -> None:
    assert Estimate.of([3.0]) == Estimate(3.0, None, None, None)
    three = Estimate.of([1.0, 2.0, 3.0])
    assert three.deviation == 1
    assert three.low == pytest.approx(2 - 4.302653 / 3**0.5)


def test_processes_give_what_one_does(quarter: Consensus, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(quarter, replace(kind, circuits=2000)) for kind in KINDS]
    alone = simulation.simulate_all(jobs, 2)
    monkeypatch.setattr(simulation, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(simulation, "cores", lambda: 2)
    assert simulation.simulate_all(jobs, 2) == alone
