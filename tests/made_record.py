"""What an experiment leaves behind, made by hand: a run of two clients, of ten seconds.

Its numbers are worked out in test_results.
"""

import json
import math
from pathlib import Path
from typing import Any

import polars

from testbed.plan_model import Link, Plan
from testbed.results import (
    MachineFacts,
    Summary,
    publish,
    staging,
    write_results,
)
from testbed.results.checks import (
    SAMPLE_INTERVAL_S,
)
from testbed.results.tables import SCHEMAS
from testbed.traffic.tgen_log import STEPS

START_S = 1_800_000_000.0
SCENARIO = """
title = "Two clients"
topology = "two_clients"
traffic = "bulk"
duration = "10 s"
[links]
default = { rate = "100 Mbit/s" }
middle-exit = { delay = "10 ms", loss = "0.1 %" }
"""
FIRST_PORT = 40_000


def stream(number: int, began_s: float, first_s: float, last_s: float, size: int, ok: bool) -> str:
    """A line of TGen; the times are since START_S, then since the stream's beginning.

    The answer comes right before the first byte, and took a quarter of the time until then.
    """
    now_us = round(1e6 * (began_s + last_s))
    steps_s = dict.fromkeys(STEPS, 0.001) | {
        "command": 0.75 * first_s,
        "response": first_s,
        "first-byte-recv": first_s,
        "last-byte-recv": last_s,
        "checksum-recv": last_s,
    }
    steps = ",".join(f"usecs-to-{step}={round(1e6 * at_s)}" for step, at_s in steps_s.items())
    word, error = ("success", "NONE") if ok else ("error", "READ")
    return (
        f"2027-01-15 08:00:00 {START_S + began_s + last_s:.6f} [message] [stream.c:1] [log]"
        f" [stream-{word}] transport"
        f" [fd=8,local=localhost:127.0.0.1:{FIRST_PORT + number},error=NONE]"
        f" stream [id={number},vertexid=stream,error={error}]"
        f" bytes [payload-bytes-recv={size},payload-bytes-send=0]"
        f" times [created-ts={round(1e6 * began_s)},{steps},now-ts={now_us}]\n"
    )


def heartbeat(at_s: float, received: int) -> str:
    return (
        f"2027-01-15 08:00:00 {START_S + at_s:.6f} [message] [driver.c:1] [heartbeat]"
        f" [driver-heartbeat] [bytes-read={received},bytes-written=10]\n"
    )


def reading(link: Link, turned: bool, when: str) -> dict[str, Any]:
    """Nothing before; after, 20 000 packets of 1000 bytes and, on a lossy link, 20 lost."""
    count = 0 if when == "before" else 20_000
    sender, receiver = link.ends[::-1] if turned else link.ends
    return {
        "time_s": START_S,
        "when": when,
        "sender": sender,
        "receiver": receiver,
        "sent_packets": count,
        "sent_bytes": 1000 * count,
        "dropped_packets": 20 if count and link.there.loss else 0,
        "overflowed_packets": 0,
        "bundled_segments": 0,
        "received_packets": count,
        "received_bytes": 986 * count,
    }


def socket_sample(at_s: float, node: str) -> dict[str, Any]:
    counts = {name: 1 for name, kind in SCHEMAS["sockets"].items() if kind is polars.Int64}
    peer = {"exit1": "middle1", "middle1": "exit1"}[node]
    sample = {"time_s": START_S + at_s, "node": node, "peer": peer}
    return {**sample, **counts, "rtt_ms": 20.0, "min_rtt_ms": 20.0}


def circuit(client: str, round_name: str, status: str, since_s: float) -> dict[str, Any]:
    return {
        "time_s": START_S - 2,
        "client": client,
        "circuit": "3",
        "status": status,
        "round": round_name,
        "since_extend_s": since_s,
        "hops": "A,B,C",
        "reason": None,
    }


def stream_change(
    client: str,
    number: str,
    at_s: float,
    status: str,
    on: str | None = None,
    target: str = "10.0.5.1:8888",
    port: int | None = None,
) -> dict[str, Any]:
    return {
        "time_s": START_S + at_s,
        "client": client,
        "stream": number,
        "status": status,
        "circuit": on,
        "path": on and "guard1,middle1,exit1",
        "target": target,
        "source_port": port,
    }


def round_trip(client: str, took_ms: float | None) -> dict[str, Any]:
    error = None if took_ms else "TimeoutError: "
    return {"sent_s": START_S, "client": client, "round_trip_ms": took_ms, "error": error}


def raw_rows(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    shared = "1 connection, 2 circuits, at most 2 on one connection"
    return {
        "progress": [
            {"time_s": START_S - 30, "step": "starting Tor", "done_s": 0.0, "of_s": 0.0},
            {"time_s": START_S + 0.5, "step": "measuring", "done_s": 0.5, "of_s": 10.0},
            {"time_s": START_S + 1.5, "step": "measuring", "done_s": 1.5, "of_s": 10.0},
            {"time_s": START_S + 12, "step": "done", "done_s": 0.0, "of_s": 0.0},
        ],
        "notes": [{"time_s": START_S, "text": "measuring began"}],
        "checks": [
            {
                "name": "shared link before measuring",
                "expected": shared,
                "observed": shared,
                "ok": True,
                "value": {"connections": 1, "circuits": 2, "most_circuits_on_one_connection": 2},
                "bound": {"connections": 1, "circuits": 2, "most_circuits_on_one_connection": 2},
            }
        ],
        "streams": [
            stream_change("client1", "7", 0.0, "NEW", port=FIRST_PORT + 5),  # another one's
            stream_change("client1", "1", 0.0, "NEW", port=FIRST_PORT),
            stream_change("client1", "7", 0.01, "SUCCEEDED", "9"),
            stream_change("client1", "1", 0.05, "SUCCEEDED", "3"),
            stream_change("client1", "2", 0.5, "NEW", target="10.0.5.1:9", port=50_000),
            stream_change("client1", "2", 0.6, "SUCCEEDED", "4", target="10.0.5.1:9"),
        ],
        "circuits": [
            circuit("client1", "first", "BUILT", 1.0),
            circuit("client1", "measured", "LAUNCHED", 0.001),
            circuit("client1", "measured", "BUILT", 0.1),
            circuit("client2", "measured", "BUILT", 0.3),
            circuit("client2", "other", "BUILT", math.nan),
        ],
        "round_trips": [
            round_trip("client1", 50),
            round_trip("client2", 70.0),
            round_trip("client2", None),
        ],
        "sockets": [
            socket_sample(SAMPLE_INTERVAL_S * number, node)
            for number in range(20)
            for node in plan.shared_link or ()
        ],
        "competing": [],
        "relays": [
            {
                "time_s": START_S + at_s,
                "relay": relay,
                "connections": connections,
                "most_opened_to_one": 1,
                "sockets": connections + 4,
                "tor_memory_bytes": 2_000_000 + at_s,
                "socket_memory_bytes": 1_000_000 * at_s,
            }
            for at_s in (0, 2)
            for relay, connections in (("middle1", 5), ("exit1", 2))
        ],
        "queues": [
            {
                "time_s": START_S + 1,
                "relay": "exit1",
                "queue": "7",
                "connection": "2",
                "next_queue": None,
                "next_connection": None,
                "removed_cells": 100,
                "waited_ms": 1500,
            }
        ],
        "links": [
            reading(link, turned, when)
            for when in ("before", "after")
            for link in plan.links
            for turned in (False, True)
        ],
    }


def write_record(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    """What an experiment leaves. Of client1: a transfer of 2 s, one that failed, 0.6 MB of one
    under way; of client2: a transfer of 4 s, and one that began after measuring had ended."""
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "raw" / f"{name}.jsonl").write_text(text)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "tgen-client1.log").write_text(
        stream(0, -0.05, 0.2, 2.0, 5_000_000, ok=True)
        + stream(1, 2.0, 0.2, 1.0, 400_000, ok=False)
        + heartbeat(5, 6_000_000)
    )
    (folder / "logs" / "tgen-client2.log").write_text(
        stream(0, 0.0, 0.4, 4.0, 5_000_000, ok=True)
        + stream(1, 10.1, 0.3, 1.0, 5_000_000, ok=True)
        + heartbeat(9, 5_000_000)
        + heartbeat(10, 4_000_000)
    )
    (folder / "logs" / "tor-exit1.log").write_text("a line\n")
    (folder / "plan.json").write_text("{}")


def finished(
    destination: Path, plan: Plan, facts: MachineFacts, **changed: list[dict[str, Any]]
) -> Summary:
    with staging(destination) as folder:
        write_record(folder, raw_rows(plan) | changed)
        summary = write_results(folder, plan, facts)
        publish(folder, destination)
    return summary
