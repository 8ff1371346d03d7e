"""How variants are named: parameters, combinations, known names, and what is refused."""

from pathlib import Path

import pytest
from command_line import refused as refused_command

from testbed.asked.output import default_output
from testbed.asked.plans import make_plan
from testbed.asked.variant import read_variant
from testbed.asked.variant_name import TOR_CONFIGS, as_typed, beside, joined, known_names
from testbed.asked.variant_sum import name_of, terms_of
from testbed.basics.errors import InputError
from testbed.basics.toml_file import names_in
from testbed.batch import read_batch

PER_CIRCUIT = "per-circuit-connections.patch"
PER_PAIR = "connections-per-pair.patch"
OWN = {"PerCircuitConnections": ["1"]}
ONE_EACH = "one connection per circuit"

WITH_PARAMETERS = """
title = "Every ${interval} ms, by ${scheduler}"
extends = "vanilla"
scheduler = "${scheduler}"

[torrc]
KISTSchedRunInterval = ["${interval} msec"]

[consensus]
cellq_high = "${cells}"

[parameters]
interval = 2.5
cells = 64
scheduler = "KIST"
"""


def write(folder: Path, text: str, name: str = "mine") -> str:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_variant(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Names.


@pytest.mark.parametrize("name", [*names_in(TOR_CONFIGS), *known_names()])
def test_a_known_name_is_the_name_of_what_it_stands_for(name: str) -> None:
    meaning = joined(known_names().get(name, ())) or name
    assert name_of(terms_of(name)) == read_variant(meaning).name
    if name in known_names():
        assert read_variant(name).name == name


def test_a_known_name_is_no_files_name() -> None:
    assert not {*names_in(TOR_CONFIGS)} & {*known_names()}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("pctls+vegas", "pctls-vegas"),
        ("vegas+pctls", "pctls-vegas"),
        (" pctls + vegas ", "pctls-vegas"),
        ("vegas", "vanilla-vegas"),
        ("vanilla+vegas", "vanilla-vegas"),
        ("vanilla-vegas+pctls", "pctls-vegas"),
        ("pctls+vanilla", "pctls"),
        ("conflux+vegas", "conflux"),
        ("pctls+vegas+conflux", "pctls-conflux"),
        ("live-2026+pctls", "pctls-live-2026"),
        ("live-2026+conflux", "live-2026-conflux"),
        ("mctor", "mctor-5"),
        ("mctor()", "mctor-5"),
        ("mctor(rule = hashing, k = 04)", "mctor-4-hashing"),
        ("mctor(k=5)+vegas", "mctor-5-vegas"),
        ("mctor-3+vegas", "mctor(k=3)+vegas"),
        ("mctor(rule=hashing, k=7)", "mctor(k=7,rule=hashing)"),
        ("mctor(k=1)", "mctor(k=1)"),
        ("vegas+own-up-to(n=3)", "own-up-to+vegas"),
        ("kistlite+kist", "kistlite+kist"),  # in another order, another scheduler
        ("kist+kistlite", "kist+kistlite"),
    ],
)
def test_each_meaning_has_one_name(typed: str, name: str) -> None:
    variant = read_variant(typed)
    assert variant.name == name
    assert read_variant(name) == variant


def test_results_go_to_the_folder_of_that_name() -> None:
    plan = make_plan("One", "mctor(k=7, rule=hashing)+vegas")
    assert str(default_output(plan)) == "results/One/mctor(k=7,rule=hashing)+vegas/seed-1"
    assert make_plan("One", "pctls+vegas") == make_plan("One", "pctls-vegas")


def test_files_outside_have_their_own_names(tmp_path: Path) -> None:
    file = write(tmp_path, WITH_PARAMETERS)
    assert read_variant(file).name == "mine"
    assert read_variant(f"{file}(interval=2.50)").name == "mine"
    assert read_variant(f"{file}(cells=7,interval=10)+vegas").name == (
        "mine(interval=10,cells=7)+vegas"
    )
    own = write(tmp_path, 'title = "x"\nextends = "vanilla"\n', "pctls")
    assert read_variant(f"{own}+vegas").name == "pctls+vegas"


def test_a_path_may_have_any_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c++ (old)"
    folder.mkdir()
    file = write(folder, WITH_PARAMETERS)
    monkeypatch.chdir(tmp_path)
    for typed in (file, "c++ (old)/mine.toml", "./c++ (old)/mine.toml"):
        assert read_variant(typed).name == "mine"
    assert read_variant("./c++ (old)/mine.toml(cells=1)+vegas").name == "mine(cells=1)+vegas"


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    text = "./mine.toml(cells=7)+vegas+~/x.toml+pctls"
    home = Path("~/x.toml").expanduser()
    assert beside(tmp_path / "batch.toml", text) == (
        f"{tmp_path}/mine.toml(cells=7)+vegas+{home}+pctls"
    )


def test_a_plans_name_can_be_typed() -> None:
    assert as_typed("mctor-5-vegas") == "mctor-5-vegas"
    assert as_typed("mctor(k=7,rule=hashing)+vegas") == "mctor(k=7,rule=hashing)+vegas"
    assert as_typed("mine(cells=7)+vegas") == "mine.toml(cells=7)+vegas"
    assert as_typed("mine)") == "mine).toml"


# What is named.


def test_known_variants_are_what_they_were() -> None:
    """A literal of each kind; all names have the premise and patches of what they add."""
    mctor = read_variant("mctor-4-hashing")
    assert mctor.title == "4 circuits side by side for each client (stream rule: hashing)"
    assert (mctor.parallel_circuits, mctor.stream_rule) == (4, "hashing")
    assert [patch.name for patch in mctor.patches] == [PER_CIRCUIT]
    assert mctor.torrc_relay == mctor.torrc_client == OWN
    assert (mctor.consensus_params, mctor.shared_link) == ({"cc_alg": 0}, ONE_EACH)

    threshold = read_variant("own-up-to-7")
    assert threshold.title == "A connection for each circuit, up to 7 for each pair of relays"
    assert [patch.name for patch in threshold.patches] == [PER_CIRCUIT, PER_PAIR]
    assert threshold.torrc_relay == {"ConnectionsPerPair": ["7"], **OWN}
    assert (threshold.torrc_client, threshold.shared_link) == ({}, "one connection")
    assert (threshold.per_circuit_up_to, threshold.connections_per_pair) == (7, None)

    vegas = read_variant("pctcp-vegas")
    assert vegas.title == (
        "A plain TCP connection for each circuit, over IPsec, with congestion control"
    )
    assert [patch.name for patch in vegas.patches] == [PER_CIRCUIT, "plain-relay-connections.patch"]
    assert vegas.torrc_relay == {**OWN, "PlainRelayConnections": ["1"]}
    assert (vegas.consensus_params, vegas.ipsec) == ({"cc_alg": 2}, True)

    linked = read_variant("pctls-conflux")
    assert linked.title == "A connection for each circuit, with linked circuits"
    assert (linked.torrc_all, linked.shared_link) == ({"ConfluxEnabled": ["1"]}, ONE_EACH)

    old = read_variant("vanilla-2021")
    assert old.title == "Tor as it is released, release 0.4.5 of the paper's time"
    assert (old.release, old.patches, old.torrc_all) == ("0.4.5.16", (), {})
    assert read_variant("live-2021").release == "0.4.5.16"

    live = read_variant("pctls-live-2026")
    assert live.title == "A connection for each circuit, with the live network's parameters"
    assert live.consensus_params == read_variant("live-2026").consensus_params
    assert (live.consensus_params["cc_alg"], len(live.consensus_params)) == (2, 44)
    assert (live.torrc_relay, live.shared_link) == (OWN, ONE_EACH)

    scheduler = read_variant("vanilla-kistlite")
    assert (scheduler.torrc_all, scheduler.patches) == ({"Schedulers": ["KISTLite"]}, ())


def test_parameters_go_where_the_file_uses_them(tmp_path: Path) -> None:
    file = write(tmp_path, WITH_PARAMETERS)
    plain = read_variant(file)
    assert plain.title == "Every 2.5 ms, by KIST"
    assert plain.torrc_all["KISTSchedRunInterval"] == ["2.5 msec"]
    other = read_variant(f"{file}(cells=7, interval=10, scheduler=KISTLite)")
    assert other.title == "Every 10 ms, by KISTLite"
    assert other.torrc_all == {"KISTSchedRunInterval": ["10 msec"], "Schedulers": ["KISTLite"]}
    assert other.consensus_params == {"cellq_high": 7, "cc_alg": 0}


def test_files_extend_what_can_be_typed(tmp_path: Path) -> None:
    write(tmp_path, WITH_PARAMETERS, "base")
    text = 'title = "x"\nextends = "./base.toml(cells=${n})+mctor(k=2)"\n[parameters]\nn = 1\n'
    variant = read_variant(f"{write(tmp_path, text)}(n=9)")
    assert (variant.name, variant.title) == ("mine(n=9)", "x")
    assert (variant.parallel_circuits, variant.consensus_params["cellq_high"]) == (2, 9)


# A + B.


def test_b_is_over_a_and_the_base_of_both_is_below(tmp_path: Path) -> None:
    explicit = 'title = "A"\nextends = "vanilla"\ncc_alg = "sendme"\n[consensus]\nx = 1\ny = 1\n'
    first = write(tmp_path, explicit, "first")
    second = write(tmp_path, 'title = "B"\n[consensus]\ny = 2\n', "second")
    variant = read_variant(f"{first}+{second}+live-2026")
    assert variant.consensus_params.items() >= {"x": 1, "y": 2, "cc_alg": 2}.items()
    assert variant.name == "first+live-2026+second"
    assert read_variant(f"{second}+{first}").consensus_params == {"cc_alg": 0, "x": 1, "y": 1}


def test_a_keeps_its_premise_unless_b_has_one(tmp_path: Path) -> None:
    premise = f'[premise]\nshared_link = "{ONE_EACH}"\n'
    alone = write(tmp_path, f'title = "x"\n[consensus]\nx = 1\n{premise}', "alone")
    assert read_variant(f"{alone}+kist").shared_link == ONE_EACH
    assert "cc_alg" not in read_variant(f"{alone}+kist").consensus_params
    extends = write(tmp_path, 'title = "x"\nextends = "vanilla"\nscheduler = "KIST"\n', "extends")
    both = read_variant(f"{alone}+{extends}")
    assert (both.shared_link, both.torrc_all) == (ONE_EACH, {"Schedulers": ["KIST"]})
    assert read_variant(f"{alone}+vanilla").shared_link == "one connection"


def test_patches_are_united(tmp_path: Path) -> None:
    variant = read_variant("own-up-to+pctls")
    assert [patch.name for patch in variant.patches] == [PER_CIRCUIT, PER_PAIR]
    text = f'title = "x"\npatches = ["{PER_CIRCUIT}", "{PER_CIRCUIT}"]\n'
    assert "is applied twice" in refused(write(tmp_path, text))


def test_what_has_no_premise_is_on_vanilla(tmp_path: Path) -> None:
    variant = read_variant(write(tmp_path, 'title = "with mine"\ncc_alg = "vegas"\n'))
    vegas = read_variant("vanilla-vegas")
    assert (variant.name, variant.title) == ("mine", "Tor as it is released, with mine")
    apart = {"name", "title", "description"}
    assert variant.model_dump(exclude=apart) == vegas.model_dump(exclude=apart)


def test_titles_are_joined(tmp_path: Path) -> None:
    file = write(tmp_path, 'title = "Mine"\nextends = "vanilla"\n')
    assert read_variant(f"{file}+vegas").title == "Mine, with congestion control"
    assert read_variant(f"pctls+{file}").title == "Mine; A connection for each circuit"


# What is refused.


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("pctsl+vegas", 'there is no variant "pctsl": did you mean "pctls"?'),
        ("mctor-7", 'did you mean "mctor-5", which is mctor(k=5)? (there are: best-circuit, '),
        ("mctor-5(k=3)", "mctor-5 stands for mctor(k=5) and takes no values: write them there"),
        ("mctor(rules=hashing)", 'mctor has no parameter rules: did you mean "rule"? (there are: '),
        ("vegas(k=3)", 'variant "vegas(k=3)": vegas has no parameter k: there are none'),
        ("mctor(k=many)", 'variant "mctor(k=many)": k = "many" is no whole number: write for'),
        ("mctor(k=4.5)", 'k = "4.5" is no whole number: write for example k=5'),
        (
            "mctor(k=33)+vegas",
            'variant "mctor(k=33)": tor-configs/mctor.toml: parallel_circuits = 33 is no whole'
            " number from 1 to 32",
        ),
        ("mctor(rule=hash)", 'is no rule for streams: did you mean "hashing"?'),
        ("mctor(k=4", 'variant "mctor(k=4": the "(" after mctor has no ")": write NAME or NAME('),
        ("mctor((k=4)", 'the "(" after mctor has no ")"'),
        ("mctor(k=4))", '")" can\'t follow mctor(k=4): write NAME'),
        ("mctor(k=4)vegas", '"vegas" can\'t follow mctor(k=4): write NAME'),
        ("mctor(4)", '"4" is not a parameter with its value, a number or a word: write NAME'),
        ("mctor(k=)", '"k=" is not a parameter with its value'),
        ("mctor(k=4,k=5)", "k is given twice: keep one of them"),
        ("pctls+", 'variant "pctls+": there is no name at its end: write NAME'),
        ("pctls++vegas", 'there is no name before "+vegas": write NAME'),
        ("mctor(k=3)+mctor", "mctor(k=3) and mctor are both in it: leave one of them out"),
        ("mctor+conflux", 'variant "mctor+conflux": conflux = true with parallel_circuits: '),
        ("own-up-to+shared-by-number", "both say which connection a circuit takes"),
        ("./no.toml+vegas", 'there is no variant file "./no.toml"'),
    ],
)
def test_refuses_names(typed: str, advice: str) -> None:
    assert advice in refused(typed)


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("${cells}", "${cell}", 'consensus.cellq_high = "${cell}": cell isn\'t declared: give it'),
        ("${cells}", "${cell}", '(did you mean "cells"? (there are: interval, cells, scheduler))'),
        ("${interval} msec", "${} msec", "torrc.KISTSchedRunInterval = "),
        ('"${cells}"', "64", 'parameters.cells is used nowhere: write "${cells}" where'),
        ("cells = 64", "cells = true", "parameters.cells must be a number or a text"),
        ("cells = 64", "cells = [1]", "parameters.cells must be a number or a text"),
        ("cells = 64", '"a b" = 64', "parameters.a b: a parameter's name has letters"),
        ("cells = 64", 'cells = "a b"', 'parameters.cells = "a b" must be a number or one word'),
        ("cells = 64", 'cells = "64"', 'consensus.cellq_high = "64" is wrong: it should be'),
        ("[parameters]", "[parameter]", "isn't declared: give it a default in [parameters]"),
        ("[parameters]", '[x]\ny = "1"\n[parameters]', "unknown key x: there are: title"),
        ("vanilla", "mctor(k=x)", 'mine.toml: extends: variant "mctor(k=x)": k = "x" is no'),
        ("vanilla", "mctor(k=3", 'mine.toml: extends: variant "mctor(k=3": the "("'),
        ("vanilla", "vegas+mine.toml", "mine.toml: extends goes in a circle: mine → mine"),
    ],
)
def test_refuses_files(tmp_path: Path, right: str, wrong: str, advice: str) -> None:
    assert right in WITH_PARAMETERS
    message = refused(write(tmp_path, WITH_PARAMETERS.replace(right, wrong)))
    assert advice in message
    assert "mine.toml: " in message


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["scenario", "One", "--variant", "mctor(k=4"], 'the "(" after mctor has no ")"'),
        (["compare", "One", "pctls+vegas", "pctls-vegas"], "two of the variants are called pctls-"),
        (["compare", "One", "vanilla", "mctor(n=2)"], "mctor has no parameter n: there are: k"),
    ],
)
def test_commands_are_refused_in_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    advice: str,
) -> None:
    assert advice in refused_command(arguments, monkeypatch, capsys)


def test_batches_name_variants_in_the_same_way(tmp_path: Path) -> None:
    write(tmp_path, WITH_PARAMETERS)
    variants = '["./mine.toml(cells=7)+vegas", "mctor(k=7)", "pctls+vegas"]'
    batch = f'title = "x"\nvariants = {variants}\n[[runs]]\nscenarios = ["One"]\n'
    plans = read_batch(write(tmp_path, batch, "batch")).plans
    assert [plan.variant for plan in plans.values()] == [
        *("mine(cells=7)+vegas", "mctor(k=7)", "pctls-vegas")
    ]
    with pytest.raises(InputError, match=r'batch.toml: runs\[1\]: variant "mctor\(k=7": the '):
        read_batch(write(tmp_path, batch.replace("(k=7)", "(k=7"), "batch"))
