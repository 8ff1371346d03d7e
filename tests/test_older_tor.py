"""A Tor of another release: what it doesn't know isn't written, asked for or judged.

test_variant tests the keys of variant files. The real runs first build the release if it isn't
built yet, which takes minutes.
"""

from pathlib import Path

import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress
from testbed.inside.checks import congestion_control
from testbed.inside.tor import starting
from testbed.inside.tor.configuration import TEMPLATES, AuthorityIdentity, TorFiles, torrc
from testbed.inside.tor.network import TorNetwork
from testbed.results import Run
from testbed.runs.bootstrapped import bare_plan
from testbed.runs.runner import plan_need
from testbed.setup import tor

RELEASE = "0.4.5.16"
NOT_JUDGED = "clients whose circuit has congestion control"

OWN_OPTIONS = {
    line.split()[0].lower()
    for template in TEMPLATES.glob("*.torrc")
    for line in template.read_text().splitlines()
    if line and line[0] not in "#$"
} | {"exitpolicy"}
"""The options that the testbed itself writes."""


def lines(folder: Path, variant: str, options: set[str]) -> list[str]:
    plan = make_plan("TwoPaths", variant)
    files = TorFiles("client1", folder, folder / "log")
    identities = {"authority1": AuthorityIdentity("0" * 40, "1" * 40)}
    return torrc(plan, plan.node("client1"), files, identities, options).splitlines()


def test_a_line_that_a_tor_does_not_know_is_not_written(tmp_path: Path) -> None:
    known = lines(tmp_path, "vanilla", OWN_OPTIONS)
    unknown = lines(tmp_path, "vanilla", OWN_OPTIONS - {"confluxenabled"})
    assert "ConfluxEnabled 0" in known
    assert [line for line in known if line not in unknown] == ["ConfluxEnabled 0"]
    assert [line for line in unknown if line not in known] == [
        "# not known to this Tor: ConfluxEnabled 0"
    ]


def test_a_variants_line_is_left_for_tor_to_refuse(tmp_path: Path) -> None:
    assert "ConfluxEnabled 1" in lines(tmp_path, "conflux", OWN_OPTIONS - {"confluxenabled"})


@pytest.mark.parametrize(("variant", "refused"), [("vanilla-vegas", True), ("vanilla", False)])
def test_congestion_control_is_refused_where_there_is_none(variant: str, refused: bool) -> None:
    plan = make_plan("One", variant)
    with_it = TorNetwork({}, {}, {"__alwayscongestioncontrol"})
    starting._refuse_unknown_congestion_control(plan, with_it)
    if not refused:
        starting._refuse_unknown_congestion_control(plan, TorNetwork({}, {}))
        return
    with pytest.raises(TestbedError, match="vanilla-vegas: cc_alg asks for congestion control"):
        starting._refuse_unknown_congestion_control(plan, TorNetwork({}, {}))


def test_what_a_tor_does_not_report_is_not_judged() -> None:
    plan = make_plan("One", "vanilla")
    check = congestion_control._congestion_control(plan, TorNetwork({}, {}), set())
    assert (check.name, check.observed, check.ok) == (NOT_JUDGED, "not known to this Tor", None)


def test_a_plan_needs_its_release() -> None:
    plain, old = (make_plan("One", name) for name in ("pctls", "pctls-2021"))
    assert plan_need(plain).source == tor.CHOSEN
    assert plan_need(old).source == tor.TorSource(release=RELEASE)
    assert plan_need(old).patches == plan_need(plain).patches
    assert old.key != plain.key
    # A network belongs to one Tor by its build's key, however the plan names that.
    assert bare_plan(old).tor == bare_plan(plain).tor


# Real runs.


@pytest.fixture(scope="module")
def built() -> None:
    """Both builds of the release are made before the time of a run begins."""
    for variant in ("vanilla-2021", "pctls-2021"):
        need = plan_need(make_plan("One", variant))
        tor.tor_build(need.source, need.patches, Progress())


def checks(run: Run) -> dict[str, bool | None]:
    return {check.name: check.ok for check in run.summary.checks}


@pytest.mark.experiment
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("built")
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """And every check holds, except the one that can't be judged with this Tor."""
    first, again = (
        run_scenario(tmp_path / name, "One", "pctls-2021", 4, "--seed", "2") for name in "ab"
    )
    assert first.manifest["tor"]["version"] == RELEASE
    assert first.summary.shared_link.connections == 2
    assert {name for name, ok in checks(first).items() if not ok} == {NOT_JUDGED}
    assert checks(first)[NOT_JUDGED] is None
    assert first.contents.fingerprint == again.contents.fingerprint


@pytest.mark.experiment
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("built")
def test_unpatched_it_keeps_one_connection(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, "One", "vanilla-2021", 4)
    assert run.summary.shared_link.connections == 1
    assert {name for name, ok in checks(run).items() if not ok} == {NOT_JUDGED}
