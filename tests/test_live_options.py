"""The table of what the live network's Tors have and the lab's have not."""

import re

import pytest
from rich.console import Console
from test_older_tor import OWN_OPTIONS

from testbed.asked.variant import read_variant
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.inside.tor.configuration import TEMPLATES
from testbed.runs import live_options
from testbed.runs.live_options import KINDS, NETWORKS, Configuration, read_reasons
from testbed.setup.ready import TorNeed, ensure_tors

ONLY_AUTHORITIES = {
    line.split()[0].lower()
    for line in (TEMPLATES / "authority.torrc").read_text().splitlines()
    if line and line[0] not in "#$"
}
SAME = ("serverdnsallowbrokenconfig",)
"""Lines of the testbed's that say what Tor has by default, too."""


def test_every_line_of_the_labs_torrc_has_a_reason() -> None:
    """This is known without a Tor; that no other option differs, only with one."""
    templates = [file for file in TEMPLATES.glob("*.torrc") if "authority" not in file.name]
    assert templates
    lines = [line for file in templates for line in file.read_text().splitlines()]
    options = {line.split()[0] for line in lines if line and line[0] not in "#$"}
    explained = {name.lower() for name in read_reasons().explained()} | {*SAME, "middlenodes"}
    weights = {"v3bandwidthsfile"}
    assert {option.lower() for option in options} - explained - weights == set()
    assert OWN_OPTIONS - explained - weights <= ONLY_AUTHORITIES


def test_an_option_without_a_reason_is_named() -> None:
    reasons = read_reasons()
    differing = {name for one in reasons.options if not one.same for name in one.names}
    live_options._check(reasons, differing)
    with pytest.raises(TestbedError, match="no reason for KeepalivePeriod: the lab's Tors have"):
        live_options._check(reasons, {*differing, "KeepalivePeriod"})
    with pytest.raises(TestbedError, match="SafeLogging has a reason, but Tor's default in the"):
        live_options._check(reasons, differing - {"SafeLogging"})


def test_every_parameter_of_the_live_consensus_is_in_the_table() -> None:
    rows = live_options._parameter_rows(read_reasons())
    assert rows[0][:3] == ("`cc_alg` (consensus)", "`2`", "`0`")
    named = sum("(consensus)" in row[0] for row in rows)
    others = re.match(r"(\d+) other parameters", rows[-1][0])
    assert others
    assert named + int(others[1]) == len(read_variant("live-2026").consensus_params)


def in_the_lab(**values: str) -> dict[tuple[str, str], Configuration]:
    """Configurations with an option `A`: by the place's initials, and 0 elsewhere."""
    return {
        (network, kind): {"A": (values.get(f"{network[0]}{kind[0]}", "0"),)}
        for network in NETWORKS
        for kind in KINDS
    }


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "`0`"),
        (dict.fromkeys(("tc", "tr", "te", "dc", "dr", "de"), "1"), "`1`"),
        ({"tc": "1", "dc": "1"}, "`1` (clients)"),
        ({"tc": "1"}, "`1` (clients of topologies)"),
        ({"dc": "1", "dr": "1", "de": "1"}, "`1` (drawn networks)"),
        ({"tr": "1", "te": "1", "dr": "1", "de": "1"}, "`1` (relays and exits)"),
        ({"tc": "1", "dc": "2"}, "`1` (clients of topologies); `2` (clients of drawn networks)"),
        (dict.fromkeys(("tc", "tr", "te", "dr", "de"), "1"), "`1` (all but clients of drawn netw"),
    ],
)
def test_which_tors_have_a_value_is_said_in_words(values: dict[str, str], text: str) -> None:
    said = live_options._lab_text("A", {"A": ("0",)}, in_the_lab(**values))
    assert said.startswith(text)


def test_the_table_in_the_document_is_tors_answer() -> None:
    """Needs only a Tor, which is asked with its network switched off."""
    (tor,) = ensure_tors(Console(stderr=True), [TorNeed()]).values()
    table = live_options.options_markdown(tor.product("tor"))
    document = (PROJECT / "docs" / "live-network.md").read_text(encoding="utf-8")
    assert table in document, "put the output of ./run.py options into docs/live-network.md"
