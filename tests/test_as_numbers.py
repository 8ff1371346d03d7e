"""One autonomous system at both ends, in a made-up graph that can be followed by hand.

docs/examples/as-relationships.txt, with providers above their customers, and numbers without 64:

    496 ------ 497          peers: 496 and 497, 500 and 501
    / | \\      / | \\
 518 500 501--+ 502 |
     /  \\ | \\    |  517
   510 511 512 513 514
    |
   517                      517 has two providers: 510 and 497; 501 has 496 and 497
"""

import bz2
from itertools import pairwise
from pathlib import Path
from typing import cast

import networkx
import pytest
from test_adversaries import Made

from analysis.adversaries import Stream
from analysis.as_numbers import SeenByAs, read_numbers, seen_by_as
from analysis.as_relationships import Relationships, read_relationships, relationships_of
from analysis.runs import Found, Group
from commands import adversaries as command
from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.toml_file import PROJECT
from testbed.results import Run

EXAMPLES = PROJECT / "docs/examples"
GRAPH = EXAMPLES / "as-relationships.txt"
NUMBERS = EXAMPLES / "as-numbers.csv"


@pytest.fixture(scope="module")
def known() -> Relationships:
    return read_relationships(GRAPH)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ((510, 500, 511), "over the provider of both"),
        ((510, 500, 501, 512), "500 prefers its peer to its provider 496"),
        ((510, 500, 496, 497, 502, 514), "501 doesn't tell its peer what its providers told it"),
        ((512, 501, 497, 502, 514), "497 is nearer to 514 than 496"),
        ((513, 501, 496, 518), "496 is nearer to 518 than 497"),
        ((518, 496, 500, 510, 517), "496 prefers its customer, although its peer is nearer"),
        ((517, 497, 496, 518), "the way back is the shorter one of two providers'"),
        ((501,), "in itself"),
    ],
)
def test_path(known: Relationships, path: tuple[int, ...], why: str) -> None:
    numbers = tuple(64000 + number for number in path)
    assert known.path(numbers[0], numbers[-1]) == numbers, why


def test_paths_go_up_then_once_aside_then_down(known: Relationships) -> None:
    """And there is one between two systems exactly if the graph has any that does."""
    graph: networkx.Graph[int] = networkx.Graph()
    for one, others in known.customers.items():
        graph.add_edges_from((one, other) for other in others)
    for one, others in known.peers.items():
        graph.add_edges_from((one, other) for other in others)

    def is_valley_free(path: tuple[int, ...]) -> bool:
        steps = "".join(
            "u" if other in known.providers.get(one, ()) else
            "d" if other in known.customers.get(one, ()) else "p"
            for one, other in pairwise(path)
        )  # fmt: skip
        return steps.lstrip("u").removeprefix("p").strip("d") == ""

    for source in graph:
        for destination in graph:
            path = known.path(source, destination)
            simple = networkx.all_simple_paths(graph, source, destination)
            if path is None:
                assert not any(is_valley_free(tuple(one)) for one in simple)
            else:
                assert is_valley_free(path)


def test_two_peers_of_a_peer_have_no_path() -> None:
    known = relationships_of(["1|2|0", "2|3|0"], "made")
    assert known.path(1, 2) == (1, 2)
    assert known.path(1, 3) is None
    assert 3 in known
    assert 4 not in known


ENDS = {"c": 64518, "g": 64517, "e": 64514, "s": 64513, "n": 64511}


def test_one_as_at_both_ends(known: Relationships) -> None:
    """497 is on the way back from the guard, and between exit and server."""
    back = Stream("c", ("g", "m", "e"), "s")
    assert seen_by_as([back], ENDS, known) == SeenByAs(0, 1, 1, 0)
    # From 518 by 496 to 500 and 511; and from 514 by 502, 497 and 501 to 513.
    apart = Stream("c", ("n", "m", "e"), "s")
    assert seen_by_as([back, apart, apart, apart], ENDS, known) == SeenByAs(0, 0.25, 0.25, 0)
    # By 496 on either side.
    there = Stream("c", ("n", "m", "n"), "c")
    assert seen_by_as([there], ENDS, known) == SeenByAs(1, 1, 1, 0)
    assert seen_by_as([], ENDS, known) is None


def test_without_a_path_the_ends_count() -> None:
    known = relationships_of(["1|2|0", "2|3|0"], "made")
    stream = Stream("c", ("g", "m", "e"), "s")
    assert seen_by_as([stream], {"c": 1, "g": 3, "e": 3, "s": 3}, known) == SeenByAs(1, 1, 1, 1)
    assert seen_by_as([stream], {"c": 1, "g": 3, "e": 2, "s": 2}, known) == SeenByAs(0, 0, 0, 1)


def test_the_second_format_and_compressed_files(tmp_path: Path, known: Relationships) -> None:
    lines = GRAPH.read_text().splitlines()
    text = "\n".join(line if line[0] == "#" else f"{line}|bgp" for line in lines)
    (tmp_path / "as-rel2.txt.bz2").write_bytes(bz2.compress(text.encode()))
    found = read_relationships(tmp_path / "as-rel2.txt.bz2")
    assert (found.customers, found.peers) == (known.customers, known.peers)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no AS relationship"),
        (["# only a comment"], "has no AS relationship"),
        (["1|2|-1", "1|3"], r"made:2: '1\|3': is no AS relationship: write \"provider"),
        (["1|2|1"], "is no AS relationship"),
        (["1|x|0"], "'x' is no AS number"),
        (["0|2|0"], "'0' is no AS number: write 1 to 4294967295"),
        (["1|2|-1", "2|1|-1"], "made:2: .* line 1 differs"),
        (["1|2|-1", "1|2|0"], "line 1 differs"),
        (["7|7|0"], "has none with itself"),
    ],
)
def test_damaged_relationships(lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        relationships_of(lines, "made")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'begin with the line "node,as"'),
        ("relay7,64510\n", 'begin with the line "node,as"'),
        ("node,as\nrelay7\n", r"file.csv:2: 'relay7': is not a node and an AS"),
        ("node,as\nrelay7,AS1\n", "'AS1' is no AS number"),
        ("node,as\n10.0.0.1/8,1\n", "is no prefix"),
        ('node,as\n"relay7,1\n', "no AS numbers can be read"),
        ("node,as\nrelay1,64510\n", "no line for client1 "),
        ("node,as\n10.0.0.0/8,1\n", "AS 1 of client1 is not in the file of relationships"),
    ],
)
def test_damaged_numbers(tmp_path: Path, text: str, message: str, known: Relationships) -> None:
    (tmp_path / "file.csv").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_numbers(tmp_path / "file.csv").of(make_plan("SmallNetwork", "vanilla"), known)
    assert "\n" not in str(caught.value)


def test_a_nodes_own_line_and_the_longest_prefix_count(known: Relationships) -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    numbers = read_numbers(NUMBERS).of(plan, known)
    assert numbers["relay2"] == 64513
    assert plan.node("relay1").country == "se"  # 10.24.0.0/16
    assert numbers["relay1"] == 64517
    assert {numbers[node.name] for node in plan.of_kind("client") if node.country == "mg"} <= {
        64514
    }


@pytest.mark.parametrize("file", ["--as-numbers", "--as-relationships"])
def test_the_command_ends_with_one_line(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"--as-numbers": NUMBERS, "--as-relationships": GRAPH}
    damaged = tmp_path / "damaged.txt.bz2"
    damaged.write_bytes(b"BZh9 and then something else")
    given[file] = damaged
    words = [word for option, of in given.items() for word in (option, str(of))]
    assert main(["adversaries", str(tmp_path), *words]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert len(shown.err.strip().splitlines()) == 1
    assert "damaged.txt.bz2" in shown.err


def test_the_commands_table(known: Relationships) -> None:
    group = Group("vanilla", "SmallNetwork", "page", 60.0)
    found = Found(valid={group: [cast(Run, Made())]}, left_out=())
    table = command._table(found, read_numbers(NUMBERS), known)
    (row,) = table.rows
    assert row[:3] == ("SmallNetwork", "vanilla", "1")
    assert len(row) == len(table.columns)
