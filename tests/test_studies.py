"""Studies: each page is that of its kept runs; what the command makes, keeps and refuses.

A stand-in replaces the machine.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from batch_stand_in import ALL, BATCH, FAILS, IS_INVALID, begun, behave
from command_line import refused, status_of

from analysis.runs import Found, find_runs
from study.fields import span
from study.folder import ALL_HOURS, CORES, Study, find_study, names
from study.hydra.published import TABLE_4
from study.hydra.tables import table_4
from study.kept import unpacked
from study.origin import every_run, made_runs, processor_h
from study.page import Page, found_runs, make_page
from study.paragraphs import wrapped
from study.printed import read_printed
from study.times import times_of
from testbed.basics.ending import FAILED, PREMISE_FAILED, VALID
from testbed.plan.model import Plan
from testbed.results.differences import differences
from testbed.results.summary import Summary

MOST_WORDS = 1200
"""Of a page: what has a letter or a digit, in tables, too."""

STUDY = f"""{BATCH}
[study]
question = "Which is faster?"
most_hours = 0.1
"""
PAGE = """# {{ question }}

{{ runs("pctls", "Mine").mean("throughput_mb_per_s.mean") }} MB/s,
where {{ published.paper.throughput }} are published.

{{ csv("throughput") }}

{{ origin }}
"""


@pytest.fixture(scope="module", params=names())
def made(request: pytest.FixtureRequest) -> tuple[Study, Page, Found]:
    """A study of the project, its page made again, and its kept runs."""
    study = find_study(request.param)
    with unpacked(study) as folder:
        return study, make_page(study, folder), found_runs(study, folder)


@pytest.mark.slow
def test_the_page_is_that_of_the_kept_runs(made: tuple[Study, Page, Found]) -> None:
    study, page, found = made
    assert bool(page.missing) == (study.runs > 0 and not every_run(found))  # if none is made
    again = f"./run.py study {study.name} --kept"
    assert study.page.read_text(encoding="utf-8") == page.text, again
    for name, text in (*page.further.items(), *page.files.items()):
        assert (study.folder / name).read_bytes().decode() == text, again
    for plot in page.plots:
        assert (study.folder / f"{plot.name}.png").is_file(), again


@pytest.mark.slow
def test_the_page_is_read_in_five_minutes(made: tuple[Study, Page, Found]) -> None:
    assert len(re.findall(r"[^\s|]*\w[^\s|]*", made[1].text)) <= MOST_WORDS


def _names(one: Plan | Summary) -> tuple[str, str, str, int]:
    return one.scenario, one.variant, one.traffic, one.seed


@pytest.mark.slow
def test_the_kept_runs_are_the_studys(made: tuple[Study, Page, Found]) -> None:
    study, _, found = made
    assert len(found.left_out) == len(found.invalid)
    text = " ".join(made[1].text.split())
    for run in found.invalid:  # the page names them
        assert f" with {run.summary.variant}, seed {run.summary.seed} (" in text
    plans = study.batch().plans.values()
    assert len(plans) == study.runs
    wanted = {_names(plan) for plan in plans}
    kept = {_names(one.summary) for one in made_runs(found)}
    assert kept <= wanted
    lacking = "of the study's runs are not made yet" in text
    assert (kept == wanted) != lacking  # the page says what isn't there
    with unpacked(study) as folder:
        printed = read_printed(study.commands, folder)
    assert set(printed.by_name) <= {one.name for one in study.commands}
    assert bool(printed.lacking()) == ("Not carried out yet are " in text)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_page_is_made_where_most_runs_are_missing(name: str) -> None:
    study = find_study(name)
    with unpacked(study) as folder:
        one = min(folder.rglob("seed-1"), default=folder / "nothing")
        assert make_page(study, one).missing


@pytest.mark.slow
def test_no_study_took_longer_than_it_may(made: tuple[Study, Page, Found]) -> None:
    """Kept runs that are longer than the study's take as long as these would."""
    study, _, found = made
    with unpacked(study) as folder:
        printed = read_printed(study.commands, folder)
    duration_s = {_names(plan): plan.duration_s for plan in study.batch().plans.values()}
    took_h = processor_h([], printed)
    for run in made_runs(found):
        longer = run.summary.duration_s / duration_s[_names(run.summary)]
        took_h += processor_h([run]) / max(1.0, longer)
    assert took_h / CORES <= study.keys.most_hours


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_the_seeds_of_each_kind_of_run_are_averaged(name: str) -> None:
    """Whatever a seed draws, such as relays that lie or have a patch, tells no runs apart."""
    study = find_study(name)
    kinds: dict[Path, list[dict[str, Any]]] = {}
    for folder, plan in study.batch().plans.items() if study.runs else ():
        kinds.setdefault(folder.parent, []).append(plan.model_dump(mode="json"))
    apart = {
        kind: differing
        for kind, (first, *others) in kinds.items()
        for other in others
        if (differing := differences(first, other, but_seed=True))
    }
    assert not apart


def test_all_studies_together_take_a_night() -> None:
    assert sum(find_study(name).keys.most_hours for name in names()) <= ALL_HOURS


def test_each_figure_outside_the_published_deviation_has_its_cause() -> None:
    """Of Table 4: the page of the study says of each why it differs."""
    study = find_study("hydra")
    text = study.page.read_text(encoding="utf-8")
    section = text.split("\n## What differs and why\n\n")[1].split("\n\n")[0]
    told = {row.split(" | ")[0].lstrip("| "): row for row in section.splitlines()[2:]}
    with unpacked(study) as folder:
        rows = table_4.table(find_runs(folder, whole=False)).rows
    assert len(rows) == 2 * len(TABLE_4)
    for row in rows:
        variant, scenario, unit = row[:3]
        (line,) = [
            line
            for published, line in told.items()
            if published.startswith(f"{variant} {scenario}: ") and published.endswith(unit)
        ]
        assert {ours.partition(" ")[0].rstrip("*") for ours in row[5:]} <= set(
            re.findall(r"[\d.]+", line)
        )


# The command.


@pytest.fixture
def own(mine: Path) -> Path:
    """A study of a user's own, of four short runs."""
    (mine / "own").mkdir()
    text = STUDY.replace("./Mine.toml", "../Mine.toml")
    (mine / "own" / "study.toml").write_text(text, encoding="utf-8")
    (mine / "own" / "page.md").write_text(PAGE, encoding="utf-8")
    published = "[paper]\nthroughput = 1.97\n"
    (mine / "own" / "published.toml").write_text(published, encoding="utf-8")
    return mine / "own"


@pytest.mark.slow
def test_runs_are_made_then_kept_and_the_page_is_the_same(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["study", "./own", "--cores", "1"]) == VALID
    assert begun() == ALL
    made = Path("results/own/README.md").read_text(encoding="utf-8")
    assert "\n# Which is faster?\n" in made and " MB/s," in made
    assert "Made from 4 runs" in made
    assert not (own / "kept.tar.xz").exists()
    assert status_of(["study", "./own", "--keep"]) == VALID
    assert begun() == ALL  # not made again
    assert (own / "README.md").read_text(encoding="utf-8") == made
    (own / "README.md").unlink()
    assert status_of(["study", "./own", "--kept"]) == VALID
    assert (own / "README.md").read_text(encoding="utf-8") == made
    assert (own / "throughput.csv").is_file()
    with unpacked(study := find_study("./own")) as folder:
        found = found_runs(study, folder)
        run = next(run for runs in found.valid.values() for run in runs)
        assert not run.is_whole
        times = times_of(run)
        last_byte = times[run.summary.traffic]["time_to_last_byte_s"]
        assert len(last_byte) == 101 and sorted(last_byte) == last_byte
        assert last_byte[50] == pytest.approx(run.under_test.time_to_last_byte_s.median, abs=1e-4)
    kept = (own / "kept.tar.xz").read_bytes()
    assert status_of(["study", "./own", "--keep"]) == VALID
    assert (own / "kept.tar.xz").read_bytes() == kept
    capsys.readouterr()
    assert status_of(["study", "./own", "--dry-run", "--out", "anew"]) == VALID
    assert "4 runs" in "".join(capsys.readouterr())  # the kept ones tell how long they take


OWN_METRIC = '''
from analysis.metrics.metric import Metric


def metrics():
    """The transfers, counted in their table."""
    count = lambda run: float(run.transfers.height) if run.is_whole else None
    return [Metric("rows", "rows", "", 0, "neither", of=count)]
'''


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_metrics_of_tables_are_kept(own: Path) -> None:
    (own / "figures.py").write_text(OWN_METRIC, encoding="utf-8")
    template = own / "page.md"
    line = '{{ runs("pctls", "Mine").mean("rows") }} rows\n'
    template.write_text(template.read_text(encoding="utf-8") + line, encoding="utf-8")
    (own / "rows.page.md").write_text(f"# Rows\n\n{line}", encoding="utf-8")
    assert status_of(["study", "./own", "--keep"]) == VALID
    pages = [(own / name).read_text(encoding="utf-8") for name in ("README.md", "rows.md")]
    for page in pages:
        assert re.search(r"\b[1-9][0-9]* rows$", page, re.MULTILINE)
    assert pages[1].startswith("<!-- Made from rows.page.md and the runs")
    assert status_of(["study", "./own", "--kept"]) == VALID
    assert [(own / name).read_text(encoding="utf-8") for name in ("README.md", "rows.md")] == pages


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_only_what_is_not_kept_is_made(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["study", "./own", "--keep", "--out", "first"]) == VALID
    file = own / "study.toml"
    more = file.read_text(encoding="utf-8").replace("seeds = [1, 2]", "seeds = [1, 2, 3]")
    file.write_text(more, encoding="utf-8")
    before = begun()
    assert status_of(["study", "./own", "--missing", "--dry-run", "--out", "second"]) == VALID
    assert "2 runs" in "".join(capsys.readouterr())
    assert status_of(["study", "./own", "--missing", "--keep", "--out", "second"]) == VALID
    assert sorted(begun()[len(before) :]) == ["pctls 3", "vanilla 3"]
    page = (own / "README.md").read_text(encoding="utf-8")
    assert "Made from 6 runs" in page
    assert status_of(["study", "./own", "--kept"]) == VALID
    assert (own / "README.md").read_text(encoding="utf-8") == page


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_what_is_missing_is_said_and_not_kept(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave({"pctls 1": FAILS, "pctls 2": FAILS})
    assert status_of(["study", "./own"]) == FAILED
    assert "as there are no such runs or results: pctls in Mine" in capsys.readouterr().err
    assert "\n- MB/s,\nwhere 1.97" in Path("results/own/README.md").read_text(encoding="utf-8")
    assert status_of(["study", "./own", "--keep"]) != VALID
    assert "--keep: 2 of 4 runs are not made" in capsys.readouterr().err
    assert not (own / "kept.tar.xz").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_invalid_runs_are_kept_and_named_with_the_reason(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = own / "page.md"
    text = template.read_text(encoding="utf-8")
    template.write_text(f"{text}\n{{{{ lacking() }}}}\n", encoding="utf-8")
    behave({"pctls 2": IS_INVALID})
    assert status_of(["study", "./own", "--keep"]) == PREMISE_FAILED
    page = (own / "README.md").read_text(encoding="utf-8")
    said = " ".join(page.split())
    assert "Made from 3 runs" in said and "not made yet" not in said
    assert "1 run doesn't count, as its premise failed: Mine with pctls, seed 2 (" in said
    assert "\nleft out: Mine/pctls/seed-2: invalid: " in capsys.readouterr().err
    assert status_of(["study", "./own", "--kept"]) == VALID
    assert (own / "README.md").read_text(encoding="utf-8") == page
    before = begun()
    assert status_of(["study", "./own", "--missing", "--out", "second"]) == VALID
    assert begun() == before  # what is kept says why it doesn't count
    behave({})
    again = ["study", "./own", "--missing", "--retry-invalid", "--keep", "--out", "second"]
    assert status_of(again) == VALID
    assert begun()[len(before) :] == ["pctls 2"]
    said = " ".join((own / "README.md").read_text(encoding="utf-8").split())
    assert "Made from 4 runs" in said and "doesn't count" not in said


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["study"]) == VALID
    assert set(names()) <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("study hydro", 'there is no study "hydro": did you mean "hydra"?'),
        ("study ./none", "there is no study in ./none: a study's folder has a study.toml"),
        ("study hydra --all", "study hydra --all: leave one of them out"),
        ("study --all --out here", "--all has a folder for each study: leave --out out"),
        (
            "study hydra --kept --dry-run",
            "--kept makes no runs: leave --keep, --missing and --dry-run out",
        ),
        ("study hydra --jobs 2", "--jobs is for --executor slurm: add that"),
        ("study ./own --kept", "own/kept.tar.xz: no runs of this study are kept: make them"),
    ],
)
@pytest.mark.usefixtures("own")
def test_bad_words(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    advice: str,
) -> None:
    assert advice in refused(arguments.split(), monkeypatch, capsys)


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("[study]", "[other]", "unknown key other"),
        ("most_hours = 0.1", "", "own/study.toml: study: the key most_hours is missing"),
        ("most_hours = 0.1", "most_hours = 0", "most_hours = 0 is wrong"),
        ("question", "questions", 'unknown key questions: did you mean "question"?'),
    ],
)
def test_a_bad_file(
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    advice: str,
) -> None:
    file = own / "study.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    assert advice in refused(["study", "./own"], monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("{{ runs('vanilla', 'One').mean('speed') }}", "page.md: metric 'speed': "),
        ("{{ table('throughputs') }}", 'did you mean "throughput"?'),
        ("{{ table('throughput', ['MB']) }}", "page.md: table 'throughput', column 'MB': "),
        ("{{ nothing }}", "page.md: 'nothing' is undefined"),
        ("one\n{% if %}", "page.md, line 2: "),
    ],
)
def test_a_bad_template(tmp_path: Path, text: str, advice: str) -> None:
    study = find_study("hydra")
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    other = Study(tmp_path, "Other", study.keys, study.runs)
    with unpacked(study) as folder, pytest.raises(Exception, match=re.escape(advice)):
        make_page(other, next(folder.glob("*/One")))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["-82 %", "-90 %"], "82 to 90 % less"),
        (["+9.0 %", "+23 %", "-"], "9.0 to 23 % more"),
        (["-4 %", "+3 %"], "-4 to +3 %"),
        (["-4 %"], "4 % less"),
        (["-"], "-"),
    ],
)
def test_a_span(texts: list[str], said: str) -> None:
    assert span(texts) == said


def test_only_paragraphs_are_broken_again() -> None:
    long = " ".join(["word"] * 40)
    page = f"# {long}\n\n{long}\n\n\n| {long} |\n\n```sh\n{long}\n\n\n{long}\n```\n\nend\n"
    lines = wrapped(page).splitlines()
    assert lines[0] == f"# {long}" and f"| {long} |" in lines and lines.count(long) == 2
    assert max(len(line) for line in lines[2:4]) <= 120
    assert "\n\n\n" not in wrapped(page).split("```")[0]
