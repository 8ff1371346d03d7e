"""Variants that only some relays of a drawn network have: which ones, and what follows."""

from itertools import pairwise
from pathlib import Path

import polars
import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.asked.variant import read_variant
from testbed.basics.errors import InputError
from testbed.inside.lab import ipsec
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.plan.model import Plan
from testbed.results.checks import connections
from testbed.results.recorded import Recorded
from testbed.results.tables import SCHEMAS, Tables

RELAYS = 10


def planned(variant: str, seed: int = 1, scenario: str = "SmallNetwork") -> Plan:
    return make_plan(scenario, variant, seed=seed)


def some_of(share: str, seed: int = 1) -> set[str]:
    return set(planned(f"pctcp+some-relays(share={share})", seed).tor.at_relays or ())


def test_a_larger_share_has_the_relays_of_a_smaller_one() -> None:
    shares = [some_of(f"{percent}%") for percent in (1, 14, 25, 50, 100)]
    assert [len(one) for one in shares] == [1, 1, 3, 5, RELAYS]
    assert all(less <= more for less, more in pairwise(shares))
    assert some_of("50%") == some_of("50%")
    assert some_of("50%") != some_of("50%", seed=2)


def test_the_heaviest_come_first() -> None:
    plan = planned("pctls+some-relays(share=30%, first=heaviest)")
    weights = {relay.name: relay.weight or 0 for relay in plan.of_kind("relay")}
    first = sorted(weights, key=lambda name: -weights[name])[:3]
    assert set(plan.tor.at_relays or ()) == set(first)


def test_a_plan_without_a_share_has_no_key_of_it() -> None:
    plan = planned("pctcp")
    assert plan.tor.at_relays is None
    assert "at_relays" not in plan.model_dump(exclude_defaults=True)["tor"]
    assert plan.key != planned("pctcp+some-relays(share=100%)").key


def lines_of(plan: Plan, relay: str) -> list[str]:
    """The variant's lines of a relay's torrc."""
    files = TorFiles(relay, Path("/state"), Path("/log"))
    names = [one.name for one in plan.of_kind("authority")]
    identities = {name: AuthorityIdentity("A" * 40, "B" * 40) for name in names}
    text = torrc(plan, plan.node(relay), files, identities)
    return text.partition("# The variant's own.\n")[2].splitlines()


def test_relays_without_it_have_neither_its_lines_nor_esp() -> None:
    plan = planned("pctcp+some-relays(share=30%)")
    some = plan.tor.at_relays or ()
    addresses = ",".join(str(plan.node(relay).address) for relay in some)
    for relay in plan.of_kind("relay"):
        own = [
            "PerCircuitConnections 1",
            "PlainRelayConnections 1",
            f"PlainRelayConnectionsTo {addresses}",
        ]
        assert lines_of(plan, relay.name) == (own if relay.name in some else [])
    directions = set(ipsec.protected(plan))
    assert directions == {(one, other) for one in some for other in some if one != other}
    assert [patch.name for patch in plan.tor.patches][-1] == "plain-to-some-relays.patch"


def test_connections_with_tls_need_no_word_of_the_other_end() -> None:
    plan = planned("pctls+some-relays(share=30%)")
    (relay, *_) = plan.tor.at_relays or ()
    assert lines_of(plan, relay) == ["PerCircuitConnections 1"]
    assert [patch.name for patch in plan.tor.patches] == ["per-circuit-connections.patch"]
    assert ipsec.protected(plan) != []
    assert not plan.tor.ipsec


def test_clients_have_all_of_the_variant() -> None:
    assert lines_of(planned("pctls+some-relays"), "client1") == ["PerCircuitConnections 1"]


def relays_of(plan: Plan, has: bool) -> list[str]:
    return [one.name for one in plan.of_kind("relay") if plan.tor.is_at(one.name) is has]


def recorded(queues: list[tuple[str, str, str | None]], opened: dict[str, int]) -> Recorded:
    """Rows of `queues` (relay, queue, next queue) in each of four seconds, and of `relays`."""
    tables = {name: polars.DataFrame(schema=schema) for name, schema in SCHEMAS.items()}
    schema = SCHEMAS["queues"]
    rows = [
        {
            "time_s": float(second),
            "relay": relay,
            "connection": f"connection of {relay}",
            "queue": queue,
            "next_queue": following,
        }
        for second in range(4)
        for relay, queue, following in queues
    ]
    names = ("time_s", "relay", "connection", "queue", "next_queue")
    tables["queues"] = polars.DataFrame(rows, schema={name: schema[name] for name in names})
    tables["relays"] = polars.DataFrame(
        {"relay": list(opened), "most_opened_to_one": list(opened.values())},
        schema={"relay": polars.String, "most_opened_to_one": polars.Int64},
    )
    return Recorded(Tables(tables), [], [], 0.0)


@pytest.mark.parametrize(
    ("variant", "opener_has", "peer_has", "counts"),
    [
        ("pctls", True, True, True),
        ("pctls", True, False, True),
        ("pctls", False, True, False),
        ("pctcp", True, True, True),
        ("pctcp", True, False, False),
        ("pctcp", False, False, False),
    ],
)
def test_two_circuits_may_share_what_is_not_the_variants(
    variant: str, opener_has: bool, peer_has: bool, counts: bool
) -> None:
    """Two circuits share a connection: wrong only where each shall have its own."""
    plan = planned(f"{variant}+some-relays")
    opener = relays_of(plan, opener_has)[0]
    peer = relays_of(plan, peer_has)[1]
    rows = [(opener, "1", "5"), (opener, "2", "6"), (peer, "5", None), (peer, "6", None)]
    sharing, *_ = connections.checks(plan, recorded(rows, {}))
    assert sharing.ok is (False if counts else None)


def test_relays_without_pctcp_open_one_connection_to_each() -> None:
    plan = planned("pctcp+some-relays")
    with_it, without = (relays_of(plan, has)[0] for has in (True, False))
    for opened, ok in (({with_it: 3, without: 1}, True), ({with_it: 1, without: 2}, False)):
        _, check = connections.checks(plan, recorded([], opened))
        assert check.ok is ok
    assert len(list(connections.checks(planned("pctls+some-relays"), recorded([], {})))) == 1


@pytest.mark.parametrize(
    ("variant", "scenario", "advice"),
    [
        ("some-relays", "SmallNetwork", 'such as "pctcp+some-relays"'),
        ("vegas+some-relays", "SmallNetwork", "it says nothing of relays, neither in"),
        ("pctls+some-relays", "One", 'take a network with topology = "sampled"'),
        ("pctls+some-relays(share=0%)", "SmallNetwork", 'relays = "0%" is no relay at all'),
        ("pctls+some-relays(share=half)", "SmallNetwork", 'relays = "half"'),
        ("pctls+some-relays(first=last)", "SmallNetwork", "is no order of relays"),
    ],
)
def test_refuses_shares(variant: str, scenario: str, advice: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(scenario, variant)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refuses_an_order_without_a_share(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "x"\nextends = "pctls"\nfirst_relays = "heaviest"\n')
    with pytest.raises(InputError, match="say relays too, or leave it out"):
        read_variant(str(file))


@pytest.mark.experiment
def test_relays_with_pctcp_and_without_it_in_one_network(tmp_path: Path) -> None:
    """All circuits are built, whichever relays they cross, and connections are as promised."""
    run = run_scenario(tmp_path, "SmallNetwork", "pctcp+some-relays", 10, timeout_s=1800)
    assert run.summary.transfers.failed == 0
    observed = {check.name: check.observed for check in run.summary.checks}
    assert observed["payload of a full segment between relays"] == "1414 bytes"
    assert observed["most connections that a relay has opened to another"] == "1"
    assert observed["relay connections with several circuits at once"].startswith("0; ")
