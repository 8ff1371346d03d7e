"""The report: what is on the page and beside it, for whole, foreign and invalid runs, in a browser.

The run directories are made here; no experiment runs. Figures are tested by their data elsewhere.
"""

import csv
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import status_of
from made_runs import Made
from test_figures import Recorded, at

from analysis import page, provenance
from analysis.order import SCENARIO_ORDER, TRAFFIC_ORDER, VARIANT_ORDER
from analysis.report import write_report
from analysis.tables import Table
from papers import TABLES
from papers.hydra.published import TWO_CLIENTS
from testbed import cli
from testbed.errors import InputError
from testbed.plan import make_plan
from testbed.plan_model import Patch
from testbed.results import read_run
from testbed.variant import TOR_CONFIGS

CHROMIUM = shutil.which("chromium")
"""Debian's package of that name; only .ci/run installs it."""

PATCH = TOR_CONFIGS / "patches" / "per-circuit-connections.patch"


class Page(HTMLParser):
    """What of a page the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.words += "\n"

    def handle_data(self, text: str) -> None:
        self.words += text


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of eight and of two clients, and one of each kind that is left out."""
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
    assert f"{runs}/seed-4: invalid: shared link before measuring" in content.words
    assert "NoDropping,bulk,vanilla,4,shared link before measuring,1,2,no" in [
        *(results.parent / "report" / "checks-that-failed.csv").read_text().splitlines()
    ]
    assert f"{runs}/seed-5/queues.parquet is missing: the run is not whole" in content.words
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
        given = cli._parser().parse_args(shlex.split(line)[1:])
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
    """As where all of Tor, kernel and testbed differ between runs that stand apart."""
    folder = page.Folder(tmp_path)
    for made_by in ("kernel " * 50 + "7.2.8", "kernel " * 50 + "7.3.4"):
        folder.table(Table("Costs", ("variant",), (("vanilla",),), made_by=made_by))
    assert len(list(tmp_path.glob("costs-*.csv"))) == 2


# What it is made of.


def test_versions_are_counted_over_runs(tmp_path: Path) -> None:
    for seed, commit in ((1, "aaa"), (2, "aaa"), (3, "bbb")):
        run = Made(seed=seed).write(tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        tor = {
            "version": "0.4.9.11",
            "key": "k",
            "compiler": "cc",
            "patches": [{"name": "x.patch", "sha256": "1234"}],
        }
        manifest |= {"project": {"version": "1", "commit": commit, "dirty": seed == 3}, "tor": tor}
        (run / "manifest.json").write_text(json.dumps(manifest))
    runs = [read_run(path.parent) for path in sorted(tmp_path.rglob("summary.json"))]
    rows = provenance.versions_table(runs).rows
    assert ("testbed", "1, commit aaa", "2") in rows
    assert ("testbed", "1, commit bbb with uncommitted changes", "1") in rows
    assert ("Tor", "0.4.9.11, build k", "3") in rows
    assert ("Tor: patches", "x.patch, sha256 1234", "3") in rows
    # Runs of more than one commit can't be repeated with one.
    assert not provenance.commands(runs, tmp_path)[0].startswith("git")
    assert provenance.commands(runs[:2], tmp_path)[0] == "git checkout aaa"


def test_a_patch_is_shown_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    own, kept = tmp_path / "x.patch", tmp_path / "run" / "patches" / "x.patch"
    patch = Patch(name="x.patch", path=str(own), sha256=hashlib.sha256(b"+ used").hexdigest())
    assert "is not here as it was used" in provenance.patch_text(patch, tmp_path / "run")
    own.write_text("+ used")
    assert provenance.patch_text(patch, tmp_path / "run") == "+ used"
    own.write_text("+ another")
    assert "is not here as it was used" in provenance.patch_text(patch, tmp_path / "run")
    kept.parent.mkdir(parents=True)
    kept.write_text("+ used")
    assert provenance.patch_text(patch, tmp_path / "run") == "+ used"


def test_a_file_of_the_users_own_is_named_as_a_file() -> None:
    plan = make_plan("NoDropping", "vanilla", traffic="web")
    own = plan.model_copy(update={"scenario": "Mine", "variant": "mine"})
    assert provenance.command(own) == (
        "./run.py scenario Mine.toml --variant mine.toml --traffic web --duration 300 --seed 1"
    )


def test_a_run_of_the_host_machine_is_repeated_there() -> None:
    assert provenance.command(make_plan("One", "vanilla"), "host").endswith(" --machine host")


# The command.


def test_the_command_writes_the_report_below_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    invalid = Made(seed=2, valid=False).write(tmp_path)
    for _ in range(2):  # a report replaces the one before
        assert status_of(["report", str(tmp_path)]) == cli.VALID
    told = capsys.readouterr().err
    assert f"left out: {invalid}: invalid" in told
    assert f"report in {tmp_path}/report/report.html" in told
    assert (tmp_path / "report" / "report.html").is_file()


def test_of_ones_own_scenarios_a_report_shows_nothing_published(tmp_path: Path) -> None:
    # The patch of pctls says, in its header, what it is after.
    for variant in ("vanilla", "mine"):
        Made(variant, "ThreeContinents").write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report.html", of_papers=TABLES)
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    assert "Throughput and round trips" in words
    for theirs in ("paper", "Hydra", "Table 4", "2009", "NoDropping"):
        assert theirs not in words


def test_runs_that_all_don_t_count_have_a_report_of_the_reasons(tmp_path: Path) -> None:
    invalid = Made(valid=False).write(tmp_path / "runs")
    found = write_report(tmp_path / "runs", tmp_path / "report.html")
    assert not found.valid
    content = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "0 runs count, 1 are left out." in content.words
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


def test_a_report_of_100_runs_takes_less_than_a_minute(tmp_path: Path) -> None:
    """Of five minutes each, by the processor's time, since other tests run beside this one."""
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


# In a browser.


def in_browser(file: Path, profile: Path) -> tuple[str, list[str]]:
    """The page as headless Chromium has it in the end, and the messages on its console.

    Names can't be resolved there, so that nothing could leave this machine.
    """
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *(f"--user-data-dir={profile}", "--enable-logging=stderr"),
        *("--dump-dom", file.as_uri()),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return answer.stdout, list(console(answer.stderr))


def console(log: str) -> Iterator[str]:
    return (found[1] for found in re.finditer(r":CONSOLE(?::\d+|\(\d+\))\] (.*)", log))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
def test_a_browser_shows_tables_and_figures_and_complains_of_nothing(
    report: Path, content: Page, tmp_path: Path
) -> None:
    dom, messages = in_browser(report, tmp_path / "profile")
    assert messages == []
    shown = Page(dom)
    for tag in ("table", "tr", "figure", "img", "section"):
        assert shown.tags.count(tag) == content.tags.count(tag) > 0


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
def test_a_browser_can_draw_every_figure_and_fetches_nothing(
    report: Path, content: Page, tmp_path: Path
) -> None:
    """With a script put in that counts the pictures that have a size, and one from elsewhere."""
    count = "document.title = [...document.images].filter(image => image.naturalWidth > 99).length"
    text = report.read_text(encoding="utf-8")
    text = text.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    text = text.replace("</body>", f'<img src="x.png"><script>onload = () => {{{count}}}</script>')
    file = tmp_path / "counting.html"
    file.write_text(text, encoding="utf-8")
    dom, messages = in_browser(file, tmp_path / "profile")
    assert f"<title>{content.tags.count('img')}</title>" in dom
    assert len(messages) == 1
    assert "violates the following Content Security Policy" in messages[0]
