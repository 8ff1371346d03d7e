"""Variant files: inheritance, patches and sources; what would open the lab is refused."""

import ipaddress
import re
from pathlib import Path

import pytest

from testbed.asked.plans import make_plan
from testbed.asked.variant import Variant, read_variant
from testbed.asked.variant_name import TOR_CONFIGS, known_names
from testbed.basics.errors import InputError
from testbed.basics.toml_file import names_in
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, authority_lines, torrc

BASE = """
title = "A Tor"
[consensus]
cc_alg = 0
[premise]
shared_link = "one connection"
"""

DIRECTORIES = r"(Dir|AlternateDir|AlternateBridge)Authority|FallbackDir|Bridge\b"
"""The options by which a Tor is told whom to ask for a consensus."""
ON_TOPOLOGIES = sorted({*names_in(TOR_CONFIGS)} - {"some-relays", "best-circuit"})
"""The variants that can be run on a topology; see test_deployment and test_best_circuit."""
INSIDE = [ipaddress.ip_network(text) for text in ("10.0.0.0/15", "127.0.0.0/8")]


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


def test_vegas_and_conflux_extend_the_others() -> None:
    for name, base in (("vanilla-vegas", "vanilla"), ("pctls-vegas", "pctls")):
        apart = {"name", "title", "description", "consensus_params"}
        assert read_variant(name).model_dump(exclude=apart) == read_variant(base).model_dump(
            exclude=apart
        )
        assert read_variant(name).consensus_params == {"cc_alg": 2}
    conflux = read_variant("conflux")
    assert conflux.conflux
    assert conflux.torrc_all == {"ConfluxEnabled": ["1"]}
    assert conflux.consensus_params["cc_alg"] == 2
    assert conflux.consensus_params["cfx_num_legs_set"] == 2


@pytest.mark.parametrize(
    ("key", "torrc", "consensus"),
    [
        ('cc_alg = "sendme"', {}, {"cc_alg": 0}),
        ('cc_alg = "vegas"', {}, {"cc_alg": 2}),
        ('scheduler = "KIST"', {"Schedulers": ["KIST"]}, {}),
        ('scheduler = "KISTLite"', {"Schedulers": ["KISTLite"]}, {}),
        ('scheduler = "Vanilla"', {"Schedulers": ["Vanilla"]}, {}),
        ("conflux = false", {}, {}),
    ],
)
def test_keys_of_tors_choices(
    tmp_path: Path, key: str, torrc: dict[str, list[str]], consensus: dict[str, int]
) -> None:
    variant = read(tmp_path, f"{key}\n{BASE.replace('cc_alg = 0', '')}")
    assert (variant.torrc_all, variant.consensus_params) == (torrc, consensus)
    assert not variant.conflux


def test_the_last_key_holds(tmp_path: Path) -> None:
    text = 'title = "x"\nextends = "conflux"\nconflux = false\ncc_alg = "sendme"\n'
    variant = read(tmp_path, text)
    assert not variant.conflux
    assert (variant.torrc_all, variant.consensus_params) == ({}, {"cc_alg": 0})


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ('cc_alg = "vega"', 'cc_alg = "vega" is no congestion control of circuits: did you mean'),
        ('cc_alg = "Vegas"', 'did you mean "vegas"? (there are: sendme, vegas)'),
        ("cc_alg = 2", "cc_alg = 2 is no congestion control of circuits: there are: sendme, vegas"),
        ('scheduler = "kist"', 'scheduler = "kist" is no scheduler: did you mean "KIST"?'),
        ('scheduler = ["KIST"]', "scheduler is no scheduler: "),
        ('schedulers = "KIST"', 'unknown key schedulers: did you mean "scheduler"?'),
        ('conflux = "on"', 'conflux = "on" is wrong: it should be a valid boolean'),
        ("conflux = 1", "conflux = 1 is wrong: it should be a valid boolean"),
        ("conflux = true", "conflux = true with a fixed window: Tor links no circuits then; write"),
    ],
)
def test_refuses_key(tmp_path: Path, key: str, advice: str) -> None:
    assert advice in refused(tmp_path, f'title = "x"\nextends = "vanilla"\n{key}\n')


def test_legs_may_have_connections_of_their_own() -> None:
    variant = read_variant("pctls-conflux")
    assert variant.conflux
    assert variant.shared_link == "one connection per circuit"


@pytest.mark.parametrize(
    ("key", "table", "place"),
    [
        ('cc_alg = "vegas"', "[consensus]\ncc_alg = 2", "consensus.cc_alg"),
        ('scheduler = "KIST"', '[torrc]\nSchedulers = "Vanilla"', "torrc.Schedulers"),
        ('scheduler = "KIST"', '[torrc.relay]\nschedulers = "KIST"', "torrc.relay.schedulers"),
        ('scheduler = "KIST"', '[torrc.client]\nSchedul = "KIST"', "torrc.client.Schedul"),
        ("conflux = true", "[consensus]\ncfx_num_legs_set = 3", "consensus.cfx_num_legs_set"),
    ],
)
def test_refuses_what_is_said_twice(tmp_path: Path, key: str, table: str, place: str) -> None:
    name = key.partition(" ")[0]
    said = refused(
        tmp_path, f'title = "x"\n{key}\n{table}\n[premise]\nshared_link = "one connection"'
    )
    assert f"mine.toml: {place} sets what the key {name} sets: say it once" in said
    write(tmp_path, f'title = "Base"\n{key}\n[premise]\nshared_link = "one connection"\n', "base")
    extending = refused(tmp_path, f'title = "x"\nextends = "./base.toml"\n{table}\n')
    assert f"mine.toml: {place} sets what the key {name} in {tmp_path}/base.toml sets" in extending


@pytest.mark.parametrize(
    ("table", "advice"),
    [
        ("[torrc]\nConfluxEnabled = 1", "the key is conflux, beside the title"),
        ("[torrc.client]\n__AlwaysCongestionControl = 1", "the key is cc_alg, beside the title"),
        ("[consensus]\ncfx_enabled = 1", "the key is conflux, beside the title"),
        ("[consensus]\nAuthDirMaxServersPerAddr = 8", "the testbed sets it for every node"),
    ],
)
def test_refuses_tables_that_have_a_key(tmp_path: Path, table: str, advice: str) -> None:
    """In a table they would change nothing, or not for all Tors."""
    assert advice in refused(tmp_path, f'title = "x"\nextends = "vanilla"\n{table}\n')


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
        '[torrc.client]\nNumEntryGuards = ["3"]\n[consensus]\ncc_alg = 2\n',
    )
    assert [patch.name for patch in variant.patches] == ["b.patch", "a.patch", "c.patch"]
    assert variant.torrc_all == {
        "NumCPUs": ["1"],
        "kistschedruninterval": ["2 msec"],
        "SafeLogging": ["0"],
    }
    assert variant.torrc_relay == {"Schedulers": ["KIST"]}
    assert variant.torrc_client == {"NumEntryGuards": ["3"]}
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
    "option", ["Schedulers", "ConfluxClientUX", "NumCPUs", "AddressDisableIPv6", "BandwidthRate"]
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


def test_names_a_release(tmp_path: Path) -> None:
    variant = read(tmp_path, 'tor = "0.4.5.16"\n' + BASE)
    assert (variant.release, variant.source) == ("0.4.5.16", None)


def test_the_last_tor_that_is_named_holds(tmp_path: Path) -> None:
    (tmp_path / "tor" / "src" / "app" / "main").mkdir(parents=True)
    own = write(tmp_path, 'title = "x"\nextends = "vanilla-2021"\nsource = "tor"\n', "own")
    variant = read_variant(own)
    assert (variant.release, variant.source) == (None, tmp_path / "tor")
    variant = read(tmp_path, f'title = "x"\nextends = "{own}"\ntor = "0.4.9.11"\n')
    assert (variant.release, variant.source) == ("0.4.9.11", None)


def test_refuses_two_tors(tmp_path: Path) -> None:
    assert refused(tmp_path, 'tor = "0.4.5.16"\nsource = "tor"\n' + BASE).endswith(
        "mine.toml: tor and source both name a Tor: leave one of them out"
    )


def test_refuses_a_release_that_is_not_pinned(tmp_path: Path) -> None:
    told = refused(tmp_path, 'tor = "0.4.6.10"\n' + BASE)
    assert 'mine.toml: tor = "0.4.6.10": tor 0.4.6.10 is not pinned: there are ' in told
    assert "0.4.9.11, 0.4.5.16; another one is added to" in told
    assert "pins.toml with its SHA-256" in told


def test_the_variants_of_2021_have_no_other_setting() -> None:
    for name, base in (("vanilla-2021", "vanilla"), ("pctls-2021", "pctls")):
        apart = {"name", "title", "description", "release"}
        old = read_variant(name)
        assert old.model_dump(exclude=apart) == read_variant(base).model_dump(exclude=apart)
        assert old.release == "0.4.5.16"


def test_suggests_the_nearest_variant() -> None:
    with pytest.raises(InputError, match='there is no variant "pctsl": did you mean "pctls"'):
        read_variant("pctsl")


@pytest.mark.parametrize("variant", [*ON_TOPOLOGIES, *known_names()])
def test_no_tor_knows_an_authority_but_the_labs(tmp_path: Path, variant: str) -> None:
    """Nor any other address outside, as its torrc is in a run."""
    plan = make_plan("TwoPaths", variant)
    identities = {"authority1": AuthorityIdentity("0" * 40, "1" * 40)}
    tors = [node for node in plan.nodes if node.role != "server"]
    for node in tors:
        text = torrc(plan, node, TorFiles(node.name, tmp_path, tmp_path / "log"), identities)
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        directories = [line for line in lines if re.match(DIRECTORIES, line, re.IGNORECASE)]
        assert directories == [f"DirAuthority {line}" for line in authority_lines(plan, identities)]
        for address in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", "\n".join(lines)):
            assert any(ipaddress.ip_address(address) in inside for inside in INSIDE), address
