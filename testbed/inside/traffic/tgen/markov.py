"""TGen's Markov models: read from GraphML, and the sequence of observations that one generates.

`pacing` and `driver` turn observations into packets, streams and flows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.inside.traffic.tgen.graphml import Attributes, Graph, parse_graphml

TO_SERVER = "+"
TO_ORIGIN = "-"
END = "F"

# Upstream's constants: the payload of a packet, and the longest delay between two packets that is
# skipped, so they leave together.
PACKET_BYTES = 1460
TOGETHER_US = 10_000
_LONGEST_DELAY_US = 60_000_000

INTERNAL_PACKET_MODEL = "internal-packet-model"
INTERNAL_STREAM_MODEL = "internal-stream-model"
INTERNAL_FLOW_MODEL = "internal-flow-model"

# Delays below this round to 0 µs.
_NO_DELAY_US = 0.5
# exp(-_NEVER) is the probability that an exponential delay exceeds the bound: negligible.
_NEVER = 50.0


@dataclass(frozen=True)
class _Emission:
    observation: str
    weight: float
    distribution: str
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class _State:
    transitions: tuple[tuple[str, float], ...]
    emissions: tuple[_Emission, ...]


_DISTRIBUTIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., float]]] = {
    "uniform": (("param_low", "param_high"), lambda r, low, high: r.uniform(low, high)),
    "normal": (("param_location", "param_scale"), lambda r, mu, sigma: r.gauss(mu, sigma)),
    "lognormal": (
        ("param_location", "param_scale"),
        lambda r, mu, sigma: r.lognormvariate(mu, sigma),
    ),
    "exponential": (("param_rate",), lambda r, rate: r.expovariate(rate)),
    "pareto": (("param_scale", "param_shape"), lambda r, xm, alpha: xm * r.paretovariate(alpha)),
}


class MarkovModel:
    """A model and its current state. The seed decides the sequence, which both ends play.

    Args:
        name: its name in log lines and commands, without spaces.
        seed: seed of its random generator (Python's and not GLib's, so the sequence differs from
            upstream's).
        graphml: text of the model, as sent to the other end.
        path: file of the model, if any.

    Raises:
        InputError: the text is not GraphML, or not a model.
    """

    def __init__(self, name: str, seed: int, graphml: str, path: Path | None = None) -> None:
        self.name = name
        self.seed = seed
        self.graphml = graphml
        self.path = path
        self.ended = False
        self._random = random.Random(seed)
        self._states, self._start = _parsed(name, graphml)
        self._state = self._start

    @classmethod
    def from_path(cls, path: Path, seed: int) -> MarkovModel:
        """Read a model from a file, and name it after the file.

        Raises:
            InputError: the file is missing or not a model.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"Markov model {path}: {error}") from None
        return cls(path.name.replace(" ", "_"), seed, text, path)

    @property
    def is_immediate(self) -> bool:
        """Whether it neither waits nor ends, so any number of packets may leave at once."""
        emissions = [e for state in self._states.values() for e in state.emissions if e.weight > 0]
        directions = {emission.observation for emission in emissions}
        return directions == {TO_SERVER, TO_ORIGIN} and all(_is_instant(e) for e in emissions)

    def next_observation(self) -> tuple[str, int]:
        """Return the next of '+', '-', 'F', and the delay in µs that follows it.

        After 'F' it returns 'F' until `reset`. As upstream, a state without transitions ends the
        model, and no delay exceeds one minute.
        """
        if self.ended:
            return END, 0
        transitions = self._states[self._state].transitions
        self._state = self._chosen([t for t, _ in transitions], [w for _, w in transitions])
        emissions = self._states[self._state].emissions if self._state else ()
        if not emissions:
            self.ended = True
            return END, 0
        emission = self._random.choices(emissions, [e.weight for e in emissions])[0]
        self.ended = emission.observation == END
        return emission.observation, self._delay_us(emission)

    def reset(self) -> None:
        """Go back to the start state; the random sequence continues."""
        self.ended = False
        self._state = self._start

    def _chosen(self, names: list[str], weights: list[float]) -> str:
        return self._random.choices(names, weights)[0] if names else ""

    def _delay_us(self, emission: _Emission) -> int:
        keys, draw = _DISTRIBUTIONS[emission.distribution]
        try:
            delay = draw(self._random, *(emission.parameters[key] for key in keys))
        except OverflowError:
            delay = math.inf
        return round(min(max(delay, 0.0), _LONGEST_DELAY_US))


def internal_model(name: str, seed: int) -> MarkovModel:
    """Make one of TGen's built-in models: nonstop packets, or streams and flows every 10 ± 4 s."""
    return MarkovModel(name, seed, _internal_graphml(name))


@lru_cache(maxsize=4)
def _internal_graphml(name: str) -> str:
    if name == INTERNAL_PACKET_MODEL:
        nonstop = {"distribution": "exponential", "param_rate": "4294967295.0"}
        return _loop_graphml({TO_SERVER: nonstop, TO_ORIGIN: nonstop})
    delay = {"param_location": "10000000.0", "param_scale": "4000000.0"}
    return _loop_graphml({TO_SERVER: {"distribution": "normal", **delay}})


def _loop_graphml(emissions: Mapping[str, Mapping[str, str]]) -> str:
    """Write a model of one state that repeats, and emits all emissions with equal probability."""
    distribution = next(iter(emissions.values()))
    keys = [("node", "type"), ("node", "name"), ("edge", "type"), ("edge", "weight")]
    keys += [("edge", name) for name in distribution]
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ]
    for of, name in keys:
        kind = "double" if name == "weight" or name.startswith("param_") else "string"
        lines.append(f'<key id="{of}-{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>')
    lines.append('<graph edgedefault="directed">')
    lines += [_node("s0", "state", "start"), _node("s1", "state", "loop")]
    lines += [_edge("s0", "s1", "transition", 1.0, {}), _edge("s1", "s1", "transition", 1.0, {})]
    for number, (observation, parameters) in enumerate(emissions.items(), 1):
        lines.append(_node(f"o{number}", "observation", observation))
        weight = 1.0 / len(emissions)
        lines.append(_edge("s1", f"o{number}", "emission", weight, parameters))
    return "\n".join([*lines, "</graph>", "</graphml>", ""])


def _node(node: str, kind: str, name: str) -> str:
    data = f'<data key="node-type">{kind}</data><data key="node-name">{name}</data>'
    return f'<node id="{node}">{data}</node>'


def _edge(source: str, target: str, kind: str, weight: float, more: Mapping[str, str]) -> str:
    values = {"type": kind, "weight": str(weight), **more}
    data = "".join(f'<data key="edge-{key}">{text}</data>' for key, text in values.items())
    return f'<edge source="{source}" target="{target}">{data}</edge>'


@lru_cache(maxsize=16)
def _parsed(name: str, graphml: str) -> tuple[Mapping[str, _State], str]:
    # Cached, so a model is parsed once per process and not once per stream.
    try:
        graph = parse_graphml(graphml)
    except InputError as error:
        raise InputError(f"Markov model {name}: {error}") from None
    kinds = {node: data.get("type", "") for node, data in graph.nodes.items()}
    names = {node: data.get("name", "") for node, data in graph.nodes.items()}
    for node, kind in kinds.items():
        if kind not in ("state", "observation"):
            raise InputError(f"Markov model {name}: vertex {node}: type must be state, observation")
        if kind == "observation" and names[node] not in (TO_SERVER, TO_ORIGIN, END):
            raise InputError(f"Markov model {name}: observation {names[node]!r} must be +, - or F")
    starts = [node for node in kinds if kinds[node] == "state" and names[node] == "start"]
    if len(starts) != 1:
        raise InputError(f"Markov model {name}: {len(starts)} start states, must be exactly one")
    states = {n: _state(name, graph, n, kinds, names) for n in kinds if kinds[n] == "state"}
    return states, starts[0]


def _state(
    model: str,
    graph: Graph,
    node: str,
    kinds: Mapping[str, str],
    names: Mapping[str, str],
) -> _State:
    transitions: list[tuple[str, float]] = []
    emissions: list[_Emission] = []
    for source, target, data in graph.edges:
        if source != node:
            continue
        where = f"Markov model {model}: edge {node}-{target}"
        weight = _number(where, data, "weight")
        wanted = {"state": "transition", "observation": "emission"}[kinds[target]]
        if data.get("type") != wanted:
            raise InputError(f"{where}: type = {data.get('type')!r}, must be {wanted!r}")
        if wanted == "transition":
            transitions.append((target, weight))
        else:
            emissions.append(_emission(where, names[target], weight, data))
    if transitions and not any(weight for _, weight in transitions):
        raise InputError(f"Markov model {model}: state {node}: all transitions have weight 0")
    if emissions and not any(emission.weight for emission in emissions):
        raise InputError(f"Markov model {model}: state {node}: all emissions have weight 0")
    return _State(tuple(transitions), tuple(emissions))


def _emission(where: str, observation: str, weight: float, data: Attributes) -> _Emission:
    distribution = data.get("distribution", "")
    if distribution not in _DISTRIBUTIONS:
        known = ", ".join(_DISTRIBUTIONS)
        raise InputError(f"{where}: distribution = {distribution!r}, must be one of {known}")
    keys, _ = _DISTRIBUTIONS[distribution]
    parameters = {key: _number(where, data, key) for key in keys}
    for key in ("param_rate", "param_shape"):
        if parameters.get(key) == 0.0:
            raise InputError(f"{where}: {key} = 0, must be positive")
    return _Emission(observation, weight, distribution, parameters)


def _number(where: str, data: Attributes, key: str) -> float:
    try:
        value = float(data[key])
    except (KeyError, ValueError):
        raise InputError(f"{where}: {key} = {data.get(key)!r}, must be a number") from None
    if not 0.0 <= value < math.inf:
        raise InputError(f"{where}: {key} = {value}, must be 0 or more")
    return value


def _is_instant(emission: _Emission) -> bool:
    parameters = emission.parameters
    if emission.distribution == "exponential":
        return parameters["param_rate"] * _NO_DELAY_US > _NEVER
    if emission.distribution == "normal":
        return parameters["param_scale"] == 0 and parameters["param_location"] < _NO_DELAY_US
    return emission.distribution == "uniform" and parameters["param_high"] < _NO_DELAY_US
