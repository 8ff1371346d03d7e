"""Results: figures worked out by hand, the checks both ways, and the run directory whole or not.

The raw files are made here; no experiment runs.
"""

import gzip
import io
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars
import pytest
from made_record import (
    FIRST_PORT,
    START_S,
    finished,
    raw_rows,
    socket_sample,
    stream_change,
    write_record,
)
from rich.console import Console

from analysis.metrics import median_window
from testbed.errors import TestbedError
from testbed.plan_model import Plan
from testbed.results import (
    Check,
    MachineFacts,
    Run,
    keep_failed,
    print_summary,
    publish,
    read_run,
    remove_left_overs,
    staging,
    write_results,
)
from testbed.results.checks import (
    SAMPLE_INTERVAL_S,
    DirectionCounts,
    crossing_checks,
    loss_checks,
)
from testbed.results.summary import Distribution, SharedLinkCounts
from testbed.results.tables import SCHEMAS, YOUNGER_COLUMNS
from testbed.toml_file import PROJECT

# Begins a directory for a run, says where, and waits to be killed.
KILLED_RUN = """
import sys, time
from pathlib import Path
from testbed.results import staging
with staging(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_figures_worked_out_by_hand(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["scenario"], summary["variant"], summary["traffic"], summary["seed"]) == (
        "Mine",
        "vanilla",
        "bulk",
        3,
    )
    assert summary["machine"] == "virtual"
    assert summary["valid"] is True
    assert summary["transfers"] == {"completed": 2, "failed": 1}
    # 5 MB in 2 s and in 4 s: 2.5 and 1.25 MB/s, each 0.625 from the mean; n - 1 = 1.
    assert summary["throughput_mb_per_s"]["mean"] == pytest.approx(1.875)
    assert summary["throughput_mb_per_s"]["sd"] == pytest.approx(0.625 * math.sqrt(2))
    assert summary["time_to_first_byte_s"] == pytest.approx(
        {"mean": 0.3, "median": 0.3, "p95": 0.39}
    )
    assert summary["time_to_last_byte_s"] == pytest.approx({"mean": 3, "median": 3, "p95": 3.9})
    # 50 and 100 ms from command to response.
    assert summary["stream_round_trip_ms"] == pytest.approx(
        {"mean": 75, "sd": 25 * math.sqrt(2), "median": 75}
    )
    assert summary["by_traffic"][0]["stream_round_trip_ms"] == summary["stream_round_trip_ms"]
    assert summary["circuit_round_trip_ms"] == pytest.approx(
        {"mean": 60, "sd": 10 * math.sqrt(2), "median": 60}
    )
    assert summary["circuit_build_time_ms"] == pytest.approx(
        {"mean": 200, "sd": 100 * math.sqrt(2), "median": 200}
    )
    assert summary["shared_link"] == {"connections": 1, "circuits": 2}
    # client1: 6 MB by its heartbeat, over 5.4 MB logged; client2: 10 MB logged, over 9 MB.
    assert summary["cost"] == {
        "virtual_s": 40.0,
        "wall_s": 8.0,
        "cpu_s": 7.5,
        "delivered_mb": 16.0,
    }
    assert summary["relays"][0] == {
        "relay": "middle1",
        "connections": 5,
        "sockets": 9,
        "tor_memory_mb": 2.000002,
        "socket_memory_mb": 1.0,
    }
    # Four directions of two links between guards and middle, two of middle and exit: 20 MB each;
    # and 16 MB that crossed two such links.
    assert summary["wire_bytes_per_byte"] == pytest.approx(6 * 20 / (2 * 16))
    assert summary["notes"] == ["measuring began", "1 of 3 probes of the circuits not answered"]


def test_no_transfer_is_null_and_invalid(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    with staging(tmp_path / "run") as folder:
        write_record(folder, raw_rows(plan) | {"circuits": [], "round_trips": []})
        for client in ("client1", "client2"):
            (folder / "logs" / f"tgen-{client}.log").write_text("")
        summary = write_results(folder, plan, facts)
        text = (folder / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["throughput_mb_per_s"] == {"mean": None, "sd": None}
    assert json.loads(text)["time_to_last_byte_s"] == {"mean": None, "median": None, "p95": None}
    assert [check.observed for check in summary.checks if not check.ok] == ["client1, client2"]
    assert not summary.valid
    print_summary(Console(file=(tmp_path / "shown").open("w")), summary)


def test_one_transfer_has_no_deviation(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    with staging(tmp_path / "run") as folder:
        write_record(folder, raw_rows(plan))
        (folder / "logs" / "tgen-client2.log").write_text("")
        summary = write_results(folder, plan, facts)
    assert summary.throughput_mb_per_s.mean == pytest.approx(2.5)
    assert summary.throughput_mb_per_s.sd is None


def test_what_is_in_a_run_directory(run: Path, plan: Plan) -> None:
    assert sorted(path.name for path in run.iterdir()) == [
        "circuits.parquet",
        "competing.parquet",
        "delivered.parquet",
        "links.parquet",
        "logs",
        "manifest.json",
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


def test_a_transfers_circuit_is_found_where_its_start_is_told_late(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    """In runs of eight clients a stream was asked for up to 60 µs before its transfer began."""
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


def test_reading_back(run: Path, plan: Plan) -> None:
    found = read_run(run)
    assert found.plan.key == plan.key
    assert found.measuring_start_s == START_S
    assert found.transfers["measured"].to_list() == [True, True, True, False]
    assert found.transfers["error"].to_list() == [None, None, "READ", None]
    assert found.transfers["start_s"][1] == pytest.approx(START_S, abs=1e-5)
    # The first one's, by its port; another stream was asked for at the same moment.
    assert found.transfers["port"].to_list() == [FIRST_PORT, FIRST_PORT, *[FIRST_PORT + 1] * 2]
    assert found.transfers["circuit"].to_list() == ["3", None, None, None]
    assert found.circuits["since_extend_s"].null_count() == 1
    assert found.round_trips.height == 3
    assert found.sockets.height == 40
    assert found.queues["waited_ms"].to_list() == [1500]
    assert found.competing.height == 0
    # In order of time: client1's heartbeat at 5 s, then client2's.
    assert found.delivered["received_bytes"].to_list() == [6_000_000, 5_000_000, 4_000_000]
    assert found.links.height == 4 * len(plan.links)


def test_runs_from_before_relays_were_sampled(run: Path) -> None:
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
        read_run(run, whole=False)  # damaged, for others are there
    for table in run.glob("*.parquet"):
        table.unlink()
    with pytest.raises(TestbedError, match="missing"):
        read_run(run)
    alone = read_run(run, whole=False)
    assert not alone.is_whole
    assert figures_of(alone) == figures
    assert median_window(alone) is None
    summary = run / "summary.json"
    summary.write_text(summary.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(TestbedError, match=r"summary\.json: not whole"):
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
    """As older runs are."""
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
    with pytest.raises(TestbedError, match=f"{name}: not .*whole") as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


def test_runs_of_others_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no directory"):
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
        ("round_trips", '{"sent_s": 1, "cli', "round_trips.jsonl: line 1: no whole JSON"),
        ("round_trips", '{"sent_s": 1}\n', "line 1: needs the keys sent_s, client"),
        ("progress", "", "no step 'measuring'"),
        ("links", "", "no reading before measuring of client1 to"),
        (
            "round_trips",
            '{"sent_s": "soon", "client": "c", "round_trip_ms": 1, "error": null}\n',
            "round_trips.jsonl: a value of another type",
        ),
    ],
)
def test_a_record_that_is_not_whole(
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


def direction(plan: Plan, sent: int, lost: int, **changes: object) -> DirectionCounts:
    """Of the lossy link, with packets of 1000 bytes."""
    (link,) = plan.links_between("middle", "exit")
    counts = DirectionCounts(
        shape=link.there,
        sender="middle1",
        receiver="exit1",
        roles=("middle", "exit"),
        sent_packets=sent,
        sent_bytes=1000 * sent,
        lost_packets=lost,
        overflowed_packets=0,
        bundled_segments=0,
        received_packets=sent,
        received_bytes=1000 * sent,
    )
    return replace(counts, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lost", "ok"),
    # Of 10 000 packets at 0.1 %, none is lost with 0.999^10000 = 4.5e-5, less than the tail of
    # 5e-5; one or none with 5.0e-4. So the least is 1. At the other end, Poisson's P(X > 24) is
    # 4.7e-5 for a mean of 10 and P(X > 23) 1.2e-4: the most is 24.
    [(0, False), (1, True), (10, True), (24, True), (25, False)],
)
def test_loss_within_its_interval(plan: Plan, lost: int, ok: bool) -> None:
    (check,) = loss_checks([direction(plan, 10_000 - lost, lost)])
    assert check.name == "loss from middle to exit"
    assert check.expected.startswith("1 to 24 of 10000 packets")
    assert check.ok is ok


def test_loss_is_judged_over_the_links_of_two_roles(plan: Plan) -> None:
    busy, quiet = direction(plan, 4_990, 10), direction(plan, 100, 90)
    (check,) = loss_checks([busy, quiet, busy])
    assert check.observed == "20 of 10000 packets (0.2000%); 1 with fewer than 1000 not judged"
    (check,) = loss_checks([quiet])
    assert check.ok is None
    assert check.observed == "no direction with 1000 packets"


def test_bundles_are_found(plan: Plan) -> None:
    def check(**changed: int) -> Check:
        (found,) = crossing_checks([direction(plan, 20_000, 0, **changed)])
        return found

    assert check().ok
    # Between two readings 5 ms off, 100 Mbit/s carry 125 packets of 1000 bytes.
    assert check(received_packets=19_875).ok
    lacking = check(received_packets=19_874)
    assert not lacking.ok
    assert lacking.observed == "middle1 to exit1: 20000 sent, 19874 arrived"
    assert not check(received_bytes=20_000 * 1515).ok
    assert not check(bundled_segments=2).ok


def test_bundles_may_leave_a_senders_own_card(plan: Plan) -> None:
    bundling = direction(plan, 20_000, 0, bundled_segments=2)
    in_sender = bundling.shape.model_copy(update={"queue_in_sender": True})
    assert list(crossing_checks([replace(bundling, shape=in_sender)])) == []


def test_full_queues_are_told_and_allowed(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    """By a note: no check that can't fail. What the queue dropped, the link did not lose."""
    links = raw_rows(plan)["links"]
    for row in links:
        if (row["when"], row["sender"]) == ("after", "server1"):
            row |= {"overflowed_packets": 7, "dropped_packets": 7}
        if (row["when"], row["sender"], row["receiver"]) == ("after", "middle1", "exit1"):
            row |= {"overflowed_packets": 300, "dropped_packets": 320}
    summary = finished(tmp_path / "run", plan, facts, links=links)
    assert summary.valid
    told = "packets that a queue dropped: 300 from middle to exit, 7 from server to exit"
    assert summary.notes[0] == told
    assert not [check for check in summary.checks if "queue" in check.name]
    (loss,) = [check for check in summary.checks if check.name == "loss from middle to exit"]
    assert loss.observed == "20 of 20320 packets (0.0984%)"
    assert "queue" not in finished(tmp_path / "other", plan, facts).notes[0]


def test_a_table_without_a_younger_column_is_read(run: Path) -> None:
    path = run / "links.parquet"
    polars.read_parquet(path).drop("overflowed_packets").write_parquet(path)
    without_digests(run)
    assert read_run(run).links["overflowed_packets"].null_count() == read_run(run).links.height


def test_a_run_from_before_the_streams_steps_is_read(run: Path) -> None:
    path = run / "transfers.parquet"
    polars.read_parquet(path).drop(YOUNGER_COLUMNS["transfers"]).write_parquet(path)
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


def sampled(*ends_s: tuple[float, float]) -> list[float]:
    """When samples were taken that were steady from some times to others."""
    return [
        start_s + SAMPLE_INTERVAL_S * number
        for start_s, end_s in ends_s
        for number in range(round((end_s - start_s) / SAMPLE_INTERVAL_S))
    ]


@pytest.mark.parametrize(
    ("times_s", "covered"),
    [
        (sampled((0, 10)), "10.00 s"),
        (sampled((0, 4), (4.3, 10.3)), "10.30 s"),  # one was late
        (sampled((0, 9.5)), "9.50 s"),  # of five minutes 1 % are 3 s, but of 10 s one sample
        (sampled((0, 8.5)), "8.50 s"),
        (sampled((0, 11)), "11.00 s"),
        (sampled((0, 4), (6, 10)), "8.00 s"),  # a hole
        (sampled((0, 2), (3, 5), (6, 10)), "8.00 s"),
        (sampled((0, 4)) + [7.99] * 8 + sampled((8, 10)), "6.01 s"),  # made up for all at once
        ([], "0.00 s"),
    ],
)
def test_the_clock_covers_the_duration(
    tmp_path: Path, plan: Plan, facts: MachineFacts, times_s: list[float], covered: str
) -> None:
    sockets = [socket_sample(at_s, node) for at_s in times_s for node in plan.shared_link or ()]
    summary = finished(tmp_path / "run", plan, facts, sockets=sockets)
    (check,) = [check for check in summary.checks if check.name.startswith("duration")]
    assert check.observed == covered
    assert check.ok is summary.valid is (9.5 <= float(covered.split()[0]) <= 10.5)


def test_both_ends_of_the_shared_link_are_sampled(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    sockets = [socket_sample(at_s, "middle1") for at_s in sampled((0, 10))]
    assert not finished(tmp_path / "run", plan, facts, sockets=sockets).valid


def test_publishing_replaces_nothing(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    destination = tmp_path / "run"
    with staging(destination) as folder:
        write_record(folder, raw_rows(plan))
        write_results(folder, plan, facts)
        assert not destination.exists()
        destination.mkdir()  # empty: a bare rename would take its place
        with pytest.raises(TestbedError, match="exist"):
            publish(folder, destination)
        kept = keep_failed(folder, destination, TestbedError("no place"))
    assert list(destination.iterdir()) == []
    assert kept == tmp_path / "run.failed-1"
    assert (kept / "error.txt").read_text() == "no place\n"
    assert not (kept / "summary.json").exists()
    with pytest.raises(TestbedError, match="failed run"):
        read_run(kept)


def test_failures_are_numbered(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with staging(tmp_path / "run") as folder:
            (folder / "logs").mkdir()
            kept = keep_failed(folder, tmp_path / "run", TestbedError("over"))
        assert kept.name == f"run.failed-{number}"
    assert len(list(tmp_path.iterdir())) == 3


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staging(tmp_path / "deep" / "run") as folder:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt
    assert list((tmp_path / "deep").iterdir()) == []


def test_left_overs_of_a_killed_run_only(tmp_path: Path) -> None:
    destination = tmp_path / "run"
    other = tmp_path / ".run2.partial-1"
    other.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_RUN, str(destination)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as output:
        folder = Path(output.readline().strip())
        assert folder.name == f".run.partial-{process.pid}"
        assert remove_left_overs(destination) == []
        assert (folder / "half").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    # A living process by that name, ours, does not protect it.
    reused = folder.with_name(f".run.partial-{os.getpid()}")
    folder.rename(reused)
    with staging(destination):
        assert not (reused / "half").exists()
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_one_process_writes_a_run_once(tmp_path: Path) -> None:
    with (
        staging(tmp_path / "run"),
        pytest.raises(TestbedError, match="already"),
        staging(tmp_path / "run"),
    ):
        pass


def test_the_table_shows_what_failed(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    good = finished(tmp_path / "good", plan, facts)
    bad = finished(tmp_path / "bad", plan, facts, sockets=[])
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, good)
    shown = console.export_text()
    assert "1.88 ± 0.88 MB/s" in shown
    assert "6 checks hold" in shown
    assert "not judged" not in shown
    print_summary(console, bad)
    shown = console.export_text()
    assert "FAILED duration by the machine's clock" in shown
    assert "observed 0.00 s" in shown


def test_of_many_clients_the_table_has_the_number_and_nothing_that_nobody_measured(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    summary = finished(tmp_path / "run", plan, facts)
    (page,) = summary.by_traffic
    unmeasured = Distribution(mean=None, sd=None, median=None)
    many = page.model_copy(
        update={
            "clients": tuple(f"client{number}" for number in range(1, 41)),
            "circuit_round_trip_ms": unmeasured,
        }
    )
    drawn = summary.model_copy(
        update={
            "by_traffic": (many, page),
            "circuit_build_time_ms": unmeasured,
            "shared_link": SharedLinkCounts(connections=None, circuits=None),
        }
    )
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, drawn)
    shown = console.export_text()
    assert "40 clients" in shown and "client9," not in shown
    assert shown.count("circuit round trip") == 1
    assert "circuit build time" not in shown and "shared link" not in shown


def test_what_was_too_short_to_be_judged_is_said_and_not_counted(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    few = {"sent_packets": 900, "received_packets": 900, "received_bytes": 900_000}
    links = [row | (few if row["when"] == "after" else {}) for row in raw_rows(plan)["links"]]
    summary = finished(tmp_path / "run", plan, facts, links=links)
    assert summary.valid
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, summary)
    shown = console.export_text()
    losses = [check.name for check in summary.checks if check.name.startswith("loss from")]
    assert f"{len(summary.checks) - len(losses)} checks hold" in shown
    assert "not judged: loss from middle to exit: no direction with 1000 packets" in shown
