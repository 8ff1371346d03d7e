"""Real, short experiments in the virtual machine: both variants side by side, as a user runs them.

Tests of single parts are in files of their own; interruptions are in test_interruption.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
import pytest

from testbed.basics.toml_file import PROJECT

pytestmark = pytest.mark.experiment

DURATION_S = {"vanilla": 45, "pctls": 20}
"""A transfer over vanilla's one lossy connection takes some 20 s."""

TIMEOUT_S = 600


@dataclass(frozen=True)
class Finished:
    """A run as the user's command left it."""

    directory: Path
    status: int
    summary: dict[str, Any]

    def table(self, name: str) -> polars.DataFrame:
        return polars.read_parquet(self.directory / f"{name}.parquet")

    def checks(self) -> dict[str, dict[str, Any]]:
        return {check["name"]: check for check in self.summary["checks"]}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "commands", *map(str, arguments)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Finished]]:
    """SharedDropping with both variants and the same seed, at the same time."""
    folder = tmp_path_factory.mktemp("runs")
    started = {
        variant: subprocess.Popen(
            [
                *command("scenario", "SharedDropping", "--variant", variant, "--json"),
                *("--duration", str(DURATION_S[variant]), "--out", str(folder / variant)),
            ],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for variant in ("vanilla", "pctls")
    }
    finished = {}
    for variant, process in started.items():
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, f"{variant} ended with {process.returncode}: {output}"
        finished[variant] = Finished(folder / variant, process.returncode, json.loads(output))
    yield finished


def test_a_connection_per_circuit_is_several_times_as_fast_on_a_lossy_link(
    runs: dict[str, Finished],
) -> None:
    vanilla = runs["vanilla"].summary["throughput_mb_per_s"]["mean"]
    pctls = runs["pctls"].summary["throughput_mb_per_s"]["mean"]
    assert 0.2 < vanilla < 0.5
    assert 1.4 < pctls < 2.4
    assert pctls > 3 * vanilla


def test_vanilla_has_one_connection_with_eight_circuits(runs: dict[str, Finished]) -> None:
    run = runs["vanilla"]
    assert run.summary["valid"]
    assert run.summary["shared_link"] == {"connections": 1, "circuits": 8}
    ports = run.table("sockets").filter(polars.col("node") == "middle1")["port"]
    assert ports.n_unique() == 1


def test_pctls_has_eight_connections_with_one_circuit_each(runs: dict[str, Finished]) -> None:
    run = runs["pctls"]
    assert run.summary["valid"]
    assert run.summary["shared_link"] == {"connections": 8, "circuits": 8}
    expected = "8 connections, 8 circuits, at most 1 on one connection"
    for when in ("before", "after"):
        assert run.checks()[f"middle1 to exit1 {when} measuring"]["observed"] == expected


@pytest.mark.parametrize("variant", ["vanilla", "pctls"])
def test_all_circuits_are_extended_at_the_same_instant(
    runs: dict[str, Finished], variant: str
) -> None:
    """Otherwise runs wouldn't show that simultaneous extends get separate connections."""
    circuits = runs[variant].table("circuits").filter(polars.col("round") == "measured")
    asked_s = circuits.filter(polars.col("status") == "BUILT").select(
        polars.col("time_s") - polars.col("since_extend_s")
    )["time_s"]
    assert len(asked_s) == 8
    assert float(asked_s.max()) - float(asked_s.min()) < 0.001  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["vanilla", "pctls"])
def test_the_round_trip_contains_the_links_delay(runs: dict[str, Finished], variant: str) -> None:
    round_trips = runs[variant].table("round_trips")["round_trip_ms"].drop_nulls()
    assert len(round_trips) >= 8 * (DURATION_S[variant] - 2)
    assert float(round_trips.min()) >= 50.0  # type: ignore[arg-type]
    assert float(round_trips.median()) < 1000.0  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["vanilla", "pctls"])
def test_the_kernel_sees_the_shared_links_delay(runs: dict[str, Finished], variant: str) -> None:
    sockets = runs[variant].table("sockets").filter(polars.col("node") == "exit1")
    assert 25.0 <= float(sockets["min_rtt_ms"].min()) < 25.5  # type: ignore[arg-type]
    assert int(sockets["retransmitted_segments"].max()) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["vanilla", "pctls"])
def test_every_transfer_is_whole(runs: dict[str, Finished], variant: str) -> None:
    run = runs[variant]
    transfers = run.table("transfers")
    # Some begin after measuring, while earlier ones are still allowed to end.
    measured = transfers.filter("measured")
    assert run.summary["transfers"] == {"completed": len(measured), "failed": 0}
    assert set(transfers["received_bytes"]) == {5_000_000}
    assert transfers["client"].n_unique() == 8
    assert (transfers["time_to_first_byte_s"] <= transfers["time_to_last_byte_s"]).all()


def test_a_run_directory_is_complete(runs: dict[str, Finished]) -> None:
    for run in runs.values():
        names = {path.name for path in run.directory.iterdir()}
        assert names >= {
            "manifest.json",
            "summary.json",
            "transfers.parquet",
            "circuits.parquet",
            "round_trips.parquet",
            "streams.parquet",
            "sockets.parquet",
            "logs",
        }
        assert "raw" not in names
        assert json.loads((run.directory / "summary.json").read_text()) == run.summary
        assert [path.name for path in run.directory.parent.glob(".*")] == []
        logs = {path.name for path in (run.directory / "logs").iterdir()}
        assert logs >= {"tor-middle1.log.gz", "tgen-client1.log.gz", "kernel.log.gz"}
    used = PROJECT / "tor-configs" / "patches" / "per-circuit-connections.patch"
    kept = runs["pctls"].directory / "patches" / used.name
    assert kept.read_bytes() == used.read_bytes()
    assert not (runs["vanilla"].directory / "patches").exists()
