"""Counter Galois Onion: the key `cgo`, and the check of the relay cells that circuits have."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machine import run_scenario
from rich.console import Console

from testbed.asked.plans import make_plan
from testbed.asked.variant import read_variant
from testbed.basics.check import Check
from testbed.basics.errors import InputError
from testbed.inside.checks.congestion_control import (
    RELAY_CELLS,
    cgo_expected,
    relay_cells,
    relay_subprotocols,
)
from testbed.inside.probes.relay_cells import Seen
from testbed.inside.tor.network import TorNetwork
from testbed.results import Run, read_run
from testbed.runs.runner import carry_out

VEGAS, WITHOUT = "vanilla-vegas", "vanilla-vegas-without-cgo"
OPTION = {"WithoutCounterGaloisOnion": ["1"]}


def seen(cells: int, payload_bytes: int, client: str = "client1") -> Seen:
    return Seen(client, ("5",), cells, payload_bytes, has_window=False)


@pytest.mark.parametrize(
    ("cells", "payload_bytes", "version"),
    [
        (2, 8 + 498, 0),
        (3, 8 + 498, 1),
        (4, 2 * (8 + 498), 0),
        (6, 2 * (8 + 498), 1),
        (3, 8 + 498 + 4, 0),  # with a SWITCH cell
        (4, 8 + 498 + 4, 1),
        (4, 8 + 498, None),
        (2, 8 + 497, None),
        (3, 8 + 498 + 66, None),  # with an EXTENDED2 cell
        (20, 9000, None),  # a part of the directory
        (1, 8, None),
        (0, 0, None),
    ],
)
def test_an_answer_of_498_bytes_tells_the_version(
    cells: int, payload_bytes: int, version: int | None
) -> None:
    assert seen(cells, payload_bytes).version == version


@pytest.mark.parametrize(("has_cgo", "ok"), [(True, True), (False, False)])
def test_other_cells_than_expected_fail_the_check(has_cgo: bool, ok: bool) -> None:
    plan = make_plan("One", VEGAS)
    both = [seen(3, 506), seen(3, 506, "client2"), seen(20, 9000, "client2")]
    check = relay_cells(plan, both, has_cgo=has_cgo)
    assert check.ok == ok
    assert check.value == {"client1 circuit 5": 488, "client2 circuit 5": 488}
    assert check.bound == {"data in a cell": 488 if has_cgo else 498}
    assert ("client1 circuit 5: version 1, 488 bytes" in check.observed) != ok


def test_every_client_must_be_seen() -> None:
    check = relay_cells(make_plan("One", "vanilla"), [seen(2, 506), seen(4, 506)], has_cgo=False)
    assert check.observed == "client2: no circuit was used"
    check = relay_cells(
        make_plan("One", "vanilla"), [seen(2, 506), seen(5, 77, "client2")], has_cgo=False
    )
    assert check.observed == "client2 circuit 5: 5 cells with 77 bytes"
    assert check.ok is False


def test_subprotocols_of_a_descriptor() -> None:
    text = "router exit1\nproto Cons=1-2 Link=3-5 Padding=2 Relay=2-4,6\npublished x\n"
    assert relay_subprotocols(text) == {2, 3, 4, 6}
    assert relay_subprotocols("router exit1\n") == set()


@pytest.mark.parametrize(
    ("scenario", "variant", "relays_have", "expected"),
    [
        ("One", "vanilla", "2-6", False),
        ("One", VEGAS, "2-6", True),
        ("One", VEGAS, "1-4", False),
        ("One", WITHOUT, "2-6", False),
        ("TwoPaths", "conflux", "2-6", True),
        ("SmallNetwork", "live-2026", "2-6", True),
    ],
)
def test_what_is_expected_of_each_variant(
    scenario: str, variant: str, relays_have: str, expected: bool
) -> None:
    def get_info(_question: str) -> str:
        return f"proto Relay={relays_have}\n"

    plan = make_plan(scenario, variant)
    tor: Any = SimpleNamespace(controller=SimpleNamespace(get_info=get_info))
    names = [node.name for node in plan.of_kind("relay")]
    tors = {node.name: tor for node in plan.of_kind("authority")}
    fingerprints = dict.fromkeys(names, "0" * 40)
    assert cgo_expected(plan, TorNetwork(tors, fingerprints, ["__alwayscongestioncontrol"])) == (
        expected
    )
    assert not cgo_expected(plan, TorNetwork(tors, fingerprints))


def test_without_cgo_is_a_choice_of_the_variant() -> None:
    variant = read_variant("vegas+without-cgo")
    assert variant.name == WITHOUT
    assert (
        variant.title
        == "Tor as it is released, with congestion control, without Counter Galois Onion"
    )
    assert variant.cgo is False
    assert variant.torrc_all == OPTION
    assert variant.consensus_params["cc_alg"] == 2
    assert [patch.name for patch in variant.patches] == ["without-cgo.patch"]
    assert read_variant("pctls+vegas+without-cgo").name == "pctls-vegas-without-cgo"
    assert read_variant(VEGAS).cgo is None
    assert make_plan("One", WITHOUT).tor.cgo is False


def written(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(f'title = "x"\n{text}\n')
    return str(file)


def test_with_vegas_it_can_be_said_that_circuits_must_have_it(tmp_path: Path) -> None:
    variant = read_variant(written(tmp_path, 'extends = "vegas"\ncgo = true'))
    assert variant.cgo is True
    assert variant.torrc_all == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "vanilla"\ncgo = true', 'cgo = true with a fixed window: .* write cc_alg = "v'),
        ('extends = "vegas"\ntor = "0.4.5.16"\ncgo = true', "cgo = true with tor = .* 0.4.9; take"),
        ('extends = "vegas"\ncgo = false', "means nothing without without-cgo.patch: add it"),
        ('extends = "vegas"\ncgo = 0', "cgo = 0 is wrong: it should be a valid boolean"),
        (
            'extends = "without-cgo"\n[torrc]\nWithoutCounterGaloisOnion = 0',
            "torrc.WithoutCounterGaloisOnion sets what the key cgo in",
        ),
    ],
)
def test_what_cgo_cant_mean(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_variant(written(tmp_path, text))


# Real runs.


def the_check(run: Run) -> Check:
    (check,) = (one for one in run.summary.checks if one.key == RELAY_CELLS)
    return check


@pytest.mark.experiment
@pytest.mark.parametrize(("variant", "data_bytes"), [(VEGAS, 488), (WITHOUT, 498)])
def test_circuits_have_the_cells_of_the_variant(
    tmp_path: Path, variant: str, data_bytes: int
) -> None:
    run = run_scenario(tmp_path, "One", variant, 5)
    value = the_check(run).value
    assert value is not None
    assert list(value.values()) == [data_bytes] * 2


@pytest.mark.experiment
def test_a_run_whose_circuits_have_other_cells_fails(tmp_path: Path) -> None:
    """Tor is told to leave it out, and the plan says that it is there."""
    plan = make_plan("One", WITHOUT, duration="5 s")
    plan = plan.model_copy(update={"tor": plan.tor.model_copy(update={"cgo": True})})
    carry_out(plan, tmp_path / "run", Console(stderr=True), lambda _step: None)
    run = read_run(tmp_path / "run")
    assert [check.key for check in run.summary.checks if check.failed] == [RELAY_CELLS]
    assert "client1 circuit 2: version 0, 498 bytes of data" in the_check(run).observed
