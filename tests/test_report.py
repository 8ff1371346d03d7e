"""The report: its page and the files beside it, for whole, foreign and invalid runs.

The run directories are made here; no experiment runs. Other tests check the data of figures.
"""

import csv
import json
import shlex
import time
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import status_of
from made_runs import Made, Recorded, at
from read_page import Page

from analysis import page
from analysis.order import SCENARIO_ORDER, TRAFFIC_ORDER, VARIANT_ORDER
from analysis.report import write_report
from analysis.table import Table
from commands.__main__ import parser
from study.hydra.published import TWO_CLIENTS
from study.hydra.tables import TABLES
from testbed.asked.plans import make_plan
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.results import read_run

PATCH = TOR_CONFIGS / "patches" / "per-circuit-connections.patch"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of eight and of two clients, and one run of each kind that is left out."""
    folder = tmp_path_factory.mktemp("work") / "results"
    for variant, time_s in (("vanilla", 20.0), ("pctls", 2.5)):
        for seed in (1, 2, 3):
            for scenario in ("NoDropping", "SharedDropping"):
                Made(variant, scenario, seed, time_s=time_s + seed, delivered_kb=[99]).write(folder)
        for traffic in ("bulk", "audio"):
            Made(variant, "Two", traffic=traffic, time_s=time_s, delivered_kb=[9]).write(folder)
    Made(seed=4, valid=False).write(folder)
    (Made(seed=5).write(folder) / "queues.parquet").unlink()
    Made(scenario="DroppingRemaining", changed={"congestion_control": None}).write(folder)
    return folder


@pytest.fixture(scope="module")
def report(results: Path) -> Path:
    file = results.parent / "report" / "report.html"
    write_report(results, file, of_papers=TABLES)
    return file


@pytest.fixture
def content(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


# The page.


def test_the_page_needs_nothing_from_elsewhere(report: Path, content: Page) -> None:
    assert content.open == []
    assert len(content.addresses) > 20
    for address in content.addresses:
        here = address.startswith(("data:", "#"))
        assert here or (report.parent / address).is_file(), address[:99]
    assert "script" not in content.tags


def test_every_figure_is_in_the_page_and_beside_it(report: Path, content: Page) -> None:
    names = {path.stem for path in report.parent.glob("*.svg")}
    assert names == {
        "distributions-bulk-eight_clients-300s",
        "time-to-last-byte-two_clients-300s",
        "circuit-build-time-two_clients-300s",
        "stream-round-trip-two_clients-300s",
        "all-scenarios",
        "in-brief-NoDropping-bulk-300s",
        "in-brief-SharedDropping-bulk-300s",
        "in-brief-Two-bulk-300s",
        "in-brief-Two-audio-300s",
        "network-NoDropping",
        "network-SharedDropping",
        "network-Two",
        "over-time-NoDropping-bulk-300s",
        "over-time-SharedDropping-bulk-300s",
        "over-time-Two-bulk-300s",
        "over-time-Two-audio-300s",
    }
    assert names == {path.stem for path in report.parent.glob("*.png")}
    assert content.tags.count("img") == len(names)
    for path in report.parent.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_every_table_is_in_the_page_and_beside_it(report: Path, content: Page) -> None:
    files = sorted(report.parent.glob("*.csv"))
    assert content.tags.count("table") == len(files)
    tables = {file.stem: list(csv.reader(file.open(encoding="utf-8"))) for file in files}
    assert set(tables) >= {
        "table-4-of-examining-the-hydra",
        "throughput-and-round-trips",
        "nodropping-bulk-300-s-pctls-against-vanilla",
        "two-audio-300-s-pctls-against-vanilla",
        "every-run",
        "every-check",
        "versions",
        "left-out",
    }
    assert len(tables["every-run"]) == 1 + 2 * (2 * 3 + 2)
    assert tables["every-run"][1][-1] == "NoDropping-bulk/vanilla/seed-1"
    assert ["NoDropping", "bulk", "pctls", "3"] in [row[:4] for row in tables["every-check"]]
    for rows in tables.values():
        assert all(cell in content.words for row in rows for cell in row)


def test_what_was_left_out_stands_there_with_the_reason(results: Path, content: Page) -> None:
    runs = results / "NoDropping-bulk" / "vanilla"
    assert "16 runs count, 3 are left out." in content.words
    assert f"{runs}/seed-4: invalid: middle1 to exit1 before measuring" in content.words
    assert "NoDropping,bulk,vanilla,4,middle1 to exit1 before measuring,1,2,no" in [
        *(results.parent / "report" / "checks-that-failed.csv").read_text().splitlines()
    ]
    assert f"{runs}/seed-5/queues.parquet is missing: the run is incomplete" in content.words
    foreign = results / "DroppingRemaining-bulk" / "vanilla" / "seed-1" / "manifest.json"
    reason = "plan.congestion_control: Input should be a valid dictionary"
    assert f"{foreign}: {reason}" in content.words


def test_the_variants_patch_is_there_as_it_is(content: Page) -> None:
    assert PATCH.read_text(encoding="utf-8") in content.words
    assert "torrc.relay: PerCircuitConnections 1" in content.words
    assert "the shared link has one connection per circuit" in content.words


def test_the_commands_repeat_the_runs(results: Path, content: Page) -> None:
    lines = [line for line in content.words.splitlines() if line.startswith("./run.py")]
    assert lines.pop() == f"./run.py report {results}"
    planned = set()
    for line in lines:
        given = parser(["scenario"]).parse_args(shlex.split(line)[1:])
        plan = make_plan(
            *(given.scenario, given.variant),
            seed=given.seed,
            duration=given.duration,
            traffic=given.traffic,
        )
        planned.add(json.dumps(plan.model_dump(mode="json")))
    runs = [read_run(path.parent) for path in results.glob("[!D]*/*/seed-[123]/summary.json")]
    assert len(lines) == len(runs) == 16
    assert planned == {json.dumps(run.plan.model_dump(mode="json")) for run in runs}


def test_text_is_shown_and_not_carried_out() -> None:
    table = Table("<b>", ("a & b",), (("<script>x</script>",),), "<i>")
    text = page.page("<u>", [("<h>", page.table(table, "a.csv") + page.preformatted("<p>"))])
    content = Page(text)
    assert not {"b", "script", "i", "u", "h"} & set(content.tags)
    assert all(part in content.words for part in ("<b>", "a & b", "<script>", "<i>", "<u>", "<p>"))


def test_long_headings_have_files_of_their_own(tmp_path: Path) -> None:
    """Runs that stand apart may differ in Tor, kernel and testbed at once."""
    folder = page.Folder(tmp_path)
    for made_by in ("kernel " * 50 + "7.2.8", "kernel " * 50 + "7.3.4"):
        folder.table(Table("Costs", ("variant",), (("vanilla",),), made_by=made_by))
    assert len(list(tmp_path.glob("costs-*.csv"))) == 2


def test_the_answer_comes_first(tmp_path: Path) -> None:
    for variant, time_s in (("vanilla", 20.0), ("pctls", 2.5)):
        for seed in (1, 2, 3):
            Made(variant, "SharedDropping", seed, time_s=time_s + seed / 9).write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    beginning, _ = words.split("\nContents\n")
    _, title, sentence, *_ = [line for line in beginning.splitlines() if line]
    assert title == "SharedDropping, bulk, 300 s: pctls against vanilla"
    assert sentence == "pctls is better than vanilla"
    assert "pctls is better than vanilla\n: throughput +6" in words
    assert "6 runs count, 0 are left out." in beginning


def test_a_single_run_begins_with_its_numbers_and_its_premise(tmp_path: Path) -> None:
    Made(delivered_kb=[2000, 2000], window=12).write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    beginning, _ = words.split("\nContents\n")
    assert "NoDropping, bulk, 300 s: vanilla\n" in beginning
    assert "vanilla\n: throughput 2.00 MB/s, stream round trip 80 ms" in beginning
    assert "each of 8 clients received 2 MB/s throughout" in beginning
    assert "middle1 to exit1 had 1 connection for 8 circuits" in beginning
    assert "Its check holds" in beginning


def test_an_invalid_run_says_at_once_that_its_premise_did_not_hold(tmp_path: Path) -> None:
    Made(valid=False).write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    beginning, _ = words.split("\nContents\n")
    assert "No run counts" in beginning
    assert (
        "The premise of NoDropping, vanilla, seed 1 did not hold: middle1 to exit1 before"
        " measuring: expected 1, observed 2"
    ) in beginning


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for seed in (1, 2):
        Made(seed=seed, delivered_kb=[5, 7]).write(tmp_path / "runs")
    contents = []
    for folder in ("one", "other"):
        write_report(tmp_path / "runs", tmp_path / folder / "report.html", of_papers=TABLES)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert contents[0] == contents[1]


# The command.


def test_the_command_writes_the_report_below_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    invalid = Made(seed=2, valid=False).write(tmp_path)
    for _ in range(2):  # a report replaces the one before
        assert status_of(["report", str(tmp_path)]) == VALID
    printed = capsys.readouterr().err
    assert f"left out: {invalid}: invalid" in printed
    assert f"report in {tmp_path}/report/report.html" in printed
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_report_on_other_scenarios_shows_nothing_published(tmp_path: Path) -> None:
    # pctls isn't among the variants: the header of its patch names the paper.
    for variant in ("vanilla", "mine"):
        Made(variant, "ThreeContinents").write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report.html", of_papers=TABLES)
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    assert "Throughput and round trips" in words
    for theirs in ("paper", "Hydra", "Table 4", "2009", "NoDropping"):
        assert theirs not in words


def test_a_report_without_runs_that_count_has_the_reasons(tmp_path: Path) -> None:
    invalid = Made(valid=False).write(tmp_path / "runs")
    found = write_report(tmp_path / "runs", tmp_path / "report.html")
    assert not found.valid
    content = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "0 runs count, 1 is left out." in content.words
    assert f"{invalid}: invalid" in content.words
    assert "img" not in content.tags


@pytest.mark.parametrize(
    ("directory", "out", "message"),
    [
        ("nowhere", "r.html", "nowhere is no directory"),
        ("empty", "r.html", "empty holds no run"),
        ("runs", "r.pdf", "--out r.pdf: give a file that ends in .html"),
        ("runs", "file/r.html", "--out file/r.html: file: File exists"),
        ("runs", "folder.html", "--out folder.html: folder.html: Is a directory"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    directory: str,
    out: str,
    message: str,
) -> None:
    Made().write(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    assert status_of(["report", directory, "--out", out]) == InputError.exit_status
    assert capsys.readouterr().err == f"run.py: {message}" + (
        ": give one with run directories below it\n"
        if directory == "nowhere"
        else ": make one with ./run.py scenario\n"
        if directory == "empty"
        else "\n"
    )


# How long it takes.


@pytest.mark.slow
def test_a_report_of_100_runs_takes_less_than_a_minute(tmp_path: Path) -> None:
    """Runs of five minutes, in processor time, as other tests run at the same time."""
    sockets = [
        at(
            number / 2,
            **{"node": "exit1", "peer": "middle1", "port": 9001, "peer_port": connection},
            rtt_ms=25.0,
            **{"cwnd_segments": 40 + number % 7, "retransmitted_segments": number},
        )
        for number in range(600)
        for connection in range(8)
    ]
    settings = [(scenario, "bulk", 5) for scenario in SCENARIO_ORDER[:3]]
    settings += [(scenario, model, 3) for scenario in TWO_CLIENTS for model in TRAFFIC_ORDER]
    for (scenario, traffic, seeds), variant in product(settings, VARIANT_ORDER):
        for seed in range(seeds):
            made = Recorded(
                *(variant, scenario, seed, traffic),
                delivered_kb=range(300),
                tables={"sockets": sockets},
            )
            made.write(tmp_path)
    began_s = time.process_time()
    found = write_report(tmp_path, tmp_path / "report.html")
    assert time.process_time() - began_s < 60
    assert sum(map(len, found.valid.values())) >= 100
