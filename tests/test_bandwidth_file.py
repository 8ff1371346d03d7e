"""Bandwidth files: read, written, and as the weights of a drawn network."""

import re
from pathlib import Path

import pytest
from drawn_networks import GOOD, NETWORK, draw, draw_scenario

from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.network.bandwidth_file import (
    UNMEASURED_WEIGHT,
    BandwidthFile,
    MeasuredRelay,
    bandwidth_file_text,
    parse_bandwidth_file,
    read_bandwidth_file,
    write_bandwidth_file,
)
from testbed.network.bandwidth_weights import Totals, bandwidth_weights
from testbed.network.drawn import bandwidth_file_of

ONE, OTHER = "A" * 40, "B" * 40
HEADER = "1638241200\nversion=1.4.0\nsoftware=sbws\nsoftware_version=1.1.0\n=====\n"
LINE = f"node_id=${ONE} bw=760 nick=relay1\n"


def test_a_file_as_sbws_writes_it() -> None:
    """The example of bandwidth-file-spec, appendix A.3, shortened."""
    line = (
        "bw=38000 bw_mean=1127824 bw_median=1180062 desc_avg_bw=1073741824 error_circ=0"
        f" master_key_ed25519=YaqV4vbvPYKucElk297eVdNArDz9HtIwUoIeo0+cVIpQ nick=Test node_id=${ONE}"
        " rtt=380 success=1 time=2018-05-08T16:13:26\n"
    )
    unmeasured = f"bw=1 nick=Unseen node_id=${OTHER} unmeasured=1 vote=0\n"
    file = parse_bandwidth_file("v3bw", (HEADER + line + unmeasured).encode())
    assert file.unix_time == 1638241200
    assert file.header == {"software": "sbws", "software_version": "1.1.0"}
    [relay] = file.relays
    assert (relay.fingerprint, relay.nickname, relay.weight) == (ONE, "Test", 38000)
    assert relay.others["rtt"] == "380"


def test_a_file_of_version_1_0_has_no_header() -> None:
    text = f"1523911758\nnode_id=${ONE} bw=760 nick=Test\nnode_id=${OTHER} bw=1\n"
    file = parse_bandwidth_file("v3bw", text.encode())
    assert [relay.weight for relay in file.relays] == [760, 1]
    assert list(file.by_nickname()) == ["Test"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    relays = (
        MeasuredRelay(ONE, "relay1", 12, {"scanner": "flashflow"}),
        MeasuredRelay(OTHER, None, 2**32 - 1),
    )
    file = BandwidthFile(1638241200, relays, {"software": "hydra-testbed", "seed": "3"})
    path = tmp_path / "below" / "v3bw"
    write_bandwidth_file(path, file)
    assert read_bandwidth_file(path) == file
    # Tor's authorities look for these words (dirserv_read_measured_bandwidths).
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].isdigit()
    assert lines[1] == "version=1.4.0"
    assert lines.index("=====") == 4
    assert lines[5].split()[:2] == [f"node_id=${ONE}", "bw=12"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "v3bw, line 1: not a bandwidth file, which begins with a time"),
        ("title = 1\n", "v3bw, line 1: not a bandwidth file"),
        # Stem would never end on this one.
        ("1638241200\nversion=1.4.0\n" + LINE, "v3bw, line 3: *cut off within its header"),
        ("1638241200\nversion=1.4.0\n", "v3bw, line 2: *cut off within its header"),
        (HEADER, "v3bw: the bandwidth file has no relay"),
        (HEADER + LINE.replace("bw=", "bw"), "v3bw: the bandwidth file is damaged: "),
        (HEADER + LINE.replace("node_id", "id"), "v3bw: *is damaged: *node_id"),
        (HEADER + LINE + LINE, "v3bw: *is damaged: *listed multiple times"),
        (HEADER + LINE.replace(ONE, "AA"), "v3bw, line 6: node_id=AA is no fingerprint"),
        (HEADER + LINE.replace(" bw=760", ""), "v3bw, line 6: the relay has no weight: write bw="),
        (HEADER + LINE.replace("760", "0"), "v3bw, line 6: bw=0 is no weight: write a whole"),
        (HEADER + LINE.replace("760", "-3"), "v3bw, line 6: bw=-3 is no weight"),
        (HEADER + LINE.replace("760", "9" * 10), "v3bw, line 6: bw=9999999999 is no weight"),
        (HEADER + "\x00\xff" + LINE, "v3bw: the bandwidth file is damaged"),
    ],
)
def test_damaged_files_are_refused(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected).replace(r"\*", ".*")) as caught:
        parse_bandwidth_file("v3bw", text.encode("latin-1"))
    assert "\n" not in str(caught.value)


def written(folder: Path, *weights: int, header: str = "") -> str:
    """A bandwidth file for relay1 and so on, and the key that names it."""
    relays = [
        MeasuredRelay(f"{number:040X}", f"relay{number}", weight)
        for number, weight in enumerate(weights, 1)
    ]
    named = dict([header.split("=")]) if header else {}
    file = BandwidthFile(1638241200, tuple(relays), named)
    (folder / "weights-1.v3bw").write_text(bandwidth_file_text(file), encoding="utf-8")
    return NETWORK + 'bandwidth_file = "weights-{seed}.v3bw"\n'


def test_relays_have_the_files_weights_and_their_drawn_rates(tmp_path: Path) -> None:
    plain = draw(tmp_path)
    measured = draw(tmp_path, written(tmp_path, 4000, 300, 20, 1))
    assert [one.weight for one in measured.network.of_kind("relay")] == [4000, 300, 20, 1]
    relays = plain.network.of_kind("relay")
    assert measured.drawn_weights == {one.name: one.weight for one in relays}
    same = [one.model_copy(update={"weight": None}) for one in plain.network.nodes]
    assert same == [one.model_copy(update={"weight": None}) for one in measured.network.nodes]
    assert measured.network.links == plain.network.links
    by_class = {one.relay_class: one.weight or 0 for one in measured.network.of_kind("relay")}
    assert measured.bandwidth_weights == bandwidth_weights(Totals(**by_class))


def test_a_relay_that_nobody_measured_has_what_authorities_let_it_have(tmp_path: Path) -> None:
    measured = draw(tmp_path, written(tmp_path, 4000, 300, 1))
    weights = [one.weight for one in measured.network.of_kind("relay")]
    assert weights == [4000, 300, 1, UNMEASURED_WEIGHT]


def test_a_plan_says_that_its_weights_were_measured(tmp_path: Path) -> None:
    draw(tmp_path)
    scenario = str(tmp_path / "mine.toml")
    plain = make_plan(scenario, "vanilla")
    (tmp_path / "mine.toml").write_text(GOOD + written(tmp_path, 4, 3, 2, 1), encoding="utf-8")
    measured = make_plan(scenario, "vanilla")
    assert (plain.measured_weights, measured.measured_weights) == (False, True)
    assert plain.key != measured.key
    (tmp_path / "mine.toml").write_text(GOOD + written(tmp_path, 4, 3, 2, 2), encoding="utf-8")
    assert make_plan(scenario, "vanilla").key != measured.key


@pytest.mark.parametrize(
    ("weights", "header", "seed", "expected"),
    [
        ((), "", 1, "weights-1.v3bw: the bandwidth file has no relay"),
        ((4, 3, 2, 1), "seed=7", 1, "is of the network that the seed 7 draws, not 1: take"),
        ((4, 3, 2, 1), "", 2, "weights-2.v3bw: No such file"),
    ],
)
def test_files_that_do_not_fit_the_network_are_refused(
    tmp_path: Path, weights: tuple[int, ...], header: str, seed: int, expected: str
) -> None:
    network = written(tmp_path, *weights, header=header)
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        draw(tmp_path, network, seed=seed)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml: network.bandwidth_file: "))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_file_of_other_relays_names_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "v3bw"
    file.write_text(HEADER + LINE.replace("relay1", "Unnamed"), encoding="utf-8")
    change = f"network.bandwidth_file={file}"
    assert main(["network", "SmallNetwork", "--set", change]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{file} names no relay of the network, which has relay1 to relay10" in line


def test_the_command_writes_and_shows_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weights.v3bw"
    assert main(["network", "SmallNetwork", "--seed", "2", "--v3bw", str(file)]) == 0
    assert "in the\nconsensus" not in capsys.readouterr().out
    drawn = draw_scenario("SmallNetwork", 2)
    assert read_bandwidth_file(file) == bandwidth_file_of(drawn)
    weight = drawn.network.node("relay3").weight
    file.write_text(file.read_text().replace(f"bw={weight} nick=relay3", "bw=77777 nick=relay3"))
    change = f"network.bandwidth_file={file}"
    assert main(["network", "SmallNetwork", "--seed", "2", "--set", change]) == 0
    rows = [one.split() for one in capsys.readouterr().out.splitlines()]
    [row] = [one for one in rows if one[:1] == ["relay3"]]
    assert (row[3], row[5]) == ("77777", str(weight))
    assert main(["network", "SmallNetwork", "--seeds", "2", "--v3bw", str(file)]) == 2
    assert "--v3bw shows the network of one --seed" in capsys.readouterr().err
