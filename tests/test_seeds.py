"""Derived seeds: they never change, as every run's results depend on them, and all differ."""

import itertools

from testbed.asked.plans import make_plan
from testbed.basics.seeds import derived_seed


def test_a_seed_never_changes() -> None:
    """The first 63 and 31 bits of `printf 'netem 1 middle1 exit1' | sha256sum`."""
    assert derived_seed(1, "netem", "middle1", "exit1") == 0xD407D818662153B1 >> 1
    assert derived_seed(1, "netem", "middle1", "exit1", bits=31) == 0xD407D818 >> 1


def test_different_purposes_and_seeds_give_different_seeds() -> None:
    clients = [f"client{number}" for number in range(1, 9)]
    seeds = [
        derived_seed(seed, purpose, client, bits=31)
        for seed in range(1, 9)
        for purpose in ("tgen", "netem")
        for client in clients
    ]
    assert len(set(seeds)) == len(seeds)


def test_each_direction_of_a_plans_links_has_its_own_seed() -> None:
    plans = [make_plan("One", "vanilla", seed=seed) for seed in (1, 2)]
    seeds = itertools.chain.from_iterable(link.netem_seeds for plan in plans for link in plan.links)
    assert len(set(seeds)) == 2 * sum(len(plan.links) for plan in plans)
