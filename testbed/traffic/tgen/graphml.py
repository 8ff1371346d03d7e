"""Reads GraphML as far as TGen's configurations and Markov models use it.

By hand, because networkx takes eight times as long to import as this program does to start and
three times its memory, in a kernel where each of a dozen generators pays for that. What the
attributes mean lives in `action_graph` and `markov`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from testbed.errors import InputError

Attributes = Mapping[str, str]


@dataclass(frozen=True)
class Graph:
    """A directed graph: attributes by vertex id, and edges with theirs; empty ones are left out."""

    nodes: dict[str, Attributes] = field(default_factory=dict)
    edges: list[tuple[str, str, Attributes]] = field(default_factory=list)


def parse_graphml(text: str) -> Graph:
    """Read a document with one directed graph.

    Raises:
        InputError: it is none.
    """
    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise InputError(f"no GraphML: {error}") from None
    found = root.find("{*}graph")
    if found is None:
        raise InputError("no GraphML: no graph in it")
    if found.get("edgedefault") != "directed":
        raise InputError("the graph must be directed")
    keys = {key.get("id", ""): key for key in root.iterfind("{*}key")}
    names = {key_id: key.get("attr.name", key_id) for key_id, key in keys.items()}
    defaults = {
        (key.get("for", "all"), names[key_id]): key.findtext("{*}default") or ""
        for key_id, key in keys.items()
    }
    graph = Graph()
    for node in found.iterfind("{*}node"):
        graph.nodes[node.get("id", "")] = _attributes(node, "node", names, defaults)
    for edge in found.iterfind("{*}edge"):
        source, target = edge.get("source", ""), edge.get("target", "")
        if not {source, target} <= set(graph.nodes):
            raise InputError(f"edge {source}-{target}: there is no such vertex")
        graph.edges.append((source, target, _attributes(edge, "edge", names, defaults)))
    return graph


def _attributes(
    element: ElementTree.Element,
    kind: str,
    names: Mapping[str, str],
    defaults: Mapping[tuple[str, str], str],
) -> Attributes:
    values = {name: text for (of, name), text in defaults.items() if of in (kind, "all")}
    for data in element.iterfind("{*}data"):
        key = data.get("key", "")
        values[names.get(key, key)] = (data.text or "").strip()
    return {name: text for name, text in values.items() if text}
