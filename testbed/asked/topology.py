"""The base of every topology: nodes with roles, the management network, the clients' paths.

The topologies themselves are the files in topologies/. Nothing here starts a network.
"""

import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from mininet.topo import Topo

from testbed.basics.errors import InputError
from testbed.basics.toml_file import PROJECT, label, shown, suggestion
from testbed.plan.addresses import MOST_HOSTS

ROLES = ("client", "guard", "middle", "exit", "server", "authority")
"""The roles a node can have, from the client's side to the server's."""

MANAGEMENT_ROLE = "management"
"""The role of the switch that keeps directory and control traffic off the emulated links."""

LONGEST_INTERFACE_NAME = 15
"""Linux's limit on the length of a network interface's name."""

TOPOLOGIES = PROJECT / "topologies"


class TorTopo(Topo):  # type: ignore[misc]  # Mininet carries no types
    """A Mininet topology whose hosts have roles in a Tor network.

    A subclass writes `build()` as the figure in the paper reads: `add_node` for every node,
    Mininet's `addLink` for every emulated link, `add_management` at the end. The arguments of
    `build()`, each with a default, are the keys that a scenario may have in `[parameters]`.
    """

    shared_link: tuple[str, str]
    """The ends of the link that all circuits cross, the one on the client's side first."""

    def add_node(self, role: str, number: int) -> str:
        """Add a host of that role and return its name, such as "guard3".

        Raises:
            InputError: there is no such role, or the number is not from 1 to `MOST_HOSTS`.
        """
        if role not in ROLES:
            raise InputError(f"there is no role {shown(role)}: {suggestion(role, ROLES)}")
        if number not in range(1, MOST_HOSTS + 1):
            raise InputError(f"{role}{number}: a node's number is from 1 to {MOST_HOSTS}")
        name = f"{role}{number}"
        self.addHost(name, role=role, number=number)
        return name

    def add_management(self) -> None:
        """Connect every Tor (all nodes but the servers) to one switch apart from the links.

        Directory and control traffic takes it and crosses no impaired link. Call this last: then a
        node's first interfaces are those of the emulated links.
        """
        switch = self.addSwitch("s1", role=MANAGEMENT_ROLE)
        for name, role in self.roles().items():
            if role != "server":
                self.addLink(name, switch)

    def roles(self) -> dict[str, str]:
        """Return every host's role by its name, in the order of `ROLES`, then of numbers."""
        hosts = (name for name in self.hosts() if "role" in self.nodeInfo(name))
        return {name: self.nodeInfo(name)["role"] for name in sorted(hosts, key=self._place)}

    def nodes_with(self, role: str) -> list[str]:
        """Return the names of the hosts with that role."""
        return [name for name, its_role in self.roles().items() if its_role == role]

    def number(self, name: str) -> int:
        """Return a host's number among those with its role, from 1."""
        return int(self.nodeInfo(name)["number"])

    def emulated_links(self) -> list[tuple[str, str]]:
        """Return the links between hosts, each with the end on the client's side first."""
        links = (
            tuple(sorted(ends, key=self._place))
            for ends in self.links()
            if not any(self.isSwitch(end) for end in ends)
        )
        return sorted(
            ((first, second) for first, second in links),
            key=lambda ends: (self._place(ends[0]), self._place(ends[1])),
        )

    def neighbours(self, name: str, role: str) -> list[str]:
        """Return the hosts with that role at the other ends of a host's emulated links."""
        ends = [link for link in self.emulated_links() if name in link]
        others = [second if first == name else first for first, second in ends]
        return [other for other in others if self.nodeInfo(other).get("role") == role]

    def paths(self) -> dict[str, tuple[str, str, str]]:
        """Return the guard, middle and exit of each client's circuit, by the client's name.

        They follow the links, which must leave no choice: a topology in which a node has several
        next hops overrides this method.

        Raises:
            InputError: a node on the path has no next hop, or several.
        """
        paths = {}
        for client in self.nodes_with("client"):
            guard = self._only_neighbour(client, "guard")
            middle = self._only_neighbour(guard, "middle")
            paths[client] = (guard, middle, self._only_neighbour(middle, "exit"))
        return paths

    def routes(self) -> dict[str, tuple[str, ...]]:
        """Return each client's route: client, guard, middle, exit, server."""
        return {
            client: (client, *path, self._only_neighbour(path[-1], "server"))
            for client, path in self.paths().items()
        }

    def _only_neighbour(self, name: str, role: str) -> str:
        found = self.neighbours(name, role)
        if len(found) != 1:
            raise InputError(
                f"topology {type(self).__name__}: {name} has {len(found)} links to a {role},"
                " a path needs exactly one (or a paths() of the topology's own)"
            )
        return found[0]

    def _place(self, name: str) -> tuple[int, int]:
        return ROLES.index(self.nodeInfo(name)["role"]), self.number(name)


def topology_names() -> list[str]:
    """Return the names of the topologies that come with the project, sorted."""
    return sorted(path.stem for path in TOPOLOGIES.glob("*.py") if not path.stem.startswith("_"))


def load_topology(
    name: str, folder: Path = TOPOLOGIES, parameters: Mapping[str, int] | None = None
) -> TorTopo:
    """Build the topology of that name: the one `TorTopo` subclass in topologies/NAME.py.

    Args:
        name: a file in topologies/ without its extension, or the path of a .py file.
        folder: the folder that such a path is relative to: that of the scenario's file.
        parameters: arguments of its `build()`; the others have their defaults.

    Raises:
        InputError: there is no such file (the nearest name is suggested), it can't be
            imported, it holds no topology or several, it has no such parameter, or the topology
            can't be a Tor network.
    """
    parameters = parameters or {}
    path = _topology_file(name, folder)
    module = _imported(path)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, TorTopo)
        and value is not TorTopo
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise InputError(f"{label(path)}: defines {len(classes)} subclasses of TorTopo, not one")
    known = list(inspect.signature(classes[0].build).parameters)[1:]
    if unknown := next((parameter for parameter in parameters if parameter not in known), None):
        raise InputError(
            f"parameters.{unknown} is no parameter of {label(path)}: {suggestion(unknown, known)}"
        )
    try:
        topology: TorTopo = classes[0](**parameters)
        problem = next(_problems(topology), None)
    except InputError as error:
        raise InputError(f"{label(path)}: {error}") from error
    except Exception as error:  # the file is the user's program: anything may come out of it
        raise InputError(f"{label(path)}: build() failed: {error!r}") from error
    if problem:
        raise InputError(f"{label(path)}: {problem}")
    return topology


def _topology_file(name: str, folder: Path) -> Path:
    if "/" in name or name.endswith(".py"):
        path = (folder / Path(name).expanduser()).resolve()
        if not path.is_file() or path.suffix != ".py":
            raise InputError(
                f"there is no topology file {shown(name)}: give a .py file's path, as seen from"
                f" {folder}"
            )
        return path
    names = topology_names()
    if name not in names:
        raise InputError(f"there is no topology {shown(name)}: {suggestion(name, names)}")
    return TOPOLOGIES / f"{name}.py"


def _imported(path: Path) -> ModuleType:
    module_name = f"topologies.{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{label(path)}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # as above
        raise InputError(f"{label(path)}: can't be imported: {error!r}") from error
    return module


def _problems(topology: TorTopo) -> Iterator[str]:
    """Find why a topology can't be a Tor network of this testbed, a sentence for each reason."""
    for name in topology.hosts():
        if name not in topology.roles():
            yield f"{name} has no role: add it with add_node(role, number)"
    for role in ROLES:
        if not topology.nodes_with(role):
            yield f"no node has the role {role}"
    for name in topology.nodes():
        interface = f"{name}-eth{len(topology.ports.get(name, {}))}"
        if len(interface) > LONGEST_INTERFACE_NAME:
            yield f"the interface name {interface} is longer than {LONGEST_INTERFACE_NAME}"
    links = topology.emulated_links()
    twice = next((ends for ends in links if links.count(ends) > 1), None)
    if twice:
        yield f"{twice[0]} and {twice[1]} have more than one link"
    if getattr(topology, "shared_link", None) not in links:
        yield "shared_link names no link of the topology, the client's side first"
    if not any(topology.isSwitch(name) for name in topology.nodes()):
        yield "there is no management network: call add_management() at the end of build()"
    yield from _problems_of_paths(topology.routes(), topology)


def _problems_of_paths(routes: Mapping[str, Sequence[str]], topology: TorTopo) -> Iterator[str]:
    links = {frozenset(ends) for ends in topology.emulated_links()}
    for client in topology.nodes_with("client"):
        if client not in routes:
            yield f"paths() has none for {client}"
    for client, route in routes.items():
        for ends in pairwise(route):
            if frozenset(ends) not in links:
                yield f"paths(): {client}'s goes from {ends[0]} to {ends[1]}, which have no link"
