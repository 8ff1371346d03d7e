"""Derived seeds: fixed for all time, as they decide what every run gives, and unlike each other."""

import itertools

from testbed.plan import make_plan
from testbed.seeds import derived_seed


def test_a_seed_stays_what_it_is() -> None:
    """By `printf 'netem 1 middle1 exit1' | sha256sum`, its first 63 and 31 bits."""
    assert derived_seed(1, "netem", "middle1", "exit1") == 0xD407D818662153B1 >> 1
    assert derived_seed(1, "netem", "middle1", "exit1", bits=31) == 0xD407D818 >> 1


def test_no_two_uses_and_no_two_seeds_have_one_in_common() -> None:
    clients = [f"client{number}" for number in range(1, 9)]
    seeds = [
        derived_seed(seed, purpose, client, bits=31)
        for seed in range(1, 9)
        for purpose in ("tgen", "netem")
        for client in clients
    ]
    assert len(set(seeds)) == len(seeds)


def test_links_of_a_plan_have_seeds_of_their_own() -> None:
    plans = [make_plan("One", "vanilla", seed=seed) for seed in (1, 2)]
    seeds = itertools.chain.from_iterable(link.netem_seeds for plan in plans for link in plan.links)
    assert len(set(seeds)) == 2 * sum(len(plan.links) for plan in plans)
