"""Reads the part of GraphML that TGen's configurations and Markov models use.

networkx would take eight times as long to import as this program takes to start, and three times
its memory, in each of a dozen generators. `action_graph` and `markov` interpret the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from testbed.basics.errors import InputError

Attributes = Mapping[str, str]


@dataclass(frozen=True)
class Graph:
    """A directed graph: vertices and edges with their attributes; empty values are left out."""

    nodes: dict[str, Attributes] = field(default_factory=dict)
    edges: list[tuple[str, str, Attributes]] = field(default_factory=list)


def parse_graphml(text: str) -> Graph:
    """Read a document with one directed graph.

    Raises:
        InputError: it is not such a document.
    """
    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise InputError(f"not GraphML: {error}") from None
    found = root.find("{*}graph")
    if found is None:
        raise InputError("not GraphML: it has no graph")
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
            raise InputError(f"edge {source}-{target}: one of these vertices does not exist")
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
