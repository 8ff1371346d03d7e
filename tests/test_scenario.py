"""Scenario files: what they say is what is read; what is wrong is told in one useful line."""

from pathlib import Path

import pytest

from testbed.asked.scenario import Scenario, read_scenario
from testbed.asked.scenario_links import LinkKeys
from testbed.basics.errors import InputError
from testbed.plan.queue_disciplines import DISCIPLINES

GOOD = """
title = "A network"
topology = "eight_clients"
traffic = "bulk"
duration = "5 min"

[links]
default = { rate = "300 Mbit/s" }
guard-middle = { delay = "12.5 ms" }
middle-exit = { delay = "12.5 ms", loss = "0.1 %" }
"""


def read(folder: Path, text: str) -> Scenario:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return read_scenario(str(file))[0]


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "mine.toml" in message
    assert caught.value.exit_status == 2
    return message


def test_reads_every_key(tmp_path: Path) -> None:
    scenario = read(tmp_path, GOOD)
    assert scenario.duration_s == 300
    shared = scenario.link("middle-exit")
    assert (shared.rate_bit_per_s, shared.delay_ms, shared.loss) == (300_000_000, 12.5, 0.001)
    assert (shared.queue_packets, shared.queue_discipline, shared.bundles) == (1000, "fifo", False)
    assert scenario.link("client-guard").delay_ms == 0
    assert scenario.tcp.of_role("guard") == "cubic"


def test_order_of_roles_does_not_matter(tmp_path: Path) -> None:
    turned = GOOD.replace("guard-middle", "middle-guard").replace("middle-exit", "exit-middle")
    assert read(tmp_path, turned) == read(tmp_path, GOOD)


def test_link_overrides_default_key_by_key(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        GOOD.replace('"300 Mbit/s" }', '"300 Mbit/s", delay = "3 ms", queue = "7 packets" }'),
    )
    assert scenario.link("client-guard").delay_ms == 3
    assert scenario.link("guard-middle").delay_ms == 12.5
    assert scenario.link("guard-middle").queue_packets == 7


def test_reads_a_queue_discipline_with_its_keys(tmp_path: Path) -> None:
    keys = 'queue_discipline = "fq_codel", target = "3 ms", ecn = false, memory_limit = "4 MB"'
    link = read(tmp_path, GOOD.replace('loss = "0.1 %"', keys)).link("middle-exit")
    assert (link.queue_discipline, link.queue_packets) == ("fq_codel", 10_240)
    said = {"target_us": 3000, "ecn": False, "memory_limit_bytes": 4_000_000}
    assert link.queue_parameters == said


def test_a_discipline_takes_nothing_of_another_ones_keys(tmp_path: Path) -> None:
    """Else a `default` with a queue would forbid every link to be cake."""
    default = '"300 Mbit/s", queue_discipline = "codel", queue = "7 packets", interval = "9 ms" }'
    text = GOOD.replace('"300 Mbit/s" }', default)
    text = text.replace('loss = "0.1 %"', 'queue_discipline = "cake", rtt = "50 ms"')
    scenario = read(tmp_path, text)
    cake, codel = scenario.link("middle-exit"), scenario.link("guard-middle")
    assert (cake.queue_packets, cake.queue_parameters) == (10_240, {"rtt_us": 50_000})
    assert (codel.queue_discipline, codel.queue_packets) == ("codel", 7)
    assert codel.queue_parameters == {"interval_us": 9000}


VALUES = {
    "queue": '"9 packets"',
    **dict.fromkeys(("target", "interval", "ce_threshold", "tupdate", "rtt"), '"20 ms"'),
    **dict.fromkeys(("ecn", "bytemode", "ack_filter", "headdrop"), "true"),
    **dict.fromkeys(("quantum", "memory_limit"), '"3000 B"'),
    **dict.fromkeys(("flows", "drop_batch", "alpha", "beta", "depth", "divisor"), "16"),
    **{"perturb": '"10 s"', "isolation": '"flows"', "diffserv": '"besteffort"'},
}


@pytest.mark.parametrize("name", DISCIPLINES)
def test_every_key_of_a_discipline_is_read(tmp_path: Path, name: str) -> None:
    keys = [LinkKeys.model_fields[key].alias or key for key in DISCIPLINES[name].keys]
    said = ", ".join(f"{key} = {VALUES[key]}" for key in keys)
    text = GOOD.replace('loss = "0.1 %"', f'queue_discipline = "{name}", {said}')
    link = read(tmp_path, text).link("middle-exit")
    assert {"queue_packets", *link.queue_parameters} >= set(DISCIPLINES[name].keys)


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ('queue_discipline = "fqcodel"', 'unknown: did you mean "fq_codel"? (there are: fifo, fq_'),
        ("queue_discipline = 1", "is unknown: there are: fifo, fq_codel, codel, pie, cake, sfq"),
        ('queue_disipline = "pie"', 'did you mean "queue_discipline"?'),
        (
            'target = "5 ms"',
            "links.middle-exit.target is a key of the queue disciplines fq_codel, codel, pie;"
            " here it is fifo, with the keys: queue",
        ),
        (
            'queue_discipline = "sfq", rtt = "5 ms"',
            "links.middle-exit.rtt is a key of the queue discipline cake; here it is sfq, with the"
            " keys: queue, flows, depth, divisor, quantum, perturb, headdrop",
        ),
        ('queue_discipline = "cake", queue = "9 packets"', "links.middle-exit.queue is a key of"),
        ('queue_discipline = "codel", target = "5 MB"', "is an amount of data, not a time"),
        ('queue_discipline = "codel", target = "5"', 'has no unit: write for example "5 ms"'),
        ('queue_discipline = "codel", target = "1 us"', 'is below the least possible, "10 us"'),
        ('queue_discipline = "codel", target = "10.5 us"', "whole number of microseconds"),
        ('queue_discipline = "fq_codel", quantum = "5 ms"', "is a time, not an amount of data"),
        ('queue_discipline = "fq_codel", quantum = "100 B"', "greater than or equal to 256"),
        ('queue_discipline = "fq_codel", flows = 0', "links.middle-exit.flows = 0 is wrong"),
        (
            'queue_discipline = "pie", ecn = "yes"',
            'ecn = "yes" is wrong: it should be a valid bool',
        ),
        ('queue_discipline = "cake", isolation = "flow"', 'did you mean "flows"?'),
        ('queue_discipline = "sfq", divisor = 1000', "is no power of two: write for example 1024"),
        ('queue_discipline = "sfq", perturb = "1.5 s"', "is not a whole number of seconds"),
        ('queue_discipline = "sfq", flows = 2, depth = 3', "at most flows * depth = 6"),
        ('queue_discipline = "sfq", queue = "1 packet"', "1 packets: sfq holds at least 2"),
        (
            'bundles = "yes"',
            'links.middle-exit.bundles = "yes" is wrong: it should be a valid bool',
        ),
        ("bundles = 1", "links.middle-exit.bundles = 1 is wrong: it should be a valid boolean"),
    ],
)
def test_refuses_of_a_link(tmp_path: Path, keys: str, advice: str) -> None:
    assert advice in refused(tmp_path, GOOD.replace('loss = "0.1 %"', keys))


def test_congestion_control_for_all_or_by_role(tmp_path: Path) -> None:
    for_all = read(tmp_path, GOOD + '[tcp]\ncongestion_control = "bbr"\n')
    assert {for_all.tcp.of_role(role) for role in ("client", "exit")} == {"bbr"}
    by_role = read(tmp_path, GOOD + '[tcp]\ncongestion_control = { exit = "reno" }\n')
    assert (by_role.tcp.of_role("client"), by_role.tcp.of_role("exit")) == ("cubic", "reno")


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("topology =", "topolgy =", 'unknown key topolgy: did you mean "topology"?'),
        ("delay = ", "dealy = ", 'unknown key links.guard-middle.dealy: did you mean "delay"?'),
        ('title = "A network"', "", "the key title is missing"),
        ('"A network"', '" "', 'title = " " is empty'),
        ('"A network"', "7", "title = 7 is wrong: it should be a valid string"),
        ("300 Mbit/s", "300", 'links.default.rate = "300" has no unit'),
        ("300 Mbit/s", "300 mbit/s", 'for megabit write "300 Mbit/s"'),
        ('"300 Mbit/s"', "300", "links.default.rate = 300 has no unit"),
        ("300 Mbit/s", "5 min", 'links.default.rate = "5 min" is a time, not a rate'),
        ("0.1 %", "100 %", 'links.middle-exit.loss = "100 %" loses every packet'),
        ("0.1 %", "-1 %", "is negative"),
        ("12.5 ms", "-12.5 ms", "is negative"),
        ("5 min", "0 s", 'duration = "0 s" is below'),
        ("guard-middle", "gaurd-middle", 'did you mean "guard-middle"?'),
        ("guard-middle", "defualt", 'links.defualt is no pair of roles: did you mean "default"?'),
        ("guard-middle", "exit-middle", "links.middle-exit says again"),
        ("[links]", "[link]", 'unknown key link: did you mean "links"?'),
        ('{ delay = "12.5 ms" }', '"12.5 ms"', 'links.guard-middle = "12.5 ms"'),
        ("duration =", "duration", "not valid TOML"),
    ],
)
def test_refuses(tmp_path: Path, right: str, wrong: str, advice: str) -> None:
    assert advice in refused(tmp_path, GOOD.replace(right, wrong, 1))


@pytest.mark.parametrize(
    ("added", "advice"),
    [
        ('[tcp]\ncongestion_control = "cubik"', 'did you mean "cubic"?'),
        ('[tcp]\ncongestion_control = { gard = "bbr" }', 'did you mean "guard"?'),
        ('[tcp]\ncongestion_control = { guard = "bbb" }', "tcp.congestion_control.guard"),
        ('[tcp]\ncongestion = "cubic"', 'did you mean "congestion_control"?'),
        ('[[competing]]\nfrom = "exit"\nto = "midle"\nstreams = 4', 'did you mean "middle"?'),
        ('[[competing]]\nfrom = "exit"\nto = "middle"\nstreams = 0', "competing[1].streams = 0"),
        ('[[competing]]\nfrom = "exit"\nto = "middle"\nstream = 4', 'did you mean "streams"?'),
        ('[[competing]]\nfrom = "exit"\nstreams = 4', "the key competing[1].to is missing"),
        ("[clients]\nclient1 = 1", "clients.client1 = 1"),
        ("[[tcp]]", "tcp must be a table"),
        ("[competing]", "competing must be a list"),
    ],
)
def test_refuses_in_tables(tmp_path: Path, added: str, advice: str) -> None:
    assert advice in refused(tmp_path, GOOD + added + "\n")


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    assert "line 5" in refused(tmp_path, GOOD.replace('"5 min"', '"5 min'))


def test_says_how_many_problems_there_are(tmp_path: Path) -> None:
    message = refused(tmp_path, GOOD.replace("300 Mbit/s", "300").replace("0.1 %", "200 %"))
    assert message.endswith("(and 1 more)")


def test_long_and_multiline_values_stay_on_one_line(tmp_path: Path) -> None:
    message = refused(tmp_path, GOOD.replace('"5 min"', '"""' + "x\n" * 500 + '"""'))
    assert len(message) < 400


def test_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"title = '\xff\xfe'")
    with pytest.raises(InputError, match="not UTF-8"):
        read_scenario(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("name", ["SharedDroping", "shareddropping"])
def test_suggests_the_nearest_scenario(name: str) -> None:
    with pytest.raises(InputError, match='did you mean "SharedDropping"'):
        read_scenario(name)


@pytest.mark.parametrize("name", ["no/such.toml", "/", "\0/x", "", "../scenarios", "a" * 5000])
def test_no_such_scenario(name: str) -> None:
    with pytest.raises(InputError, match="there is no scenario"):
        read_scenario(name)


@pytest.mark.parametrize("name", ["NoDropping", "SharedDropping", "DroppingRemaining"])
def test_the_papers_scenarios(name: str) -> None:
    """Table 3: 300 Mbit/s everywhere, 50 ms of round trip between guard and exit."""
    scenario, _ = read_scenario(name)
    pairs = ("client-guard", "guard-middle", "middle-exit", "exit-server")
    links = {pair: scenario.link(pair) for pair in pairs}
    assert {link.rate_bit_per_s for link in links.values()} == {300_000_000}
    assert 2 * sum(link.delay_ms for link in links.values()) == 50
    lossy = {pair for pair, link in links.items() if link.loss == 0.001}
    assert all(link.loss in (0, 0.001) for link in links.values())
    expected = {
        "NoDropping": set(),
        "SharedDropping": {"middle-exit"},
        "DroppingRemaining": {"client-guard", "guard-middle"},
    }
    assert lossy == expected[name]
    assert scenario.duration_s == 300
