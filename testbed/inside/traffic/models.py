"""Traffic models by name, and the TGen configurations of their clients and servers.

The experiment starts the programs; `tgen` plays the configurations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import networkx

from testbed.basics.errors import InputError
from testbed.basics.seeds import BITS, derived_seed
from testbed.inside.traffic.tgen.markov import PACKET_BYTES, TO_ORIGIN, TOGETHER_US

# A paced model's packets leave in bursts about this far apart. TGen ignores delays up to 10 ms.
_BURST_INTERVAL_US = 20_000
_STALLOUT = "30 seconds"
# An uploading client has written everything to its Tor's socket long before it arrives. Then it
# hears nothing until the server has received everything.
_UPLOAD_STALLOUT = "10 minutes"
_HEARTBEAT = "1 second"

SEED_BITS = 31
"""TGen reads seeds as unsigned numbers of 32 bits."""


@dataclass(frozen=True)
class TrafficModel:
    """A cycle that a client repeats: one or several transfers at once, then a pause.

    After a failed transfer the bundled generator waits one second more, so an error costs a moment
    and not the whole run. Upstream's continues at once.

    Attributes:
        name: the name in scenarios and for `--traffic`.
        description: one line for `list`.
        transfer_bytes: payload of one transfer, from server to client.
        rate_byte_per_s: rate to which the server paces a transfer; None: as fast as possible.
        upload: whether the payload goes from client to server instead.
        at_once: how many transfers begin together, each in its own stream. The next ones begin when
            all of them have ended. Together they are a load.
        pauses_s: lengths among which a pause is drawn; empty: the next transfer begins at once. If
            there are several, a client begins within a pause (`first_pause_s`).
    """

    name: str
    description: str
    transfer_bytes: int
    rate_byte_per_s: int | None = None
    pauses_s: tuple[int, ...] = ()
    upload: bool = False
    at_once: int = 1

    @property
    def load_bytes(self) -> int:
        """Payload of all transfers that begin together."""
        return self.transfer_bytes * self.at_once


_ALL = (
    TrafficModel("bulk", "5 MB, then the next at once", 5_000_000),
    TrafficModel("web", "2 MB, then a pause of 10 s", 2_000_000, pauses_s=(10,)),
    # Streams of 5 s are long enough that the gap between two costs only 2 % of the rate if the time
    # to first byte is 100 ms, and short enough that a link of 2 Mbit/s completes some in 5 min.
    TrafficModel("audio", "50 kB/s in streams of 5 s", 250_000, rate_byte_per_s=50_000),
    TrafficModel("video", "1 MB/s in streams of 5 s", 5_000_000, rate_byte_per_s=1_000_000),
    TrafficModel(
        "page",
        "320 KiB, then a pause of 1 to 30 s; begins within a pause",
        320 * 1024,
        pauses_s=tuple(range(1, 31)),
    ),
    TrafficModel(
        "page20",
        "320 KiB, then a pause of 1 to 20 s; begins within a pause",
        320 * 1024,
        pauses_s=tuple(range(1, 21)),
    ),
    TrafficModel("bulk5mib", "5 MiB, then the next at once", 5 * 1024 * 1024),
    # The files of tornettools' performance clients, which pause for a minute; here for 10 s on
    # average, so that a run of a minute has several.
    *(
        TrafficModel(
            f"perf-{name}",
            f"{size}, then a pause of 1 to 19 s; begins within a pause",
            transfer_bytes,
            pauses_s=tuple(range(1, 20)),
        )
        for name, size, transfer_bytes in (
            ("50kb", "50 kB", 50_000),
            ("1mb", "1 MB", 1_000_000),
            ("5mb", "5 MB", 5_000_000),
        )
    ),
    TrafficModel("upload", "5 MB to the server, then the next at once", 5_000_000, upload=True),
    # Liu and Lin's loads (Increasing bandwidth in Tor paths with multiple inter-relay connections,
    # 2016), scaled down so that a run of minutes has several: docs/measurements.md, "Loads".
    TrafficModel(
        "mctor-video", "9.6 MB in six pieces at once, a fifth of MCTor's", 1_600_000, at_once=6
    ),
    TrafficModel(
        "mctor-upload",
        "23.5 MB up in six pieces, a tenth of MCTor's",
        3_916_667,
        upload=True,
        at_once=6,
    ),
    TrafficModel(
        "mctor-files", "five files of 6.27 MB at once, a hundredth of MCTor's", 6_270_000, at_once=5
    ),
)
MODELS: Mapping[str, TrafficModel] = {model.name: model for model in _ALL}


def uploads(model: str) -> bool:
    """Whether a model's payload goes from client to server; False for unknown models."""
    return model in MODELS and MODELS[model].upload


def traffic_model(name: str) -> TrafficModel:
    """Return the model with a name.

    Raises:
        InputError: there is no such model.
    """
    if name not in MODELS:
        raise InputError(f"traffic = {name!r}: must be one of {', '.join(MODELS)}")
    return MODELS[name]


def generator_seed(seed: int, client: str) -> int:
    """Derive the seed of a client's generator from the run's."""
    return derived_seed(seed, "tgen", client, bits=SEED_BITS)


def first_pause_s(model: str, seed: int) -> float:
    """Draw how long a client waits before its first transfer: the rest of a pause under way.

    If all clients of a model with random pauses began at once, they would coincide as they never do
    later. So a moment is drawn from all pauses laid end to end: the longer a pause, the likelier
    the moment lies in it (the residual life of renewal theory; Cox, Renewal Theory, 1962). The time
    that transfers take is ignored. If all pauses have the same length, clients begin at once.

    Args:
        model: a name from `MODELS`.
        seed: the same as for `client_graph`.

    Raises:
        InputError: an unknown model.
    """
    pauses_s = traffic_model(model).pauses_s
    if len(pauses_s) < 2:
        return 0.0
    ends_s = list(accumulate(pauses_s))
    moment_s = derived_seed(seed, "first pause") * ends_s[-1] / (1 << BITS)
    return ends_s[bisect_right(ends_s, moment_s)] - moment_s


def client_graph(
    model: str,
    *,
    server: tuple[str, int],
    socks_proxy: tuple[str, int] | None,
    seed: int,
    socks_username: str | None = None,
    packet_model_path: Path | None = None,
) -> networkx.DiGraph[str]:
    """Make a client's configuration.

    Args:
        model: a name from `MODELS`.
        server: address and port of the server's generator.
        socks_proxy: address and port of the client's Tor, or None for a direct connection.
        seed: seed of all random choices, not negative.
        socks_username: distinguishes this client's streams from others at the proxy.
        packet_model_path: file that has `packet_graph(model)`; required for paced models.

    Raises:
        InputError: an unknown model.
        ValueError: a paced model without the path of its packet model.
    """
    found = traffic_model(model)
    if found.rate_byte_per_s is not None and packet_model_path is None:
        raise ValueError(f"{model} is paced and needs the path of its packet model")
    start = {
        "peers": _peer(server),
        "loglevel": "message",
        "heartbeat": _HEARTBEAT,
        "markovmodelseed": str(seed),
        "stallout": _UPLOAD_STALLOUT if found.upload else _STALLOUT,
    }
    if first_s := first_pause_s(model, seed):
        start["time"] = f"{round(first_s * 1e6)} microseconds"
    if socks_proxy is not None:
        start["socksproxy"] = _peer(socks_proxy)
        if socks_username is not None:
            start["socksusername"] = socks_username
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_node("start", **start)
    last = _add_streams(graph, found, packet_model_path)
    if found.pauses_s:
        graph.add_node("pause", time=",".join(f"{pause_s} seconds" for pause_s in found.pauses_s))
        graph.add_edge(last, "pause")
        last = "pause"
    graph.add_edge(last, "start")
    return graph


def _add_streams(
    graph: networkx.DiGraph[str], model: TrafficModel, packet_model_path: Path | None
) -> str:
    """Add a model's streams after `start`; return the vertex that follows once all have ended."""
    sizes = (model.transfer_bytes, 0) if model.upload else (0, model.transfer_bytes)
    stream = dict(zip(("sendsize", "recvsize"), map(str, sizes), strict=True))
    if model.rate_byte_per_s is not None:
        stream["packetmodelpath"] = str(packet_model_path)
    if model.at_once == 1:
        graph.add_node("stream", **stream)
        graph.add_edge("start", "stream")
        return "stream"
    barrier = "pause_for_all"  # a pause without a time waits for all that lead to it
    graph.add_node(barrier)
    for number in range(1, model.at_once + 1):
        graph.add_node(f"stream{number}", **stream)
        graph.add_edge("start", f"stream{number}")
        graph.add_edge(f"stream{number}", barrier)
    return barrier


def server_graph(port: int) -> networkx.DiGraph[str]:
    """Make the configuration of a server that listens on all addresses."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_node("start", serverport=str(port), loglevel="message", heartbeat=_HEARTBEAT)
    return graph


def packet_graph(model: str) -> networkx.DiGraph[str] | None:
    """Make the Markov model of a paced model's packets; None if the model is not paced.

    The states form a ring, and each emits one packet. Only the last packet of a burst is followed
    by a delay, as long as the whole burst takes at the model's rate. (TGen skips delays of up to
    10 ms, so evenly spaced packets would not be paced at all.)

    Raises:
        InputError: an unknown model.
    """
    rate_byte_per_s = traffic_model(model).rate_byte_per_s
    if rate_byte_per_s is None:
        return None
    packets, interval_us = burst(rate_byte_per_s)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_node("start", type="state", name="start")
    graph.add_node("packet", type="observation", name=TO_ORIGIN)
    states = [f"packet{number}" for number in range(1, packets + 1)]
    for number, state in enumerate(states, 1):
        graph.add_node(state, type="state", name=state)
        following = states[number % packets]
        delay_us = interval_us if number == packets else 0
        graph.add_edge(state, following, type="transition", weight=1.0)
        graph.add_edge(
            state,
            "packet",
            type="emission",
            weight=1.0,
            distribution="normal",
            param_location=float(delay_us),
            param_scale=0.0,
        )
    graph.add_edge("start", states[0], type="transition", weight=1.0)
    return graph


def burst(rate_byte_per_s: int) -> tuple[int, int]:
    """Return how a rate is paced: packets of 1460 bytes in a burst, and µs between bursts."""
    packets = max(1, round(_BURST_INTERVAL_US * rate_byte_per_s / PACKET_BYTES / 1e6))
    while packets * PACKET_BYTES * 1_000_000 <= TOGETHER_US * rate_byte_per_s:
        packets += 1
    return packets, round(packets * PACKET_BYTES * 1e6 / rate_byte_per_s)


def write_client(
    directory: Path,
    name: str,
    model: str,
    *,
    server: tuple[str, int],
    socks_proxy: tuple[str, int] | None,
    seed: int,
    socks_username: str | None = None,
) -> Path:
    """Write a client's configuration, and its packet model, into a directory.

    The files are `NAME.tgen.graphml` and, for a paced model, `NAME.packets.graphml`. For the other
    arguments and the errors see `client_graph`.

    Returns:
        The path of the configuration.
    """
    packets = packet_graph(model)
    packets_path = directory.resolve() / f"{name}.packets.graphml"
    if packets is not None:
        networkx.write_graphml(packets, packets_path)
    graph = client_graph(
        model,
        server=server,
        socks_proxy=socks_proxy,
        seed=seed,
        socks_username=socks_username,
        packet_model_path=packets_path,
    )
    path = directory / f"{name}.tgen.graphml"
    networkx.write_graphml(graph, path)
    return path


def write_server(directory: Path, name: str, port: int) -> Path:
    """Write a server's configuration as `NAME.tgen.graphml` and return its path."""
    path = directory / f"{name}.tgen.graphml"
    networkx.write_graphml(server_graph(port), path)
    return path


def _peer(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
