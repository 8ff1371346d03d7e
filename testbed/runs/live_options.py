"""What the live network's Tors have and the lab's have not: the table in docs/live-network.md.

The values are Tor's own answers (GETCONF), and the reasons are in live_options.toml. A Tor is asked
with its network switched off, so nothing is sent.
"""

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from testbed.asked.plans import make_plan
from testbed.asked.variant import read_variant
from testbed.basics.errors import TestbedError
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.inside.tor.control import connected
from testbed.inside.waiting import wait_until
from testbed.plan.model import Plan, PlannedNode

REASONS = Path(__file__).with_suffix(".toml")

NETWORKS = {"topologies": "One", "drawn networks": "SmallNetwork"}
"""A scenario of each kind: on fixed paths, and where Tor chooses them."""
KINDS = ("clients", "relays", "exits")
LIVE, LAB = "live-2026", "vanilla"
"""The variants whose consensus parameters are compared."""

_START_S = 30.0
_HEAD = ("option", "live", "lab", "why")

Configuration = Mapping[str, tuple[str, ...]]
"""The values of each option, one for each line."""
Place = tuple[str, str]
"""A network of `NETWORKS` and a kind of `KINDS`."""


class Reason(BaseModel):
    """Why options differ, or that they don't.

    Attributes:
        live, lab: what to print instead of the values.
        same: whether they are named although they don't differ.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    names: tuple[str, ...]
    why: str
    live: str | None = None
    lab: str | None = None
    same: bool = False


class Reasons(BaseModel):
    """The content of live_options.toml: facts have no option, parameters are the consensus's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: tuple[Reason, ...]
    parameters: tuple[Reason, ...]
    facts: tuple[Reason, ...]

    def explained(self) -> set[str]:
        """The torrc options that have a reason."""
        return {name for reason in self.options for name in reason.names}


def read_reasons() -> Reasons:
    """Read live_options.toml."""
    return Reasons.model_validate(tomllib.loads(REASONS.read_text(encoding="utf-8")))


def options_markdown(tor: Path) -> str:
    """The table as Markdown.

    Args:
        tor: the program whose defaults are the live ones.

    Raises:
        TestbedError: an option differs without a reason, or this Tor doesn't start.
    """
    reasons = read_reasons()
    live, lab = defaults(tor), lab_configurations(tor)
    _check(reasons, different(live, lab))
    rows = [row for reason in reasons.options for row in _option_rows(reason, live, lab)]
    rows += _parameter_rows(reasons)
    rows += [(one.names[0], one.live or "", one.lab or "", one.why) for one in reasons.facts]
    lines = (_HEAD, ("---",) * len(_HEAD), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _check(reasons: Reasons, differing: set[str]) -> None:
    """Raise TestbedError if an option differs without a reason, or has one and doesn't differ."""
    if missing := sorted(differing - reasons.explained()):
        raise TestbedError(
            f"{REASONS.name}: no reason for {', '.join(missing)}: the lab's Tors have another value"
            " than Tor's default; say why, or take the line out of the torrc"
        )
    reasoned = {name for one in reasons.options if not one.same for name in one.names}
    if alike := sorted(reasoned - differing):
        raise TestbedError(
            f"{REASONS.name}: {', '.join(alike)} has a reason, but Tor's default in the lab, too:"
            " take it out, or write same = true"
        )


def defaults(tor: Path) -> Configuration:
    """The configuration of a Tor whose torrc is empty."""
    return _asked(tor, lambda _files: "SocksPort 0\n")


def lab_configurations(tor: Path) -> Mapping[Place, Configuration]:
    """The configuration of each kind of Tor in each kind of network, with the variant `LAB`."""
    configurations = {}
    for network, kind in product(NETWORKS, KINDS):
        plan = make_plan(NETWORKS[network], LAB)
        node = _node(plan, kind)
        identities = {
            authority.name: AuthorityIdentity(f"{number:040X}", f"{number:040X}")
            for number, authority in enumerate(plan.of_kind("authority"), start=1)
        }
        text = _torrc_of(plan, node, identities)
        configurations[network, kind] = _asked(tor, text)
    return configurations


def different(live: Configuration, lab: Mapping[Place, Configuration]) -> set[str]:
    """The options with another value in the lab; an option of two forms is told by the other."""
    return {
        option
        for configuration in lab.values()
        for option, values in configuration.items()
        if values != live.get(option)
    }


def _torrc_of(
    plan: Plan, node: PlannedNode, identities: Mapping[str, AuthorityIdentity]
) -> Callable[[TorFiles], str]:
    return lambda files: torrc(plan, node, files, identities)


def _node(plan: Plan, kind: str) -> PlannedNode:
    if kind == "clients":
        return plan.of_kind("client")[0]
    relays = plan.of_kind("relay")
    return next(relay for relay in relays if ("exit" in relay.flags) == (kind == "exits"))


def _asked(tor: Path, text: Callable[[TorFiles], str]) -> Configuration:
    """Start a Tor with a torrc, its network switched off, and ask it for all its options."""
    with tempfile.TemporaryDirectory() as folder:
        files = TorFiles("tor", Path(folder), Path(folder) / "log")
        files.data.mkdir(mode=0o700)
        files.torrc.write_text(text(files), encoding="utf-8")
        command: list[str | Path] = [
            *(tor, "-f", files.torrc, "--defaults-torrc", "/dev/null", "--DisableNetwork", "1"),
            *("--DataDirectory", files.data, "--ControlSocket", files.control_socket),
            *("--__OwningControllerProcess", str(os.getpid())),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                return _answers(process, files)
            finally:
                process.terminate()


def _answers(process: subprocess.Popen[str], files: TorFiles) -> Configuration:
    def missing() -> Iterable[str]:
        if process.poll() is not None:
            said = process.communicate()[0].splitlines()
            raise TestbedError(f"Tor ended by itself: {'; '.join(said[-3:])}")
        return [] if files.control_socket.exists() else ["its control socket"]

    wait_until(missing, _START_S, "asking a Tor for its options", interval_s=0.05)
    with closing(connected("tor", files.control_socket)) as controller:
        names = [line.split()[0] for line in controller.get_info("config/names").splitlines()]
        values: dict[str, tuple[str, ...]] = {}
        for _, _, line in controller.msg(f"GETCONF {' '.join(names)}").content():
            option, _, value = line.partition("=")
            values[option] = (*values.get(option, ()), value)
    return values


def _option_rows(
    reason: Reason, live: Configuration, lab: Mapping[Place, Configuration]
) -> list[tuple[str, ...]]:
    """A row for each pair of values; options that have the same two are in one row."""
    names_by_values: dict[tuple[str, str], list[str]] = {}
    for name in reason.names:
        pair = (
            reason.live or _shown(live.get(name, ())),
            reason.lab or _lab_text(name, live, lab),
        )
        names_by_values.setdefault(pair, []).append(f"`{name}`")
    rows = [(", ".join(names), *pair, "as above") for pair, names in names_by_values.items()]
    return [(*rows[0][:-1], reason.why), *rows[1:]]


def _lab_text(name: str, live: Configuration, lab: Mapping[Place, Configuration]) -> str:
    """An option's values in the lab, with the Tors that have them if others keep the default."""
    places: dict[tuple[str, ...], list[Place]] = {}
    for place, configuration in lab.items():
        values = configuration.get(name, ())
        if values != live.get(name, ()):
            places.setdefault(values, []).append(place)
    if not places:
        return _shown(live.get(name, ()))
    return "; ".join(_shown(values) + _where(found) for values, found in places.items())


def _where(places: Sequence[Place]) -> str:
    """Which Tors these are, in words; nothing if they are all."""
    networks = list(dict.fromkeys(network for network, _ in places))
    kinds = list(dict.fromkeys(kind for _, kind in places))
    if len(places) != len(networks) * len(kinds):
        others = [place for place in product(NETWORKS, KINDS) if place not in places]
        fewer, before = (others, "all but ") if len(others) < len(places) else (places, "")
        return f" ({before}{', '.join(f'{kind} of {network}' for network, kind in fewer)})"
    words = "" if len(kinds) == len(KINDS) else " and ".join(kinds)
    if len(networks) < len(NETWORKS):
        words = f"{words} of {networks[0]}" if words else networks[0]
    return f" ({words})" if words else ""


def _shown(values: Sequence[str]) -> str:
    return ", ".join(f"`{value}`" for value in values if value) or "nothing"


def _parameter_rows(reasons: Reasons) -> list[tuple[str, ...]]:
    """The consensus parameters that differ; those without a reason of their own are one row."""
    live, lab = (read_variant(variant).consensus_params for variant in (LIVE, LAB))
    rows = []
    explained = set()
    for reason in reasons.parameters:
        for name in reason.names:
            explained.add(name)
            there = [f"`{each[name]}`" if name in each else "Tor's default" for each in (live, lab)]
            rows.append((f"`{name}` (consensus)", *there, reason.why))
    others = sorted(name for name in live if live[name] != lab.get(name) and name not in explained)
    rows.append(
        (
            f"{len(others)} other parameters of the consensus",
            f"as in `{LIVE}`",
            "Tor's defaults",
            f"the variant `{LIVE}` sets them all"
            " ([parameters](tor-in-the-lab.md#parameters-of-the-live-network))",
        )
    )
    return rows
