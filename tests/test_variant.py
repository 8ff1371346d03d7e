"""Variant files: inheritance, patches and sources; what would open the lab is refused."""

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.variant import Variant, read_variant

BASE = """
title = "A Tor"
[consensus]
cc_alg = 0
[premise]
shared_link = "one connection"
"""


def write(folder: Path, text: str, name: str = "mine") -> str:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def read(folder: Path, text: str) -> Variant:
    return read_variant(write(folder, text))


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_vanilla_is_tor_as_released() -> None:
    vanilla = read_variant("vanilla")
    assert vanilla.patches == ()
    assert vanilla.source is None
    assert vanilla.consensus_params == {"cc_alg": 0}
    assert vanilla.torrc_all == vanilla.torrc_relay == vanilla.torrc_client == {}
    assert vanilla.shared_link == "one connection"


def test_pctls_extends_vanilla() -> None:
    pctls = read_variant("pctls")
    assert [patch.name for patch in pctls.patches] == ["per-circuit-connections.patch"]
    assert pctls.torrc_relay == pctls.torrc_client == {"PerCircuitConnections": ["1"]}
    assert pctls.consensus_params == {"cc_alg": 0}
    assert pctls.shared_link == "one connection per circuit"


def test_extending_adds_patches_and_overrides_the_rest(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text("a")
    (tmp_path / "b.patch").write_text("b")
    (tmp_path / "c.patch").write_text("c")
    write(
        tmp_path,
        'title = "Base"\npatches = ["b.patch", "a.patch"]\n'
        '[torrc]\nKISTSchedRunInterval = "10 msec"\nNumCPUs = 1\n'
        '[torrc.relay]\nSchedulers = "KIST"\n[consensus]\ncc_alg = 0\nx = 1\n'
        '[premise]\nshared_link = "one connection"\n',
        "base",
    )
    variant = read(
        tmp_path,
        'title = "Mine"\nextends = "./base.toml"\npatches = ["c.patch"]\n'
        '[torrc]\nkistschedruninterval = "2 msec"\nSafeLogging = false\n'
        '[torrc.client]\nUseEntryGuards = ["0"]\n[consensus]\ncc_alg = 2\n',
    )
    assert [patch.name for patch in variant.patches] == ["b.patch", "a.patch", "c.patch"]
    assert variant.torrc_all == {
        "NumCPUs": ["1"],
        "kistschedruninterval": ["2 msec"],
        "SafeLogging": ["0"],
    }
    assert variant.torrc_relay == {"Schedulers": ["KIST"]}
    assert variant.torrc_client == {"UseEntryGuards": ["0"]}
    assert variant.consensus_params == {"cc_alg": 2, "x": 1}
    assert variant.shared_link == "one connection"
    assert (variant.name, variant.title) == ("mine", "Mine")


@pytest.mark.parametrize(
    "option",
    [
        *("DirAuthority", "AlternateDirAuthority", "FallbackDir", "UseDefaultFallbackDirs"),
        *("ControlPort", "SocksPort", "ORPort", "DataDirectory", "Address", "TestingTorNetwork"),
        *("Bridge", "UseBridges", "ServerDNSResolvConfFile", "MaxCircuitDirtiness"),
        *("__LeaveStreamsUnattached", "TestingEnableCellStatsEvent", "ConsensusParams"),
        *("dirauthority", "DIRAUTHORITY", "DirAuth", "FallbackD", "DirServer", "ResolvConf"),
    ],
)
@pytest.mark.parametrize("table", ["torrc", "torrc.relay", "torrc.client"])
def test_refuses_options_that_open_the_lab(tmp_path: Path, option: str, table: str) -> None:
    message = refused(tmp_path, f'{BASE}\n[{table}]\n{option} = "1"\n')
    assert f"{table}.{option} can't be set by a variant: " in message


@pytest.mark.parametrize(
    "option", ["Schedulers", "ConfluxEnabled", "NumCPUs", "AddressDisableIPv6", "BandwidthRate"]
)
def test_allows_other_options(tmp_path: Path, option: str) -> None:
    assert read(tmp_path, f'{BASE}\n[torrc]\n{option} = "1"\n').torrc_all == {option: ["1"]}


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('[torrc]\nNumCPUs = "1\\nDirAuthority x"\n', "torrc.NumCPUs must be one line"),
        ('[torrc]\nNumCPUs = "1\\\\"\n', "torrc.NumCPUs must be one line"),
        ('[torrc]\n"%include" = "/etc/tor/torrc"\n', "torrc.%include is no torrc option"),
        ('[torrc]\n"NumCPUs 1\\nORPort" = 1\n', "is no torrc option"),
        ('[torrc]\n"+DirAuthority" = "x"\n', "is no torrc option"),
        ("[torrc]\nNumCPUs = 1\nnumcpus = 2\n", "torrc.numcpus is there twice"),
        ("[torrc.relais]\nNumCPUs = 1\n", 'did you mean "relay"?'),
        ('[torrc]\nNumCPUs = ["1", [2]]\n', "torrc.NumCPUs must be a text"),
    ],
)
def test_refuses_what_is_no_torrc_line(tmp_path: Path, text: str, advice: str) -> None:
    assert advice in refused(tmp_path, BASE + text)


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("cc_alg = 0", 'cc_alg = "0"', 'consensus.cc_alg = "0"'),
        ("cc_alg = 0", "cc_alg = 4294967296", "consensus.cc_alg = 4294967296"),
        ("cc_alg = 0", "cc_alg = true", "consensus.cc_alg = true"),
        ("cc_alg = 0", '"cc alg" = 1', "is no consensus parameter"),
        ('"one connection"', '"two"', 'premise.shared_link = "two"'),
        ("shared_link", "shared_lnk", 'did you mean "shared_link"?'),
        ("[premise]", "[premises]", 'did you mean "premise"?'),
        ('[premise]\nshared_link = "one connection"', "", "premise.shared_link is missing"),
        ('title = "A Tor"', "", "the key title is missing"),
        ("[consensus]", 'patches = ["per-circuit.patch"]\n[consensus]', "did you mean"),
        ("[consensus]", 'source = "nowhere"\n[consensus]', "is no Tor source tree"),
        ("[consensus]", 'extends = "vanila"\n[consensus]', 'did you mean "vanilla"?'),
        ("[consensus]", 'extends = "mine.toml"\n[consensus]', "goes in a circle: mine → mine"),
        ("[consensus]", 'extends = "./no.toml"\n[consensus]', "mine.toml: extends: there is no"),
    ],
)
def test_refuses(tmp_path: Path, right: str, wrong: str, advice: str) -> None:
    assert advice in refused(tmp_path, BASE.replace(right, wrong))


def test_refuses_a_patch_twice(tmp_path: Path) -> None:
    text = 'title = "x"\nextends = "pctls"\npatches = ["per-circuit-connections.patch"]\n'
    assert "is applied twice" in refused(tmp_path, text)


def test_source_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "tor" / "src" / "app" / "main").mkdir(parents=True)
    assert read(tmp_path, 'source = "tor"\n' + BASE).source == tmp_path / "tor"


def test_suggests_the_nearest_variant() -> None:
    with pytest.raises(InputError, match='there is no variant "pctsl": did you mean "pctls"'):
        read_variant("pctsl")
