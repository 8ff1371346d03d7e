"""The overview of papers: its rows are complete, and their verdicts follow from the numbers."""

from pathlib import Path

import pytest

from study import overview
from study.folder import find_study, names
from study.overview import (
    Paper,
    Shown,
    ShownFile,
    check_complete,
    check_verdict,
    overview_markdown,
    read_papers,
)
from study.verdicts import Compared
from testbed.basics.errors import InputError
from testbed.basics.toml_file import read_model, read_toml

NUMBERED = {
    "Examining the Hydra": (5, 14),
    "PCTCP": (0, 2),  # figures 6 and 7: the part of the paper with whole networks
    "Increasing bandwidth": (1, 14),
    "Circuit selection": (0, 5),
    "FlashFlow": (4, 16),
}
"""How many tables and figures each paper has, by the beginning of its title."""

PAPER = Paper(title="A paper", figures=(1, 2), tables=(1, 1))


def row(*of: str) -> Shown:
    return Shown(of=of, says="something", here="not here", because="not run")


def test_each_table_and_figure_of_the_five_papers_has_its_row() -> None:
    papers = read_papers()
    rows: dict[str, list[Shown]] = {paper.title: [] for paper in papers}
    for study in map(find_study, names()):
        if study.shown.is_file():
            content = read_model(study.shown, overview.ShownFile)
            rows[content.paper] += content.shows
    assert len(papers) == len(NUMBERED)
    for paper, (beginning, (tables, figures)) in zip(papers, NUMBERED.items(), strict=True):
        assert paper.title.startswith(beginning)
        kinds = [one.split()[0] for one in paper.numbered()]
        assert (kinds.count("table"), kinds.count("figure")) == (tables, figures)
        assert {one for shown in rows[paper.title] for one in shown.numbered()} == {
            *paper.numbered()
        }
        named = [one for shown in rows[paper.title] for one in shown.of]
        assert len(named) == len({*named})  # figure 7 may have rows for 7a and for 7b


def test_parts_of_a_figure_and_several_in_a_row() -> None:
    check_complete(PAPER, [row("table 1", "figure 1a", "figure 1b"), row("figure 2", "section 3")])


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        ([row("table 1", "figure 1")], "A paper: figure 2 has no row"),
        ([row("table 1", "figure 1", "figure 2", "figure 3")], "figure 3 has a row and isn't in"),
    ],
)
def test_what_is_missing_or_too_much(rows: list[Shown], advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        check_complete(PAPER, rows)


ELSEWHERE = {
    ("capacity", "true_mbit_per_s"): "what the hosts of table 3 carry, which is not here",
    ("hydra", "two_clients"): "which models figure 14 has: its statements are on them",
}
"""Published tables that no comparison names, and why."""


def test_each_published_number_is_compared_or_said_not_to_be_measured_here() -> None:
    studies = [study for study in map(find_study, names()) if study.shown.is_file()]
    files = {study.name: read_model(study.shown, ShownFile) for study in studies}
    unused = {*ELSEWHERE}
    for study in studies:
        own = files[study.name]
        of_paper = [row for file in files.values() if file.paper == own.paper for row in file.shows]
        published = read_toml(study.published) if study.published.is_file() else {}
        for key in published.keys() - {"paper"}:
            if (study.name, key) in ELSEWHERE:
                unused.remove((study.name, key))
                continue
            rows = [row for row in of_paper if key.replace("_", " ") in row.of]
            compared = [one.published + one.each for row in own.shows for one in row.compared]
            assert (
                all(row.compared or row.here == "not here" for row in rows)
                if rows
                else any(f"published.{key}" in one for one in compared)
            ), f"{study.name}: {key}"
    assert not unused


def test_the_published_shares_of_links_are_compared() -> None:
    rows = read_model(find_study("shared-links").shown, ShownFile).shows
    compared = {one: row.compared for row in rows for one in row.of}
    assert all(compared[f"figure {number}"] for number in range(4, 9))


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ({"here": "reproduced", "because": "we think so"}, "others follow from compared"),
        ({"here": "differs", "because": "we think so"}, "others follow from compared"),
        ({"because": "not run"}, "it needs either compared, or here"),
        ({"here": "not here"}, "needs a reason"),
        (
            {
                "here": "not here",
                "because": "no",
                "compared": [{"published": "1", "ours": "1", "within": "10 %"}],
            },
            "it needs either compared, or here",
        ),
    ],
)
def test_a_verdict_that_is_typed(keys: dict[str, object], advice: str) -> None:
    shown = Shown.model_validate({"of": ["figure 1"], "says": "something", **keys})
    with pytest.raises(InputError, match=advice):
        check_verdict(shown, "shown.toml: figure 1")


@pytest.mark.parametrize(
    ("ours", "here"),
    [
        ("10.9", "**reproduced**: 10.9 of 10 (there)"),
        ("12.0", "**differs**: 12.0 of 10: the day (there)"),
        ("-", "**not made yet** (there)"),
    ],
)
def test_a_row_says_the_cause_of_a_difference_only_if_there_is_one(ours: str, here: str) -> None:
    shown = Shown(
        of=("figure 1",),
        says="something",
        compared=(Compared(published="published.ten", ours="ours", within="10 %"),),
        numbers="{{ ours }} of {{ published.ten }}",
        because="the day",
        see="there",
    )
    fields = {"published": {"ten": 10}, "ours": ours}
    assert overview.cells_of(shown, fields, "here") == ("figure 1", "something", here, "10 %")


def test_a_difference_without_a_known_cause() -> None:
    one = Compared(published="10", ours="12", within="10 %")
    shown = Shown(of=("figure 1",), says="something", compared=(one,))
    text = overview.cells_of(shown, {}, "here")[2]
    assert text == f"**differs**: {overview.UNKNOWN_CAUSE}"


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ('here = "not here"', 'here = "not there"', 'did you mean "not here"'),
        ("{{ networks }}", "{{ nothing }}", "shown.toml: figure 2: 'nothing' is undefined"),
        ("published.figure_2[", "published.figure_9[", "has no attribute 'figure_9'"),
        ('within = "interval"', 'within = "a bit"', "within"),
        ("[[shows]]", "[[show]]", "unknown key show"),
        ('paper = "Circuit', 'paper = "Cirquit', "Circuit selection by round trip"),
        ('["figure 5"]', '["figure 6"]', "figure 5 has no row"),
    ],
)
@pytest.mark.slow
def test_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, advice: str
) -> None:
    study = find_study("circuit-selection")
    text = study.shown.read_text(encoding="utf-8")
    assert right in text
    for file in study.folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "shown.toml").write_text(text.replace(right, wrong, 1), encoding="utf-8")
    paper = next(one for one in read_papers() if one.title == "Circuit selection by round trip")
    monkeypatch.setattr(overview, "names", lambda: [f"{tmp_path}"])
    monkeypatch.setattr(overview, "read_papers", lambda: (paper,))
    with pytest.raises(InputError) as error:
        overview_markdown()
    assert advice in str(error.value)
