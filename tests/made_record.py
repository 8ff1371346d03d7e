"""The record of an experiment, made by hand: a run of two clients, of ten seconds.

test_results works out its figures.
"""

import json
import math
from pathlib import Path
from typing import Any

import polars

from testbed.inside.traffic.tgen_log import STEPS
from testbed.plan.connections import WATCHED_PAIR
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S, Plan, PlannedLink
from testbed.results import MachineFacts, Summary, publish, staging, write_results
from testbed.results.tables import SCHEMAS

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
    """A line of TGen; `began_s` is since START_S, the other times since the stream's beginning.

    The answer arrives with the first byte, a quarter of the time until then after the request.
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


def heartbeats(received: dict[int, int]) -> str:
    """A heartbeat for each second of measuring, with the bytes received in some of them."""
    return "".join(heartbeat(second, received.get(second, 0)) for second in range(1, 11))


def reading(link: PlannedLink, turned: bool, when: str) -> dict[str, Any]:
    """After measuring, 20 000 packets of 1000 bytes, and 20 lost on a lossy link; before, none."""
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
        "for_streams": True,
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
        "rule": None,
        "circuits": None,
    }


def round_trip(client: str, took_ms: float | None) -> dict[str, Any]:
    error = None if took_ms else "TimeoutError: "
    return {"sent_s": START_S, "client": client, "round_trip_ms": took_ms, "error": error}


def raw_rows(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """The rows of each file in `raw/`."""
    return {
        "progress": [
            progress(-30, "starting Tor"),
            progress(0.5, "measuring", done_s=0.5, of_s=10.0),
            progress(1.5, "measuring", done_s=1.5, of_s=10.0),
            progress(12, "done"),
        ],
        "notes": [{"time_s": START_S, "text": "measuring began"}],
        "checks": [shared_link_check()],
        "streams": [
            stream_change("client1", "7", 0.0, "NEW", port=FIRST_PORT + 5),  # another transfer's
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
        "competing": [],
        **samples(plan),
    }


def samples(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """The rows of what is sampled: the shared link's connections, relays, queues and links."""
    return {
        "sockets": [
            socket_sample(LEAST_SAMPLE_INTERVAL_S * number, node)
            for number in range(20)
            for node in plan.shared_link or ()
        ],
        "processors": [],
        "relays": [
            relay_sample(at_s, relay, connections)
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


def progress(at_s: float, step: str, done_s: float = 0.0, of_s: float = 0.0) -> dict[str, Any]:
    return {"time_s": START_S + at_s, "step": step, "done_s": done_s, "of_s": of_s}


def shared_link_check() -> dict[str, Any]:
    """Vanilla's, before measuring: both circuits share a connection."""
    text = "1 connection, 2 circuits, at most 2 on one connection"
    use = {"connections": 1, "circuits": 2, "most_circuits_on_one_connection": 2}
    return {
        "key": WATCHED_PAIR,
        "name": "middle1 to exit1 before measuring",
        "expected": text,
        "observed": text,
        "ok": True,
        "value": use,
        "bound": use,
    }


def relay_sample(at_s: int, relay: str, connections: int) -> dict[str, Any]:
    return {
        "time_s": START_S + at_s,
        "relay": relay,
        "connections": connections,
        "most_opened_to_one": 1,
        "sockets": connections + 4,
        "tor_memory_bytes": 2_000_000 + at_s,
        "socket_memory_bytes": 1_000_000 * at_s,
        "scheduler_runs": None,
    }


def write_record(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Write an experiment's files.

    client1 has a transfer of 2 s, one that failed, and 0.6 MB of one under way; client2 has a
    transfer of 4 s, and one that began after measuring.
    """
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "raw" / f"{name}.jsonl").write_text(text)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "tgen-client1.log").write_text(
        stream(0, -0.05, 0.2, 2.0, 5_000_000, ok=True)
        + stream(1, 2.0, 0.2, 1.0, 400_000, ok=False)
        + heartbeats({5: 6_000_000})
    )
    (folder / "logs" / "tgen-client2.log").write_text(
        stream(0, 0.0, 0.4, 4.0, 5_000_000, ok=True)
        + stream(1, 10.1, 0.3, 1.0, 5_000_000, ok=True)
        + heartbeats({9: 5_000_000, 10: 4_000_000})
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
