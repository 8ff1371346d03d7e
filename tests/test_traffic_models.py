"""The traffic models as configuration: sizes, pauses, pacing, and TGen's grammar.

test_model_timing plays them over the lab's links.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import networkx
import pytest

from testbed.basics.errors import InputError
from testbed.inside.traffic.models import (
    MODELS,
    burst,
    client_graph,
    first_pause_s,
    generator_seed,
    packet_graph,
    server_graph,
    uploads,
    write_client,
    write_server,
)
from testbed.inside.traffic.tgen.action_graph import Action, read_action_graph
from testbed.inside.traffic.tgen.markov import MarkovModel
from testbed.inside.traffic.tgen.pacing import Pacing

SERVER = ("10.0.0.9", 8888)
PROXY = ("127.0.0.1", 9050)


def test_names_and_sizes() -> None:
    sizes = {name: model.transfer_bytes for name, model in MODELS.items()}
    assert sizes == {
        "bulk": 5_000_000,
        "web": 2_000_000,
        "audio": 250_000,
        "video": 5_000_000,
        "page": 327_680,
        "page20": 327_680,
        "bulk5mib": 5_242_880,
        "perf-50kb": 50_000,
        "perf-1mb": 1_000_000,
        "perf-5mb": 5_000_000,
        "upload": 5_000_000,
        "mctor-video": 1_600_000,
        "mctor-upload": 3_916_667,
        "mctor-files": 6_270_000,
    }
    assert {name for name in MODELS if uploads(name)} == {"upload", "mctor-upload"}
    assert not uploads("bluk")
    # The published sizes are 235 MB, and five files of 627 MB.
    assert MODELS["mctor-upload"].load_bytes == pytest.approx(23.5e6, abs=3)
    assert MODELS["mctor-files"].load_bytes == 5 * 6_270_000
    for model in (MODELS["audio"], MODELS["video"]):  # in streams of 5 s
        assert model.transfer_bytes == 5 * (model.rate_byte_per_s or 0)


def only(followers: Iterable[list[Action]]) -> Action:
    """Return the one action that follows several others."""
    (after,) = {id(one): one for each in followers for one in each}.values()
    return after


@pytest.mark.parametrize("name", MODELS)
def test_client_configuration_is_valid(name: str, tmp_path: Path) -> None:
    path = write_client(
        tmp_path, "c1", name, server=SERVER, socks_proxy=PROXY, seed=7, socks_username="c1"
    )
    graph = read_action_graph(path)
    streams = graph.start.followers
    assert len(streams) == MODELS[name].at_once
    for stream in streams:
        assert stream.kind == "stream"
        options = stream.stream
        assert options is not None
        sizes = (options.send_bytes, options.receive_bytes)
        payload_bytes = MODELS[name].transfer_bytes
        assert sizes == ((payload_bytes, 0) if uploads(name) else (0, payload_bytes))
        assert [peer.address for peer in options.peers] == [SERVER]
        assert [proxy.address for proxy in options.socks_proxies] == [PROXY]
        assert options.socks_username == "c1"
    assert graph.options.seed == 7
    assert graph.options.delay_us == round(1e6 * first_pause_s(name, 7))
    assert bool(graph.options.delay_us) == name.startswith(("page", "perf-"))
    after = only(stream.followers for stream in streams)
    if len(streams) > 1:
        assert (after.kind, after.pause_times_us) == ("pause", ())
        assert after.incoming == len(streams)
        (after,) = after.followers
    pauses_s = MODELS[name].pauses_s
    if pauses_s:
        assert after.pause_times_us == tuple(pause_s * 1_000_000 for pause_s in pauses_s)
        (after,) = after.followers
    assert after is graph.start
    paced = MODELS[name].rate_byte_per_s is not None
    assert options and (options.packet_model_path is not None) == paced


def test_pauses() -> None:
    assert MODELS["bulk"].pauses_s == ()
    assert MODELS["web"].pauses_s == (10,)
    assert MODELS["page"].pauses_s == tuple(range(1, 31))


def test_pages_begin_as_often_at_the_start_as_later() -> None:
    """Simulates clients whose pages take no time; all pages of the first seconds are first ones."""
    begun = Counter[int]()
    for number in range(4000):
        seed = generator_seed(1, f"client{number}")
        chance, at_s = random.Random(seed), first_pause_s("page", seed)
        while at_s < 60:
            begun[int(at_s // 5)] += 1
            at_s += chance.choice(MODELS["page"].pauses_s)
    mean_pause_s = fmean(MODELS["page"].pauses_s)
    assert [begun[number] for number in range(12)] == pytest.approx(
        [4000 * 5 / mean_pause_s] * 12, rel=0.1
    )


def test_server_configuration_is_valid(tmp_path: Path) -> None:
    graph = read_action_graph(write_server(tmp_path, "server", 8888))
    assert graph.options.server_port == 8888
    assert not graph.start.followers
    assert server_graph(1).nodes["start"]["serverport"] == "1"


def test_without_a_proxy_there_is_no_username() -> None:
    graph = client_graph("bulk", server=SERVER, socks_proxy=None, seed=1, socks_username="x")
    assert "socksproxy" not in graph.nodes["start"]
    assert "socksusername" not in graph.nodes["start"]


def test_every_value_is_a_string_for_upstream() -> None:
    for name in MODELS:
        graph = client_graph(
            name, server=SERVER, socks_proxy=PROXY, seed=1, packet_model_path=Path("p.graphml")
        )
        for _, attributes in graph.nodes(data=True):
            assert all(isinstance(value, str) for value in attributes.values())


def test_unknown_model() -> None:
    with pytest.raises(InputError, match=r"'bluk'.*bulk, web, audio, video"):
        client_graph("bluk", server=SERVER, socks_proxy=None, seed=1)


def test_paced_model_needs_a_path() -> None:
    with pytest.raises(ValueError, match="packet model"):
        client_graph("audio", server=SERVER, socks_proxy=None, seed=1)


@pytest.mark.parametrize("rate_byte_per_s", [10_000, 50_000, 333_333, 1_000_000, 50_000_000])
def test_burst_keeps_rate_and_exceeds_what_tgen_ignores(rate_byte_per_s: int) -> None:
    packets, interval_us = burst(rate_byte_per_s)
    assert interval_us > 10_000
    assert packets * 1460 / interval_us * 1e6 == pytest.approx(rate_byte_per_s, rel=1e-4)


@pytest.mark.parametrize("name", ["audio", "video"])
def test_pacing_on_an_ideal_network(name: str) -> None:
    """With a punctual clock the rate is exact except for the length of one burst."""
    graph = packet_graph(name)
    assert graph is not None
    text = "\n".join(networkx.generate_graphml(graph))
    model = MODELS[name]
    assert model.rate_byte_per_s is not None
    pacing = Pacing(MarkovModel(name, 1, text), False, model.transfer_bytes)
    now_us, sent_bytes, bursts = 1_000_000_000, 0, []
    while not pacing.finished:
        due_bytes = pacing.due_bytes(now_us)
        assert due_bytes > 0
        bursts.append((now_us, due_bytes))
        pacing.sent(due_bytes)
        sent_bytes += due_bytes
        assert pacing.due_bytes(now_us) == 0
        now_us = pacing.barrier_us or now_us
    assert sent_bytes == model.transfer_bytes
    packets, interval_us = burst(model.rate_byte_per_s)
    times_us = [time_us for time_us, _ in bursts]
    assert {b - a for a, b in pairwise(times_us)} == {interval_us}
    assert {size for _, size in bursts[:-1]} == {packets * 1460}
    elapsed_s = (times_us[-1] - times_us[0]) / 1e6
    assert elapsed_s == pytest.approx(
        model.transfer_bytes / model.rate_byte_per_s, abs=interval_us / 1e6
    )


def test_bulk_is_not_paced() -> None:
    assert packet_graph("bulk") is None
