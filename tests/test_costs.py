"""The costs of a variant, by hand; test_mitigations_for_real sees them in a real run."""

import json
import struct
from pathlib import Path

import polars
import pytest
from made_runs import Made

from analysis.metrics.costs import CONNECTIONS, CPU, SOCKET_MEMORY, SOCKETS, TOR_MEMORY, WIRE_BYTES
from analysis.runs import find_runs
from analysis.tables import costs
from testbed.inside.probes.relays import held_bytes
from testbed.results import read_run
from testbed.results.summarising import relay_summaries


def test_what_a_socket_holds() -> None:
    """SKMEMINFO as pyroute2 reports it; the reserve is below zero for moments."""
    fields = struct.pack("=9i", 1000, 131_072, 7, 262_144, -512, 2000, 30, 5, 9)
    assert held_bytes(fields.hex(":")) == 1000 - 512 + 2000 + 30


def samples(*rows: tuple[str, int, int, int]) -> polars.DataFrame:
    """Samples from relay, connections, and memory of its Tor and of its sockets in MB."""
    return polars.DataFrame(
        [
            {
                "relay": relay,
                "connections": connections,
                "sockets": connections + 4,
                "tor_memory_bytes": 10**6 * tor_mb,
                "socket_memory_bytes": 10**6 * sockets_mb,
                "time_s": float(number),
                "scheduler_runs": None,
            }
            for number, (relay, connections, tor_mb, sockets_mb) in enumerate(rows)
        ]
    )


def test_figures_of_relays() -> None:
    table = samples(("guard1", 3, 2, 1), ("exit1", 9, 1, 0), ("guard1", 4, 3, 3))
    guard, exit_relay = relay_summaries(table)
    assert (guard.relay, guard.connections, guard.sockets) == ("guard1", 4, 8)
    assert (guard.tor_memory_mb, guard.socket_memory_mb) == (3, 2)
    assert exit_relay.connections == 9
    assert guard.sent_mb is None
    assert guard.scheduler_interval_ms is None


@pytest.mark.parametrize(("begins", "sent_mb"), [("measuring", 6.0), ("before", 7.0)])
def test_what_a_relay_sent_is_that_of_all_its_links_while_measuring(
    begins: str, sent_mb: float
) -> None:
    counts = [
        ("before", "guard1", 1_000_000),
        ("before", "client1", 5_000_000),
        ("measuring", "guard1", 2_000_000),
        ("after", "guard1", 6_500_000),
        ("after", "guard1", 1_500_000),
        ("after", "client1", 9_000_000),
    ]
    links = polars.DataFrame(
        [row for row in counts if row[0] in (begins, "after")],
        schema=["when", "sender", "sent_bytes"],
        orient="row",
    )
    guard, exit_relay = relay_summaries(samples(("guard1", 3, 2, 1), ("exit1", 9, 1, 0)), links)
    assert (guard.sent_mb, exit_relay.sent_mb) == (sent_mb, None)


def test_the_scheduler_runs_at_a_mean_interval() -> None:
    table = samples(*[("guard1", 3, 2, 1)] * 3, *[("exit1", 1, 1, 1)] * 2, ("exit2", 1, 1, 1))
    counted = table.with_columns(scheduler_runs=polars.Series([100, 300, 600, 7, 7, 9]))
    guard, idle, single = relay_summaries(counted)
    assert guard.scheduler_interval_ms == pytest.approx(1000 * 2 / 500)
    assert idle.scheduler_interval_ms is None  # it never ran
    assert single.scheduler_interval_ms is None


def test_costs_are_those_of_the_relay_that_has_most(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    table = samples(("guard1", 3, 2, 1), ("exit1", 9, 1, 0), ("guard1", 4, 3, 3))
    table.drop("scheduler_runs").write_parquet(folder / "relays.parquet")
    run = read_run(folder)
    assert (CONNECTIONS.of(run), SOCKETS.of(run)) == (9, 13)
    assert (TOR_MEMORY.of(run), SOCKET_MEMORY.of(run)) == (3, 2)
    assert CPU.of(run) == 1.0
    (row,) = costs.table(find_runs(tmp_path)).rows
    assert row[:3] == ("vanilla", "NoDropping", "1")
    assert row[3:] == ("150", "9", "13", "3.0", "2.0", row[-2], "1.000")


def test_a_run_that_delivered_nothing_has_no_cost_for_each_mb(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["cost"]["delivered_mb"] = 0.0
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert CPU.of(read_run(folder, whole=False)) is None


def test_runs_without_samples_have_no_costs(tmp_path: Path) -> None:
    (Made().write(tmp_path) / "relays.parquet").unlink()
    run = read_run(next(tmp_path.rglob("seed-1")))
    assert CONNECTIONS.of(run) is None
    assert WIRE_BYTES.of(run) is None  # as no links were recorded either
    assert not costs.table(find_runs(tmp_path)).rows
