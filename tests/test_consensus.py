"""Consensus documents: how they are read, which are refused, and their distilled form."""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_consensus import FEW, WEIGHTS, MadeRelay, document, identity, nickname

from testbed.basics.errors import InputError
from testbed.network import distilled, exit_policies
from testbed.network.consensus import RELAY_COLUMNS, Consensus, parse_document, read_document
from testbed.network.finding import read_consensuses
from testbed.network.positions import probabilities, relay_classes


def parsed(text: str) -> Consensus:
    return parse_document("made", text.encode()).consensus


@pytest.mark.parametrize("microdesc", [False, True])
def test_a_document_is_read(microdesc: bool) -> None:
    consensus = parsed(document(microdesc=microdesc))
    relays = consensus.relays
    assert relays.schema == pl.Schema(RELAY_COLUMNS)
    assert consensus.day == "2021-11-30"
    assert consensus.flavour == ("microdesc" if microdesc else "ns")
    assert consensus.bandwidth_weights == WEIGHTS
    assert relays["weight"].to_list() == [relay.weight for relay in FEW]
    assert relays["guard"].to_list() == ["Guard" in relay.flags for relay in FEW]
    assert relays["bad_exit"].to_list() == ["BadExit" in relay.flags for relay in FEW]
    assert relays["network16"].to_list() == [0, 0, 1, 1, 2, 2]
    assert relays["family"].null_count() == len(FEW)
    policies = [None] * len(FEW) if microdesc else [relay.policy for relay in FEW]
    assert relays["policy"].to_list() == policies


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, zlib.compress, lambda content: content]
)
def test_compressed_documents_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    annotated = f"@type network-status-consensus-3 1.0\n{document()}".encode()
    file = tmp_path / "consensus"
    file.write_bytes(pack(annotated))
    assert read_document(file).consensus.relays.height == len(FEW)


def changed(old: str, new: str) -> tuple[str, int]:
    """A document with the first `old` replaced, and the number of its line."""
    text = document()
    assert old in text
    return text.replace(old, new, 1), text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w Bandwidth=300", "w Bandwidth=much"),
        ("valid-after 2021-11-30", "valid-after yesterday"),
        ("bandwidth-weights Wbd=0", "bandwidth-weights Wbd=x"),
    ],
)
def test_damage_is_told_with_its_line(old: str, new: str) -> None:
    text, line = changed(old, new)
    with pytest.raises(InputError, match=rf"^made, line {line}: the consensus is damaged: "):
        parsed(text)


def test_damage_without_a_quote_is_told_with_its_relays_line() -> None:
    text, line = changed("198.51.100.1 ", "198.51.100 ")
    with pytest.raises(InputError, match=rf"line {line}: .*IPv4 address"):
        parsed(text)


def test_a_relay_without_a_weight_is_told() -> None:
    text, line = changed("w Bandwidth=300\n", "")
    with pytest.raises(InputError, match=rf"line {line - 3}: the relay has no weight"):
        parsed(text)


def test_a_document_that_is_cut_off_is_refused_wherever_it_ends() -> None:
    lines = document().splitlines(keepends=True)
    for count in range(1, len(lines)):
        with pytest.raises(InputError, match=rf"^made, line {count}: .*cut off"):
            parsed("".join(lines[:count]))


def test_compressed_data_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "consensus.xz"
    packed = lzma.compress(document([MadeRelay(number) for number in range(1, 200)]).encode())
    file.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match=r"line \d+: .*(cut off|no consensus)"):
        read_document(file)
    file.write_bytes(packed[:50] + b"damage" + packed[56:])
    with pytest.raises(InputError, match="compressed data are damaged"):
        read_document(file)


def test_what_is_no_consensus_is_told() -> None:
    with pytest.raises(InputError, match="made, line 1: not a consensus document"):
        parsed("router made 192.0.2.1\n")
    with pytest.raises(InputError, match="unpack it first"):
        parse_document("made", b"\x28\xb5\x2f\xfd....")


def test_positions_have_the_consensuss_weights() -> None:
    consensus = parsed(document())
    assert relay_classes(consensus.relays).tolist() == [1, 1, 2, 0, 3, 0]
    for position, weights in (
        ("guard", [1000 * 0.6, 500 * 0.6, 0, 0, 800 * 0.1, 0]),
        ("middle", [1000 * 0.4, 500 * 0.4, 300 * 0.1, 400, 800 * 0.2, 20]),
        ("exit", [0, 0, 300 * 0.9, 0, 800 * 0.7, 0]),
    ):
        found = probabilities(consensus, position)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, np.array(weights) / sum(weights))


def test_positions_without_weights_are_as_in_tor() -> None:
    plain = parsed(document(weights={}))
    np.testing.assert_allclose(probabilities(plain, "exit")[[2, 4]], [3 / 11, 8 / 11])
    zero = parsed(document([MadeRelay(0, "Guard"), MadeRelay(0, "Guard"), MadeRelay(0)]))
    assert probabilities(zero, "guard").tolist() == [0.5, 0.5, 0]
    with pytest.raises(InputError, match="no relay can be exit"):
        probabilities(zero, "exit")


def test_exits_by_their_policies() -> None:
    relays = parsed(document()).relays
    assert exit_policies.accepting(relays, [(80, 80), (443, 443)]).tolist() == [
        *(False, False, True),
        *(True, True, True),
    ]
    assert exit_policies.accepting(relays, [(6881, 6889)])[2]
    assert not exit_policies.accepting(relays, [(6881, 6890)])[2]
    assert not exit_policies.accepting(relays, [(20, 30)])[4]
    assert not exit_policies.accepting(parsed(document(microdesc=True)).relays, [(80, 80)]).any()


def test_distilled_consensuses_tell_no_more_than_they_should(tmp_path: Path) -> None:
    file, other, geoip = tmp_path / "micro", tmp_path / "ns", tmp_path / "geoip"
    file.write_text(document(microdesc=True), encoding="utf-8")
    other.write_text(document(FEW[:4], valid_after="2021-08-29 19:00:00"), encoding="utf-8")
    first = int.from_bytes(bytes([192, 0, 0, 0]), "big")
    geoip.write_text(f"# made\n{first},{first + 65535},NL\n{first + 70000},{first + 70001},??\n")
    [made] = distilled.distil([file], tmp_path / "out", policies=[other], countries=geoip)
    assert made.name == "2021-11-30.parquet"
    content = made.read_bytes()
    for number, relay in enumerate(FEW):
        assert nickname(number).encode() not in content
        assert identity(number) not in content
        assert relay.address.encode() not in content
    consensus = distilled.read_distilled(made, "made")
    assert consensus.bandwidth_weights == WEIGHTS
    by_weight = dict(
        zip(consensus.relays["weight"], consensus.relays.rows(named=True), strict=True)
    )
    assert [by_weight[relay.weight]["policy"] for relay in FEW] == [
        *(relay.policy for relay in FEW[:4]),
        *(None, None),
    ]
    assert [by_weight[relay.weight]["country"] for relay in FEW] == ["nl", "nl", *[None] * 4]
    assert by_weight[1000]["network16"] == by_weight[500]["network16"]
    for position in ("guard", "middle", "exit"):
        whole = probabilities(read_document(file).consensus, position)
        np.testing.assert_allclose(sorted(whole), sorted(probabilities(consensus, position)))


def test_two_documents_of_a_day_are_not_mixed_up(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(document(), encoding="utf-8")
    with pytest.raises(InputError, match="of the same day"):
        distilled.distil([tmp_path / "one", tmp_path / "two"], tmp_path / "out")


def test_a_damaged_distilled_consensus_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"x\.parquet: damaged"):
        read_consensuses([str(tmp_path / "x.parquet")])


def test_the_projects_consensuses_are_small_and_whole() -> None:
    names = distilled.names()
    assert {"2021-11-30", "2021-08-29", "2026-04-18"} <= set(names)
    for consensus in read_consensuses([]):
        file = distilled.CONSENSUSES / f"{consensus.name}.parquet"
        assert consensus.name == consensus.day
        assert file.stat().st_size < 50_000
        assert consensus.relays.columns == list(RELAY_COLUMNS)
        assert consensus.relays.height > 6000


def test_consensuses_are_found_in_folders_and_archives(tmp_path: Path) -> None:
    folder, archive = tmp_path / "folder", tmp_path / "consensuses-2021.tar.xz"
    folder.mkdir()
    days = [f"2021-11-0{day} 03:00:00" for day in (3, 1, 2)]
    for number, day in enumerate(days):
        (folder / f"{number}.gz").write_bytes(gzip.compress(document(valid_after=day).encode()))
    with tarfile.open(archive, "w:xz") as tar:
        content = document(valid_after="2021-12-01 03:00:00").encode()
        member = tarfile.TarInfo("2021/12/01")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    found = read_consensuses([str(archive), str(folder), "2021-11-30"])
    assert [one.day for one in found] == [
        *("2021-11-01", "2021-11-02", "2021-11-03"),
        *("2021-11-30", "2021-12-01"),
    ]


def test_a_consensus_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'no consensus "2021-11-31".*did you mean "2021-11-30"'):
        read_consensuses(["2021-11-31"])
    with pytest.raises(InputError, match="there is no consensus in"):
        read_consensuses([str(tmp_path)])
