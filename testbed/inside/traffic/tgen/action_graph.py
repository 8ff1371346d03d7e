"""TGen's action graph: read from GraphML and checked, and the choice of an action's followers.

`driver` performs the actions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.inside.traffic.tgen.graphml import Attributes, Graph, parse_graphml
from testbed.inside.traffic.tgen.options import (
    OPTIONS_OF_ACTION,
    TRAFFIC_OPTIONS,
    EndOptions,
    StartOptions,
    StreamOptions,
    optional_path,
    parse_times_us,
)

# A vertex's kind is a word that its id contains. If there are two, the first in this order counts.
KINDS = ("start", "end", "pause", "stream", "flow", "traffic")


@dataclass
class Action:
    """A vertex: its kind, its attributes, and the actions that follow."""

    name: str
    kind: str
    attributes: Mapping[str, str]
    followers: list[Action] = field(default_factory=list)
    weighted: list[tuple[Action, float]] = field(default_factory=list)
    incoming: int = 0
    visits: int = 0

    # The options of the action's kind, parsed once, with the start action's as defaults.
    stream: StreamOptions | None = None
    stream_model_path: Path | None = None
    flow_model_path: Path | None = None
    pause_times_us: tuple[int, ...] = ()
    end: EndOptions | None = None

    def next_actions(self, choice: random.Random) -> list[Action]:
        """Choose the next actions: all along unweighted edges, and one along a weighted edge."""
        chosen = list(self.followers)
        if self.weighted:
            actions, weights = zip(*self.weighted, strict=True)
            chosen += choice.choices(actions, weights)
        return chosen

    def visited_by_all(self) -> bool:
        """Count a visit of a barrier pause; return whether it is the last, and then start anew."""
        self.visits += 1
        if self.visits < self.incoming:
            return False
        self.visits = 0
        return True


@dataclass(frozen=True)
class ActionGraph:
    """A checked configuration."""

    path: Path
    start: Action
    options: StartOptions
    defaults: StreamOptions
    vertices: int
    edges: int


def read_action_graph(path: Path) -> ActionGraph:
    """Read and check a configuration.

    Raises:
        InputError: the file is missing, not GraphML, or not an action graph that TGen would take.
    """
    try:
        return _checked(path, parse_graphml(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not GraphML: not UTF-8") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _checked(path: Path, graph: Graph) -> ActionGraph:
    starts = [name for name in graph.nodes if _kind(name) == "start"]
    if len(starts) != 1:
        raise InputError(f"{len(starts)} start vertices, must be exactly one")
    own = graph.nodes[starts[0]]
    inherited = {key: text for key, text in own.items() if key in TRAFFIC_OPTIONS}
    actions = {name: _action(name, found, inherited) for name, found in graph.nodes.items()}
    for source, target, attributes in graph.edges:
        _connect(actions[source], actions[target], attributes)
    start = actions[starts[0]]
    _check_that_all_are_reached(start, actions)
    _check_that_cycles_wait(graph, actions)
    return ActionGraph(
        path=path,
        start=start,
        options=StartOptions.from_attributes(own),
        defaults=StreamOptions.from_attributes(inherited),
        vertices=len(graph.nodes),
        edges=len(graph.edges),
    )


def _kind(name: str) -> str:
    for kind in KINDS:
        if kind in name:
            return kind
    raise InputError(f"vertex {name!r}: its id must contain one of {', '.join(KINDS)}")


def _action(name: str, own: Mapping[str, str], inherited: Mapping[str, str]) -> Action:
    kind = _kind(name)
    known = OPTIONS_OF_ACTION[kind]
    unknown = sorted(set(own) - known)
    if unknown:
        choices = ", ".join(sorted(known))
        raise InputError(f"vertex {name!r}: unknown {unknown[0]!r}, can be {choices}")
    try:
        return _with_options(Action(name, kind, own), inherited)
    except InputError as error:
        raise InputError(f"vertex {name!r}: {error}") from None


def _with_options(action: Action, inherited: Mapping[str, str]) -> Action:
    if action.kind == "pause" and "time" in action.attributes:
        action.pause_times_us = parse_times_us("time", action.attributes["time"])
    elif action.kind == "end":
        action.end = EndOptions.from_attributes(action.attributes)
    elif action.kind in ("stream", "flow", "traffic"):
        attributes = {**inherited, **action.attributes}
        action.stream = StreamOptions.from_attributes(attributes)
        action.stream_model_path = optional_path(attributes, "streammodelpath")
        action.flow_model_path = optional_path(attributes, "flowmodelpath")
        if not action.stream.peers:
            raise InputError("'peers' is missing here and in the start vertex")
    return action


def _connect(source: Action, target: Action, attributes: Attributes) -> None:
    unknown = sorted(set(attributes) - {"weight", "id"})
    if unknown:
        raise InputError(f"edge {source.name}-{target.name}: unknown {unknown[0]!r}, can be weight")
    target.incoming += 1
    text = attributes.get("weight")
    if text is None:
        source.followers.append(target)
        return
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0.0 <= weight < math.inf:
        raise InputError(f"edge {source.name}-{target.name}: weight = {text!r}, must be 0 or more")
    source.weighted.append((target, weight))


def _check_that_all_are_reached(start: Action, actions: Mapping[str, Action]) -> None:
    reached = {start.name}
    ahead = [start]
    while ahead:
        action = ahead.pop()
        following = [*action.followers, *(target for target, _ in action.weighted)]
        ahead += [target for target in following if target.name not in reached]
        reached |= {target.name for target in following}
        if action.weighted and not any(weight for _, weight in action.weighted):
            raise InputError(f"vertex {action.name!r}: all edges with a weight have weight 0")
    for name in actions:
        if name not in reached:
            raise InputError(f"vertex {name!r}: can't be reached from {start.name!r}")


def _check_that_cycles_wait(graph: Graph, actions: Mapping[str, Action]) -> None:
    # A cycle that neither transfers nor pauses would be walked for ever in one instant.
    instant = {
        name
        for name, action in actions.items()
        if action.kind in ("start", "end")
        or (action.kind == "pause" and not any(action.pause_times_us))
    }
    order: TopologicalSorter[str] = TopologicalSorter()
    for source, target, _ in graph.edges:
        if {source, target} <= instant:
            order.add(target, source)
    try:
        order.prepare()
    except CycleError as error:
        names = ", ".join(error.args[1])
        raise InputError(f"the cycle {names} neither transfers nor pauses") from None
