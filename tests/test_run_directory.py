"""Run directories: what is in them, and how whole, old, damaged and incomplete ones are read.

The raw files are made here; no experiment runs.
"""

import gzip
import io
import json
from pathlib import Path

import polars
import pytest
from made_record import (
    FIRST_PORT,
    START_S,
    finished,
    progress,
    raw_rows,
    stream_change,
    write_record,
)
from rich.console import Console

from commands.scenario import print_summary
from testbed.basics.errors import TestbedError
from testbed.plan.model import Plan
from testbed.results import (
    MachineFacts,
    Run,
    publish,
    read_run,
    staging,
    write_results,
)
from testbed.results.tables import LATER_COLUMNS, SCHEMAS


def test_what_is_in_a_run_directory(run: Path, plan: Plan) -> None:
    assert sorted(path.name for path in run.iterdir()) == [
        "circuits.parquet",
        "competing.parquet",
        "delivered.parquet",
        "links.parquet",
        "logs",
        "manifest.json",
        "processors.parquet",
        "queues.parquet",
        "relays.parquet",
        "round_trips.parquet",
        "sockets.parquet",
        "streams.parquet",
        "summary.json",
        "transfers.parquet",
    ]
    with gzip.open(run / "logs" / "tor-exit1.log.gz", "rt") as log:
        assert log.read() == "a line\n"
    assert (run / "logs" / "notes.jsonl.gz").exists()
    assert all(path.suffix == ".gz" for path in (run / "logs").iterdir())
    assert [path.name for path in run.parent.iterdir()] == ["seed-3"]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["plan_key"] == plan.key
    assert manifest["tor_version"] == "0.4.9.11"
    assert manifest["start"] == "2026-03-01T12:00:00+00:00"
    assert manifest["packages"]["polars"] == polars.__version__


def test_a_transfers_circuit_is_found_although_its_computed_start_is_late(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    """In runs of eight clients a stream was requested up to 60 µs before its transfer's start."""
    port = FIRST_PORT + 1
    streams = [
        stream_change("client1", "8", 2.0 - 60e-6, "NEW", port=port),
        stream_change("client1", "8", 2.1, "SUCCEEDED", "3"),
        stream_change("client1", "9", 2.9, "NEW", port=port),
        stream_change("client1", "9", 2.95, "SUCCEEDED", "4"),
    ]
    finished(tmp_path / "run", plan, facts, streams=streams)
    transfers = read_run(tmp_path / "run").transfers
    assert transfers.filter(client="client1")["circuit"].to_list() == [None, "3"]


def test_transfers_of_the_warm_up_are_kept_and_not_measured(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    """Transfers begin 0.05 s before the traffic's start, then, 2 and 10.1 s after it."""
    warmed_up = plan.model_copy(update={"warm_up_s": 1.0})
    steps = [progress(0, "warming up"), progress(1.5, "measuring", done_s=0.5, of_s=10.0)]
    summary = finished(tmp_path / "run", warmed_up, facts, progress=steps)
    assert (summary.duration_s, summary.warm_up_s, summary.traffic_s) == (10, 1, 11)
    found = read_run(tmp_path / "run")
    assert found.measuring_start_s == START_S + 1
    assert found.transfers["measured"].to_list() == [False, False, True, True]
    (beats,) = (one for one in summary.checks if one.name.startswith("duration"))
    assert beats.expected == "heartbeats of 11 s, less 1 s at most"
    (ended,) = (one for one in summary.checks if one.name.startswith("clients without"))
    assert ended.ok  # client1's only whole one is of the warm-up


def test_reading_back(run: Path, plan: Plan) -> None:
    found = read_run(run)
    assert found.plan.key == plan.key
    assert found.measuring_start_s == START_S
    assert found.transfers["measured"].to_list() == [True, True, True, False]
    assert found.transfers["error"].to_list() == [None, None, "READ", None]
    assert found.transfers["start_s"][1] == pytest.approx(START_S, abs=1e-5)
    # The first one's, by its port; another stream was requested at the same moment.
    assert found.transfers["port"].to_list() == [FIRST_PORT, FIRST_PORT, *[FIRST_PORT + 1] * 2]
    assert found.transfers["circuit"].to_list() == ["3", None, None, None]
    assert found.circuits["since_extend_s"].null_count() == 1
    assert found.round_trips.height == 3
    assert found.sockets.height == 40
    assert found.queues["waited_ms"].to_list() == [1500]
    assert found.competing.height == 0
    # In order of time: client1's heartbeat at 5 s, then client2's.
    received_bytes = found.delivered.filter(polars.col("received_bytes") > 0)["received_bytes"]
    assert received_bytes.to_list() == [6_000_000, 5_000_000, 4_000_000]
    assert found.links.height == 4 * len(plan.links)


def test_a_run_without_samples_of_relays_is_read(run: Path) -> None:
    without_digests(run)
    (run / "relays.parquet").unlink()
    found = read_run(run)
    assert found.relays.is_empty()
    assert set(found.relays.columns) == set(SCHEMAS["relays"])
    assert "relays" not in found.contents.tables


def test_a_summary_alone_has_the_figures_of_its_run(run: Path) -> None:
    whole = read_run(run)
    figures = figures_of(whole)
    (run / "transfers.parquet").unlink()
    with pytest.raises(TestbedError, match="transfers"):
        read_run(run, whole=False)  # one is missing, while others exist
    for table in run.glob("*.parquet"):
        table.unlink()
    with pytest.raises(TestbedError, match="missing"):
        read_run(run)
    alone = read_run(run, whole=False)
    assert not alone.is_whole
    assert figures_of(alone) == figures
    summary = run / "summary.json"
    summary.write_text(summary.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(TestbedError, match=r"summary\.json: damaged"):
        read_run(run, whole=False)


def figures_of(run: Run) -> tuple[object, ...]:
    return run.under_test, run.build_time_ms, run.held_by_relays, run.wire_bytes_per_byte


def test_an_old_summary_cannot_stand_alone(run: Path) -> None:
    without_digests(run)
    for table in run.glob("*.parquet"):
        table.unlink()
    content = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(content | {"by_traffic": []}))
    with pytest.raises(TestbedError, match="by_traffic"):
        read_run(run, whole=False)


def without_digests(run: Path) -> None:
    """Remove the digests, which older runs lack."""
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["sha256"]
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "sockets.parquet"])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(TestbedError, match=name):
        read_run(run)


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "transfers.parquet"])
def test_a_truncated_file_is_named(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(TestbedError, match=f"{name}: damaged") as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


def test_runs_of_others_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="not a directory"):
        read_run(tmp_path / "nowhere")
    without_digests(run)
    links = polars.read_parquet(run / "links.parquet")
    links.drop("sent_bytes").write_parquet(run / "links.parquet")
    with pytest.raises(TestbedError, match=r"links\.parquet: the column sent_bytes is missing"):
        read_run(run)
    summary = json.loads((run / "summary.json").read_text())
    del summary["throughput_mb_per_s"]
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(TestbedError, match="throughput_mb_per_s"):
        read_run(run)
    (run / "summary.json").write_text(json.dumps({"other": 1}))
    (run / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(TestbedError, match=r"summary\.json: scenario"):
        read_run(run)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("round_trips", None, "round_trips.jsonl: No such file"),
        ("round_trips", '{"sent_s": 1, "cli', "round_trips.jsonl: line 1: not a complete JSON"),
        ("round_trips", '{"sent_s": 1}\n', "line 1: needs the keys sent_s, client"),
        ("progress", "", "no step 'measuring'"),
        ("links", "", "no reading of client1 to"),
        (
            "round_trips",
            '{"sent_s": "soon", "client": "c", "round_trip_ms": 1, "error": null}\n',
            "round_trips.jsonl: a value is not of its column's type",
        ),
    ],
)
def test_an_incomplete_record(
    tmp_path: Path, plan: Plan, facts: MachineFacts, name: str, text: str | None, message: str
) -> None:
    with staging(tmp_path / "run") as folder:
        write_record(folder, raw_rows(plan))
        path = folder / "raw" / f"{name}.jsonl"
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(TestbedError, match=message):
            write_results(folder, plan, facts)
        with pytest.raises(TestbedError, match="not finished"):
            publish(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_without_a_later_column_is_read(run: Path) -> None:
    path = run / "links.parquet"
    polars.read_parquet(path).drop("overflowed_packets").write_parquet(path)
    without_digests(run)
    assert read_run(run).links["overflowed_packets"].null_count() == read_run(run).links.height


def test_a_run_without_the_steps_of_streams_is_read(run: Path) -> None:
    path = run / "transfers.parquet"
    polars.read_parquet(path).drop(LATER_COLUMNS["transfers"]).write_parquet(path)
    summary = json.loads((run / "summary.json").read_text())
    for figures in (summary, *summary["by_traffic"]):
        del figures["stream_round_trip_ms"]
    (run / "summary.json").write_text(json.dumps(summary))
    without_digests(run)
    old = read_run(run)
    assert old.transfers["time_to_response_s"].null_count() == old.transfers.height
    assert old.summary.stream_round_trip_ms is None
    assert old.summary.by_traffic[0].stream_round_trip_ms is None
    print_summary(Console(file=io.StringIO()), old.summary)
