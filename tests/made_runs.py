"""Run directories for tests, whose numbers can be worked out by hand, without an experiment."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

from testbed.asked.plans import make_plan
from testbed.asked.scenario import is_sampled, scenario_file
from testbed.results.manifest import FORMAT
from testbed.results.tables import SCHEMAS

START_S = 1_800_000_000.0
TRANSFER_BYTES = 5_000_000
BESIDE = 999.0
"""The seconds or ms of everything that other clients do than those under test."""


@dataclass(frozen=True)
class Made:
    """A run in which all clients under test see the same.

    Attributes:
        time_s: the time to last byte of each of two whole transfers of 5 MB.
        round_trip_ms: the probes' round trip; None if none was answered.
        stream_round_trip_ms: each transfer's round trip; None if the run did not record it.
        delivered_kb: the kB that arrive in each second from the first transfer's first byte.
        window: the exit's congestion window, in segments.
        changed: keys of the plan whose values differ from the scenario's.
        made_by: the manifest's entries on builds and the like; empty as in old manifests.
    """

    variant: str = "vanilla"
    scenario: str = "NoDropping"
    seed: int = 1
    traffic: str = "bulk"
    duration_s: float = 300.0
    time_s: float | None = 2.5
    round_trip_ms: float | None = 90.0
    stream_round_trip_ms: float | None = 80.0
    build_time_ms: float = 150.0
    delivered_kb: Sequence[int] = ()
    window: int = 40
    valid: bool = True
    changed: Mapping[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, Any] = field(default_factory=dict)

    def write(self, results: Path) -> Path:
        """Write the run into a directory as `run.py` names it, or beside it if that exists."""
        folder = results / f"{self.scenario}-{self.traffic}" / self.variant / f"seed-{self.seed}"
        while folder.exists():
            folder = folder.with_name(f"{folder.name}-again")
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(self.summary()))
        plan = self.plan()
        manifest = {
            "format": FORMAT,
            "plan_key": json.dumps(plan),
            "plan": plan,
            "measuring_start_s": START_S,
            **self.made_by,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        rows = self.rows()
        for name, schema in SCHEMAS.items():
            nothing = dict.fromkeys(schema)
            table = [nothing | row for row in rows.get(name, ())]
            polars.DataFrame(table, schema=schema).write_parquet(folder / f"{name}.parquet")
        return folder

    def plan(self) -> dict[str, Any]:
        """The manifest's plan; an unknown variant is vanilla by another name."""
        known = self.variant if self.variant in ("vanilla", "pctls") else "vanilla"
        drawn = is_sampled(scenario_file(self.scenario))  # it has its own traffic models
        plan = make_plan(
            self.scenario,
            known,
            seed=self.seed,
            duration=self.duration_s,
            traffic=None if drawn else self.traffic,
        )
        return plan.model_dump(mode="json") | {"variant": self.variant, **self.changed}

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of the tables."""
        clients = self.plan()["traffic_by_client"]
        under_test = [client for client, model in clients.items() if model == self.traffic]
        return {
            "transfers": [
                row for client in clients for row in self._transfers(client, client in under_test)
            ],
            "round_trips": [
                {"client": client, "round_trip_ms": ms}
                for client in clients
                for ms in ((self.round_trip_ms, None) if client in under_test else (BESIDE,))
            ],
            "circuits": [
                {
                    "client": client,
                    "round": round_name,
                    "status": "BUILT",
                    "since_extend_s": ms / 1e3,
                }
                for client in clients
                for round_name, ms in (
                    ("first", BESIDE),
                    ("measured", self.build_time_ms if client in under_test else BESIDE),
                )
            ],
            "delivered": [
                {
                    "client": client,
                    "time_s": START_S + 1.2 + number,
                    "received_bytes": 1000 * kilobytes,
                }
                for client in under_test
                for number, kilobytes in enumerate(self.delivered_kb)
            ],
            "sockets": [
                {"node": node, "peer": peer, "cwnd_segments": window}
                for node, peer, window in (
                    ("exit1", "middle1", self.window),
                    ("middle1", "exit1", 7),
                )
            ],
        }

    def _transfers(self, client: str, under_test: bool) -> list[dict[str, Any]]:
        """Two whole transfers, one that failed and one that began too late."""
        time_s = self.time_s if under_test else BESIDE
        round_trip_ms = self.stream_round_trip_ms if under_test else BESIDE
        answered_s = None if round_trip_ms is None else 0.05 + round_trip_ms / 1e3
        whole = [] if time_s is None else [(time_s, True, True)] * 2
        return [
            {
                "client": client,
                "start_s": START_S,
                "time_to_command_s": 0.05,
                "time_to_response_s": answered_s,
                "time_to_first_byte_s": 0.1,
                "time_to_last_byte_s": time_s,
                "received_bytes": TRANSFER_BYTES,
                "ok": ok,
                "measured": measured,
            }
            for time_s, ok, measured in [*whole, (50.0, False, True), (60.0, True, False)]
        ]

    def summary(self) -> dict[str, Any]:
        """A summary with wrong numbers, so a test fails if they are used."""
        check = {"name": "middle1 to exit1 before measuring", "expected": "1", "observed": "2"}
        nothing = {"mean": None, "sd": None, "median": None, "p95": None}
        return {
            "scenario": self.scenario,
            "scenario_title": "a scenario",
            "variant": self.variant,
            "variant_title": "a variant",
            "traffic": self.traffic,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "machine": "virtual",
            "valid": self.valid,
            "checks": [{**check, "ok": self.valid}],
            "transfers": {"completed": 2, "failed": 1},
            "throughput_mb_per_s": nothing,
            "time_to_first_byte_s": nothing,
            "time_to_last_byte_s": nothing,
            "circuit_round_trip_ms": nothing,
            "circuit_build_time_ms": nothing,
            "shared_link": {"connections": 1, "circuits": 8},
            "cost": {"virtual_s": 1.0, "wall_s": 1.0, "cpu_s": 1.0, "delivered_mb": 1.0},
            "notes": [],
        }


@dataclass(frozen=True)
class Recorded(Made):
    """A run with given tables in place of the made ones."""

    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return super().rows() | dict(self.tables)


def at(second: float, **values: object) -> dict[str, Any]:
    """A row at a second since measuring began."""
    return {"time_s": START_S + second, **values}
