"""The torrc of each Tor, from the templates in torrc/ and the plan.

No value here is a variant's: those come with the plan, at the end of the file.
"""

import ipaddress
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from testbed.inside.policies.interface import REFUSED_ADDRESS
from testbed.plan.choices import PLAIN_CONNECTIONS, PLAIN_CONNECTIONS_TO
from testbed.plan.model import FIXED, Plan, PlannedNode, PlannedPolicy

TEMPLATES = Path(__file__).with_name("torrc")

AUTHORITY_OR_PORT = 5000
AUTHORITY_DIR_PORT = 7000
OR_PORT = 9001
SOCKS_PORT = 9050


@dataclass(frozen=True)
class AuthorityIdentity:
    """The identity of an authority to other Tors: two fingerprints of 40 hexadecimal digits."""

    v3_identity: str
    fingerprint: str


@dataclass(frozen=True)
class TorFiles:
    """The files of one Tor; `directory` is private to it."""

    name: str
    directory: Path
    log: Path

    @property
    def torrc(self) -> Path:
        """The configuration file."""
        return self.directory / "torrc"

    @property
    def data(self) -> Path:
        """The DataDirectory."""
        return self.directory / "data"

    def fingerprint(self) -> str:
        """A relay's fingerprint, as its Tor has written it down."""
        return (self.data / "fingerprint").read_text().split()[1]

    @property
    def bandwidths(self) -> Path:
        """An authority's file of the relays' weights."""
        return self.directory / "v3bw"

    @property
    def control_socket(self) -> Path:
        """The control port, a UNIX socket."""
        return self.directory / "control"

    @property
    def probe_socket(self) -> Path:
        """A client's second SOCKS port, for the round-trip probe."""
        return self.directory / "socks"


def torrc(
    plan: Plan,
    node: PlannedNode,
    files: TorFiles,
    identities: Mapping[str, AuthorityIdentity],
    options: Container[str] | None = None,
) -> str:
    """The configuration of one Tor.

    The variant's lines come last; among several lines of one option Tor takes the last.

    Args:
        identities: the authorities', by their names.
        options: those that this Tor knows, in lower case; None if it knows all. If it doesn't know
            an option, the testbed's own line becomes a comment, and the variant's line stays for
            Tor to refuse.
    """
    values = _values(plan, node, files, identities)
    templates = ["all", *_templates(plan, node)]
    parts = [_filled(name, values) for name in templates]
    if options is not None:
        parts = [_with_known_lines(part, options) for part in parts]
    parts += [*_processor_lines(node), "# The variant's own.", *_variant_lines(plan, node)]
    return "\n".join([*parts, ""])


def _templates(plan: Plan, node: PlannedNode) -> Iterator[str]:
    if node.kind == "relay":
        yield "exit" if "exit" in node.flags else "relay"
        return
    yield node.kind
    if node.kind == "authority" and has_weights(plan):
        yield "weights"
    if node.kind == "client":
        yield _circuits_template(plan.policy)
        if plan.tor.conflux and plan.paths:
            yield "conflux"


def _circuits_template(policy: PlannedPolicy) -> str:
    if policy.rule is not None:
        return "client-selected"
    return "client-tor" if policy.is_tors else "client-attached"


def has_weights(plan: Plan) -> bool:
    """Whether the plan sets the relays' weights in the consensus."""
    return any(relay.weight is not None for relay in plan.of_kind("relay"))


def authority_lines(plan: Plan, identities: Mapping[str, AuthorityIdentity]) -> list[str]:
    """The values of DirAuthority: the lab's authorities, the only ones that its Tors know."""
    return [
        f"{node.name} orport={AUTHORITY_OR_PORT} v3ident={identities[node.name].v3_identity}"
        f" {node.management_address}:{AUTHORITY_DIR_PORT} {identities[node.name].fingerprint}"
        for node in plan.of_kind("authority")
    ]


def socks_proxy(node: PlannedNode) -> tuple[str, int]:
    """The address and port, on its node's loopback, at which programs reach a client's Tor.

    On the bare host all nodes share one loopback, and each node's own address is on it.
    """
    shared = ipaddress.IPv4Address(node.address or "0.0.0.0").is_loopback
    return (str(node.address) if shared else "127.0.0.1"), SOCKS_PORT


def _values(
    plan: Plan, node: PlannedNode, files: TorFiles, identities: Mapping[str, AuthorityIdentity]
) -> dict[str, object]:
    parameters = plan.tor.consensus_params
    return {
        "name": node.name,
        "address": node.address,
        "management_address": node.management_address,
        "authority_lines": "\n".join(
            f"DirAuthority {line}" for line in authority_lines(plan, identities)
        ),
        "bandwidths": files.bandwidths,
        "dir_cache": int(plan.policy.entry_guards),
        "use_entry_guards": int(plan.policy.entry_guards),
        "learn_timeouts": int(plan.policy.learn_timeouts),
        "builds_nothing_ahead": int(plan.policy.circuits is not None),
        "authority_or_port": AUTHORITY_OR_PORT,
        "authority_dir_port": AUTHORITY_DIR_PORT,
        "or_port": OR_PORT,
        "socks_proxy": "{}:{}".format(*socks_proxy(node)),
        "data_directory": files.data,
        "control_socket": files.control_socket,
        "probe_socket": files.probe_socket,
        "log_file": files.log,
        "guard_addresses": _addresses(plan, lambda relay: "guard" in relay.flags),
        "middle_addresses": _addresses(plan, lambda relay: not relay.flags),
        "exit_addresses": _addresses(plan, lambda relay: "exit" in relay.flags),
        "consensus_params": " ".join(f"{name}={value}" for name, value in parameters.items()),
        "exit_policy": "\n".join(_exit_policy(plan)),
    }


def _exit_policy(plan: Plan) -> Iterator[str]:
    if plan.policy.probe_interval_s is not None:
        yield f"ExitPolicy reject {REFUSED_ADDRESS}:*"
    for server in plan.of_kind("server"):
        yield f"ExitPolicy accept {server.address}:*"
    if plan.tor.conflux or plan.policy.name != FIXED:
        # A client that chooses the exit itself goes by the summary of its policy, which ignores
        # single addresses (proposal 141). The exit has no route to any other address.
        yield "ExitPolicy accept *:*"


def _addresses(plan: Plan, wanted: Callable[[PlannedNode], bool]) -> str:
    return ",".join(str(relay.address) for relay in plan.of_kind("relay") if wanted(relay))


def _filled(name: str, values: dict[str, object]) -> str:
    return Template((TEMPLATES / f"{name}.torrc").read_text()).substitute(values)


def _with_known_lines(part: str, options: Container[str]) -> str:
    def known_line(line: str) -> str:
        option = line.partition(" ")[0].lower()
        is_known = not option or option.startswith("#") or option in options
        return line if is_known else f"# not known to this Tor: {line}"

    return "\n".join(map(known_line, part.splitlines()))


def _processor_lines(node: PlannedNode) -> Iterator[str]:
    """The costs that Tor's workers spend; the kernel has the others."""
    if node.processor and node.processor.onionskin_ns:
        yield f"OnionskinTime {node.processor.onionskin_ns}"
    if node.processor and node.processor.workers:
        yield f"NumCPUs {node.processor.workers}"


def _variant_lines(plan: Plan, node: PlannedNode) -> list[str]:
    sets = [plan.tor.torrc_all]
    if node.kind == "client":
        sets.append(plan.tor.torrc_client)
    elif node.kind == "relay" and plan.tor.is_at(node.name):
        sets += [plan.tor.torrc_relay, _peers(plan)]
    return [
        f"{option} {value}"
        for lines in sets
        for option, values in lines.items()
        for value in values
    ]


def _peers(plan: Plan) -> dict[str, list[str]]:
    """Which relays know connections without TLS, if only some do."""
    if plan.tor.at_relays is None or PLAIN_CONNECTIONS not in plan.tor.torrc_relay:
        return {}
    addresses = [str(plan.node(relay).address) for relay in plan.tor.at_relays]
    return {PLAIN_CONNECTIONS_TO: [",".join(addresses)]}
