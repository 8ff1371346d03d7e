"""Networks drawn from users' own scenarios, consensuses and places, and refused input."""

import re
from pathlib import Path

import pytest
from drawn_networks import GOOD, IN_PLACES, NETWORK, draw
from made_consensus import MadeRelay
from made_places import FILES, write_places

from testbed.basics.errors import InputError
from testbed.plan.network import RELAY_CLASSES, Node


def test_relays_may_have_a_share_of_their_rates(tmp_path: Path) -> None:
    """Everything else stays the same, so relays with a tenth are ten times as busy."""
    whole = draw(tmp_path, NETWORK).network
    tenth = draw(tmp_path, NETWORK + 'relay_rates = "10 %"\n').network
    for one, other in zip(whole.nodes, tenth.nodes, strict=True):
        share = 0.1 if one.kind == "relay" else 1
        for rate in ("rate_up_bit_per_s", "rate_down_bit_per_s"):
            expected = round(share * value) if (value := getattr(one, rate)) else None
            assert getattr(other, rate) == expected
        assert without_rates(one) == without_rates(other)
    assert [link.there.delay_ms for link in whole.links] == [
        link.there.delay_ms for link in tenth.links
    ]


def without_rates(node: Node) -> Node:
    return node.model_copy(update={"rate_up_bit_per_s": None, "rate_down_bit_per_s": None})


def test_loss_and_queue_are_the_scenarios(tmp_path: Path) -> None:
    drawn = draw(tmp_path, NETWORK + 'loss = "0.5 %"\nqueue = "50 packets"\nauthorities = 3\n')
    assert len(drawn.network.of_kind("authority")) == 3
    for link in drawn.network.links:
        between_sites = all(end.startswith("router-") for end in link.ends)
        for _, _, shape in link.directions():
            assert shape.loss == (0.005 if between_sites else 0)
            assert (shape.rate_bit_per_s is None) == between_sites
            assert shape.queue_packets == 50


@pytest.mark.parametrize(
    ("said", "discipline", "packets"),
    [
        ('queue_discipline = "fq_codel"', "fq_codel", 10_240),
        ('queue_discipline = "fq_codel"\nqueue = "50 packets"', "fq_codel", 50),
        ("", "fifo", 1000),
    ],
)
def test_hosts_may_have_another_queue(
    tmp_path: Path, said: str, discipline: str, packets: int
) -> None:
    for link in draw(tmp_path, f"{NETWORK}{said}\n").network.links:
        between_sites = all(end.startswith("router-") for end in link.ends)
        for _, _, shape in link.directions():
            assert shape.queue_discipline == ("fifo" if between_sites else discipline)
            assert shape.queue_packets == packets


def test_files_of_ones_own_are_drawn_from(tmp_path: Path) -> None:
    network = draw(tmp_path).network
    assert {node.country for node in network.of_kind("relay")} <= {"aa", "bb", "cc"}
    assert sorted(node.relay_class for node in network.of_kind("relay")) == sorted(RELAY_CLASSES)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            '"consensus.parquet"',
            '"2021-11-31"',
            'network.consensus = "2021-11-31": there is no consensus * did you mean "2021-11-30"?',
        ),
        (
            '"consensus.parquet"',
            '"geoip"',
            'network.consensus = "geoip": * not a consensus document',
        ),
        ('"consensus.parquet"', '"."', 'network.consensus = ".": *'),
        (
            '"consensus.parquet"',
            '"document"',
            "network.consensus = *has no relays' countries: * ./run.py distil --geoip FILE",
        ),
        ("relays = 4", "relays = 7", "network.relays = 7: the consensus * has 6 with a weight"),
        ("relays = 4", "relays = 3", "network.relays = 3: take at least 4, one of each class: "),
        ("relays = 4", "relays = 0", "network.relays = 0 is wrong: it should be greater"),
        ("clients = 20", "clients = 10001", "network.clients = 10001 is wrong: it should be less"),
        ("relays = 4", 'relays = "4"', 'network.relays = "4" is wrong: it should be a valid int'),
        ("clients = 20", "", "the key network.clients is missing"),
        ("clients = 20", "client = 20", "unknown key network.client: did you mean "),
        ('"places"', '"nowhere"', "network.places: places: *nowhere/countries.csv: No such file"),
        ("servers = 3", 'servers = 3\nloss = "100 %"', 'network.loss = "100 %" loses every packet'),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "fq_codl"',
            'network.queue_discipline = "fq_codl" * did you mean "fq_codel"?',
        ),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "cake"\nqueue = "9 packets"',
            "network.queue is a key of the queue disciplines fifo, * here it is cake",
        ),
        (
            "servers = 3",
            'servers = 3\nqueue_discipline = "sfq"\nqueue = "99999 packets"',
            "network.queue = 99999 packets: sfq holds at least 2, and here at most",
        ),
        (
            "relays = 4",
            'relays = 4\nrelay_rates = "0 %"',
            "network.relay_rates = 0 %: a relay of weight * would have 0 bit/s, where 1000 is",
        ),
        (
            'page = "95 %"',
            'page = "94 %"',
            "clients are 94 % + 5 % of the clients: the shares must add up to 100 %",
        ),
        ('page = "95 %"', 'pages = "95 %"', "clients.pages is no traffic model: did you mean "),
        ('page = "95 %"', "page = 0.95", "clients.page = 0.95 has no unit: write for example "),
        ("[network]", "[links]", "unknown key links: "),
    ],
)
def test_input_that_cannot_be_drawn_is_refused(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    text = GOOD + NETWORK
    assert old in text
    with pytest.raises(InputError, match=re.escape(expected).replace(r"\*", ".*")) as caught:
        draw(tmp_path, text.replace(old, new))
    message = str(caught.value)
    assert "mine.toml" in message
    assert "\n" not in message
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("flag", "relays"),
    [
        ("Exit", [one for one in IN_PLACES if "Exit" not in one.flags]),
        (
            "Exit",
            [MadeRelay(9, one.flags.replace("Exit", "BadExit Exit")) for one in IN_PLACES],
        ),
        ("Guard", [one for one in IN_PLACES if "Guard" not in one.flags]),
    ],
)
def test_without_exit_or_guard_nothing_is_drawn(
    tmp_path: Path, flag: str, relays: list[MadeRelay]
) -> None:
    expected = rf'network\.consensus = ".*": none of its relays is a {flag}: no circuit'
    with pytest.raises(InputError, match=expected):
        draw(tmp_path, relays=relays)


@pytest.mark.parametrize(
    ("others", "relays", "expected"),
    [
        (["Guard Exit"], 2, "relays = 2: a circuit has 3 of them: take at least that many"),
        (["", "", ""], 3, "relays = 3: only one of those drawn is guard or exit, and a circ"),
    ],
)
def test_without_a_circuit_nothing_is_drawn(
    tmp_path: Path, others: list[str], relays: int, expected: str
) -> None:
    """A private network's consensus may have only one or two classes."""
    flags = ["Guard Exit", "Guard Exit", *others]
    made = [MadeRelay(100, f"Fast {one}", "192.0.2.1") for one in flags]
    with pytest.raises(InputError, match=rf"mine.toml: network\.{expected}"):
        draw(tmp_path, NETWORK.replace("relays = 4", f"relays = {relays}"), relays=made)
    of_all = draw(
        tmp_path, NETWORK.replace("relays = 4", f"relays = {len(made)}"), relays=made
    ).network.of_kind("relay")
    assert len(of_all) == len(made)


def test_a_site_without_a_route_is_refused(tmp_path: Path) -> None:
    text = FILES["round-trips.csv"].replace("aa,cc,300.0\n", "")
    write_places(tmp_path / "places", round_trips=text)
    # The route through bb has both access links and two links between sites.
    drawn = draw(tmp_path)
    assert drawn.routes.path("router-aa", "router-cc") == ["router-aa", "router-bb", "router-cc"]
    write_places(tmp_path / "places", round_trips=text.replace("bb,cc,150.0\n", ""))
    expected = (
        r"mine.toml: network\.places = .*: round-trips.csv: the site aa has no route to cc: add"
    )
    expected += " a line aa,cc,… .*, or take another seed$"
    with pytest.raises(InputError, match=expected):
        draw(tmp_path)


def test_relays_of_no_weight_or_no_place_are_never_drawn(tmp_path: Path) -> None:
    outside = MadeRelay(10_000, "Fast Guard", "8.8.8.8")
    drawn = draw(tmp_path, relays=[*IN_PLACES, outside, MadeRelay(0, "Fast Guard", "192.0.2.7")])
    assert max(node.weight or 0 for node in drawn.network.of_kind("relay")) == 1000
    with pytest.raises(InputError, match=r"relays = 7: the consensus .* has 6 with a weight"):
        draw(tmp_path, NETWORK.replace("relays = 4", "relays = 7"), relays=[*IN_PLACES, outside])
