"""The overview of papers: its rows are complete, and their verdicts follow from the numbers."""

from pathlib import Path

import pytest

from analysis.statistics import change
from analysis.wording import change_text
from study import overview
from study.fields import agreement, together, told
from study.folder import find_study, names
from study.overview import Paper, Shown, check_complete, overview_markdown, read_papers
from testbed.basics.errors import InputError
from testbed.basics.toml_file import read_model

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
    return Shown(of=of, says="something", here="open", because="not run")


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


@pytest.mark.parametrize(
    ("after", "published", "way", "verdict"),
    [
        ([5.0, 5.1, 4.9], -0.5, "less", "reproduced"),
        ([5.0, 5.1, 4.9], -0.2, "less", "differs"),
        ([5.0, 5.1, 4.9], None, "less", "reproduced"),
        ([5.0, 5.1, 4.9], None, "more", "differs"),
        ([7.0, 12.0, 9.0], -0.1, "less", "open"),
        ([7.0, 12.0, 9.0], None, "less", "open"),
        ([10.0, 10.1, 9.9], -0.5, "less", "differs"),
        ([10.0, 10.1, 9.9], 0.0, "less", "reproduced"),
        ([5.0], -0.5, "less", "open"),
    ],
)
def test_whether_a_change_is_the_published_one(
    after: list[float], published: float | None, way: str, verdict: str
) -> None:
    before = {seed: 10.0 for seed in range(len(after))}
    changed = change(before, dict(enumerate(after)))
    assert changed
    assert agreement(changed.interval, published, way) == verdict
    assert told(change_text(changed), published, way) == verdict  # as a table's cell has it


def test_no_runs_leave_it_open() -> None:
    assert agreement(None, -0.5) == "open"
    assert together([]) == "open"
    assert together(["reproduced", "open"]) == "open"
    assert together(["reproduced", "open", "differs"]) == "differs"
    assert together(["reproduced"]) == "reproduced"


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ('here = "not here"', 'here = "not there"', 'did you mean "not here"'),
        ("{{ networks }}", "{{ nothing }}", "shown.toml: figure 2: 'nothing' is undefined"),
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
