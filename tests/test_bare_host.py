"""The bench's network on the bare host: no packet can leave the loopback, and it delivers."""

import ipaddress
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from testbed.asked.plans import make_plan
from testbed.basics.errors import TestbedError
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.runs import bare_host
from testbed.runs.bare_host import BareCost, deliver_on_bare_host, on_loopback
from testbed.runs.bench import Bench
from testbed.runs.runner import plan_need
from testbed.setup.builds import Build
from testbed.setup.ready import ensure_ready

ADDRESS = re.compile(r"\b\d+\.\d+\.\d+\.\d+\b")
LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
IDENTITIES = {"authority1": AuthorityIdentity("A" * 40, "B" * 40)}


@pytest.mark.parametrize("scenario", ["SharedDropping", "One"])
def test_every_address_of_every_torrc_is_the_loopbacks(tmp_path: Path, scenario: str) -> None:
    plan = on_loopback(make_plan(scenario, "pctls"))
    addresses = [str(node.address) for node in plan.nodes]
    assert len(set(addresses)) == len(addresses)
    for node in plan.nodes:
        if node.role == "server":
            continue
        text = torrc(plan, node, TorFiles(node.name, tmp_path, tmp_path / "log"), IDENTITIES)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        found = [ipaddress.IPv4Address(one) for line in lines for one in ADDRESS.findall(line)]
        assert len(found) > 2
        assert [one for one in found if one not in LOOPBACK] == []
        assert [line for line in lines if line.startswith("OutboundBind")] == [
            "OutboundBindAddress 127.0.0.1"
        ]
        (authority,) = [line for line in lines if line.startswith("DirAuthority")]
        assert " ".join(ADDRESS.findall(authority)) == plan.nodes_with("authority")[0].address
        # On one loopback two of the same port would collide.
        socks = [line for line in lines if line.startswith("SocksPort") and "unix" not in line]
        flags = "SessionGroup=1 NoIsolateClientAddr"
        is_client = node.role == "client"
        wanted = f"SocksPort {node.address}:9050 {flags}" if is_client else "SocksPort 0"
        assert socks == [wanted]


def test_the_lab_keeps_its_addresses() -> None:
    plan = make_plan("One", "vanilla")
    on_loopback(plan)
    assert [node.address for node in plan.nodes_with("exit")] == ["10.0.4.1"]
    assert plan.tor.torrc_all == {}


def test_the_ratio() -> None:
    bench = Bench(
        duration_s=60,
        cpu_s=100,
        wall_s=110,
        delivered_mb=800,
        bare=BareCost(cpu_s=50, wall_s=90, delivered_mb=1000, packet_bytes=20_000),
        bare_packets=BareCost(cpu_s=80, wall_s=90, delivered_mb=1000, packet_bytes=1400),
        calls_per_mb={},
        packets_per_mb=1,
        wake_ups_per_packet=1,
    )
    assert bench.ratio == pytest.approx(2.5)
    assert bench.ratio_with_packets == pytest.approx(1.5625)
    record = bench.record()
    assert (record["ratio"], record["bare"]["cpu_s"]) == (bench.ratio, 50)


def test_a_tor_that_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("tor", "tor-gencert"):
        (tmp_path / program).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setattr(bare_host, "_in_own_network", list)
    with pytest.raises(TestbedError, match="the network on the bare host ended with status 1"):
        deliver_on_bare_host(make_plan("One", "vanilla"), Build(tmp_path), 1.0, tmp_path)


def addresses_of(program: psutil.Process) -> set[str]:
    """The addresses of both ends of its sockets."""
    sockets = program.net_connections("inet")
    return {end.ip for one in sockets for end in (one.laddr, one.raddr) if end}


def interfaces_of(program: psutil.Process) -> set[str]:
    """The name of its network namespace."""
    lines = Path(f"/proc/{program.pid}/net/dev").read_text().splitlines()
    return {line.partition(":")[0].strip() for line in lines[2:]}


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("own_network", "single_packets"), [(True, False), (True, True), (False, False)]
)
def test_it_delivers_and_opens_nothing_but_the_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_network: bool, single_packets: bool
) -> None:
    if not own_network:
        monkeypatch.setattr(bare_host, "may_have_own_network", lambda: False)
    elif not bare_host.may_have_own_network():
        pytest.skip("the kernel gives this user no network of its own")
    seen_of = interfaces_of if own_network else addresses_of
    plan = make_plan("One", "vanilla")
    tor = ensure_ready(Console(stderr=True), [plan_need(plan)]).tors[plan_need(plan)]
    before = set(psutil.Process().children())
    ended = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not ended.wait(0.2):
            for ours in set(psutil.Process().children()) - before:
                with suppress(psutil.Error, OSError):
                    for program in ours.children(recursive=True):
                        if program.name() in ("tor", "python"):
                            seen.update(seen_of(program))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        started_s = time.monotonic()
        cost = deliver_on_bare_host(plan, tor, 20.0, tmp_path, single_packets=single_packets)
        took_s = time.monotonic() - started_s
    finally:
        ended.set()
        looker.join()
    assert 20 <= cost.delivered_mb < 200
    assert 0 < cost.cpu_s < 2 * took_s
    assert cost.wall_s == pytest.approx(took_s, abs=2)
    # At most 1500 bytes each, and half of them are acknowledgements.
    assert cost.packet_bytes < 1500 if single_packets else cost.packet_bytes > 2000
    if own_network:
        assert seen == {"lo"}
    else:
        assert len(seen) > 6
        assert [one for one in seen if ipaddress.IPv4Address(one) not in LOOPBACK] == []
    assert [one for one in set(psutil.Process().children()) - before if one.is_running()] == []
