"""The table [nodes] of a scenario: how fast the nodes' processors are."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from testbed.asked.scenario_values import DEFAULT, ScenarioPart
from testbed.asked.this_host import THIS_HOST, costs_of_this_host
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, suggestion
from testbed.basics.units import Computing, rate_bit_per_s
from testbed.plan.model import PlannedNode
from testbed.plan.processor import Processor, ps_per_byte

FREE = "free"
"""The value for a processor that takes no time, as all do by default."""

LEAST_RATE_BIT_PER_S = 10**6
"""At a lower rate a single read of 64 kB would keep a Tor busy for more than half a second."""


def _processor_rate(value: object) -> int:
    """A processor's rate in bit/s; ValueError if it is no rate, or too low."""
    rate = rate_bit_per_s(value)
    if rate < LEAST_RATE_BIT_PER_S:
        raise ValueError('is below "1 Mbit/s", where one read keeps a Tor busy for too long')
    return rate


ProcessorRate = Annotated[int, BeforeValidator(_processor_rate)]
"""A model's field in bit/s, at least `LEAST_RATE_BIT_PER_S`."""

ONIONSKIN_TIME = TOR_CONFIGS / "patches" / "onionskin-time.patch"
"""The patch of Tor by which its workers spend time on onionskins."""


class ProcessorKeys(ScenarioPart):
    """The costs of a processor. A rate alone, such as "400 Mbit/s", is that of `read`."""

    read_bit_per_s: ProcessorRate | None = Field(None, alias="read")
    """The rate at which programs read from TCP connections: each byte costs time. It is what
    `processor = "400 Mbit/s"` sets."""
    write_bit_per_s: ProcessorRate | None = Field(None, alias="write")
    """The rate at which they write."""
    per_call_ns: Computing = Field(0, alias="per_call")
    """The time of each system call that moves bytes."""
    per_connection_ns: Computing = Field(0, alias="per_connection")
    """The time of the first bytes read from a connection, which begin a TLS handshake."""
    per_onionskin_ns: Computing = Field(0, alias="per_onionskin")
    """The time of each onionskin, that is each hop of a circuit that a client extends; Tor's
    workers spend it, beside all else."""
    workers: int | None = Field(None, ge=2, le=128, strict=True)
    """The number of Tor's workers; without it 2, Tor's least."""

    def planned(self) -> Processor:
        """The processor as a plan has it."""
        return Processor(
            read_ps_per_byte=ps_per_byte(self.read_bit_per_s) if self.read_bit_per_s else 0,
            write_ps_per_byte=ps_per_byte(self.write_bit_per_s) if self.write_bit_per_s else 0,
            call_ns=self.per_call_ns,
            connection_ns=self.per_connection_ns,
            onionskin_ns=self.per_onionskin_ns,
            workers=self.workers,
        )


def _keys(value: object) -> object:
    """A rate or "this host" as the table that it stands for; "free" as a table without costs."""
    if value == FREE:
        return {}
    if value == THIS_HOST:
        return costs_of_this_host()
    if not isinstance(value, Mapping):
        _processor_rate(value)  # for an error that names the key as it was written
        return {"read": value}
    if not value.keys() - {"workers"}:
        raise ValueError(f'has no cost: write a rate such as "400 Mbit/s", or "{FREE}"')
    return value


class NodeKeys(ScenarioPart):
    """What a scenario says of a kind of nodes."""

    processor: Annotated[ProcessorKeys | None, BeforeValidator(_keys)] = None
    """A [processor](#processor); a rate alone, `"400 Mbit/s"`; `"this host"` for what [`calibrate
    --processor`](commands.md#calibrate) has measured; or `"free"`."""


def with_processors(
    nodes: Iterable[PlannedNode], keys: Mapping[str, NodeKeys], file: Path
) -> tuple[PlannedNode, ...]:
    """The nodes with their processors.

    Of several entries for a node its name prevails over its class of relays (guard, exit, both,
    middle), that over its kind or role, and that over `default`, which is all relays.

    Raises:
        InputError: an entry names no node of this network, or gives one of several servers a
            processor that takes time.
    """
    nodes = tuple(nodes)
    known = dict.fromkeys(name for node in nodes for name in _names(node))
    for name in keys:
        if name not in known:
            raise InputError(
                f"{label(file)}: nodes.{name} names no node of this network:"
                f" {suggestion(name, list(known))}"
            )
    processors = {node.name: _processor(node, keys) for node in nodes}
    servers = [node.name for node in nodes if node.kind == "server"]
    if len(servers) > 1 and (slow := next((one for one in servers if processors[one]), None)):
        raise InputError(
            f"{label(file)}: nodes: {slow} has a processor that takes time, and one program plays"
            f' all {len(servers)} servers, so that it would hold up the others: take "{FREE}"'
        )
    return tuple(
        node.model_copy(update={"processor": processors[node.name]})
        if processors[node.name]
        else node
        for node in nodes
    )


def onionskin_patches(nodes: Iterable[PlannedNode]) -> tuple[Path, ...]:
    """The patch of Tor that lets onionskins take time, if they do at a node."""
    processors = [node.processor for node in nodes if node.processor]
    return (ONIONSKIN_TIME,) if any(one.onionskin_ns for one in processors) else ()


def _names(node: PlannedNode) -> list[str]:
    """The entries that a node can have in [nodes], the one that prevails last."""
    if node.kind == "router":
        return []
    if node.kind != "relay":
        return list(dict.fromkeys([node.kind, node.role, node.name]))
    classes = [node.relay_class, node.role] if node.role == "relay" else [node.role]
    return list(dict.fromkeys([DEFAULT, "relay", *classes, node.name]))


def _processor(node: PlannedNode, keys: Mapping[str, NodeKeys]) -> Processor | None:
    """A node's processor; None if it takes no time."""
    said = [keys[name].processor for name in _names(node) if name in keys]
    found = [one for one in said if one]
    planned = found[-1].planned() if found else Processor()
    return planned if planned != Processor() else None
