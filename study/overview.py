"""The overview of papers: a row for each of their tables and figures, and whether it comes out.

Which tables and figures a paper has is in studies/papers.toml. The rows are in the studies'
`shown.toml`; their verdicts and reasons are templates with the fields of the study's page, filled
with what the study keeps.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from analysis.table import Table, as_markdown
from study.folder import Study, find_study, names
from study.kept import unpacked
from study.page import filled, made_of
from study.paragraphs import wrapped
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Text, label, read_model, suggestion
from testbed.batch.batch_file import STUDIES

PAPERS = STUDIES / "papers.toml"
HEAD = "<!-- `./run.py reference papers` makes this page of shown.toml files and kept runs. -->\n"
VERDICTS = {
    "reproduced": "it comes out here, too",
    "differs": "it comes out otherwise",
    "open": "runs that were made don't decide it, or none was made",
    "not here": "it can't be measured here",
    "no measurement": "it shows nothing that was measured",
}
"""What a row says of a table or figure, and what that means."""

_NUMBERED = re.compile(r"(table|figure)s? (\d+)")


class Paper(BaseModel):
    """A paper: its title as in `shown.toml`, and its first and last figure and table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    figures: tuple[int, int]
    tables: tuple[int, int] | None = None
    note: str = ""
    """What a reader must know of the list."""

    def numbered(self) -> list[str]:
        """All of its tables and figures: "figure 1"."""
        found = []
        for kind, ends in (("table", self.tables), ("figure", self.figures)):
            if ends:
                found += [f"{kind} {number}" for number in range(ends[0], ends[1] + 1)]
        return found


class Shown(BaseModel):
    """A row: what of the paper it is about, what that says, the verdict, and why.

    `here` and `because` are templates with the fields of the study's page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: tuple[Text, ...] = Field(min_length=1)
    """Tables, figures or sections: "figure 10", "figure 14a", "section 3"."""
    says: Text
    here: Text
    because: Text

    def numbered(self) -> Iterator[str]:
        """The tables and figures among them, without letters of their parts."""
        for one in self.of:
            if found := _NUMBERED.match(one):
                yield f"{found[1]} {found[2]}"


class ShownFile(BaseModel):
    """A study's `shown.toml`: the paper, and its rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: Text
    shows: tuple[Shown, ...]


def overview_markdown() -> str:
    """The page on all papers, as Markdown.

    Raises:
        InputError: a table or figure of a paper has no row, or a row none of these; or a template
            is wrong.
    """
    papers = read_papers()
    rows: dict[str, list[tuple[Study, Shown]]] = {paper.title: [] for paper in papers}
    for study in map(find_study, names()):
        for title, shown in _rows_of(study, list(rows)):
            rows[title].append((study, shown))
    for paper in papers:
        check_complete(paper, [shown for _, shown in rows[paper.title]])
    texts = {study.name: _filled(study, rows) for study in map(find_study, names())}
    lines = []
    for paper in papers:
        of = [texts[study.name][shown] for study, shown in rows[paper.title]]
        columns = ("table or figure", "what it says", "here")
        ordered = tuple(sorted(of, key=lambda row: _order(row[0])))
        table = Table(paper.title, columns, ordered)
        lines += [f"## {paper.title}", paper.note, as_markdown(table)]
    text = "\n\n".join([*_opening(texts), *(line for line in lines if line)])
    return HEAD + wrapped(f"{text}\n")


class _PapersFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    papers: tuple[Paper, ...]


def read_papers() -> tuple[Paper, ...]:
    """The papers of studies/papers.toml.

    Raises:
        InputError: it says something wrong.
    """
    return read_model(PAPERS, _PapersFile).papers


def check_complete(paper: Paper, rows: Sequence[Shown]) -> None:
    """Check that each table and figure of a paper has a row, and each row is about one it has.

    Raises:
        InputError: they don't agree.
    """
    wanted, there = set(paper.numbered()), {one for row in rows for one in row.numbered()}
    for text, which in (
        ("has no row", wanted - there),
        ("has a row and isn't in it", there - wanted),
    ):
        if which:
            first = f"{paper.title}: {min(which, key=_order)}"
            raise InputError(f"{label(PAPERS)}: {first} {text}: see the studies' shown.toml")


def _rows_of(study: Study, titles: Sequence[str]) -> Iterator[tuple[str, Shown]]:
    """A study's rows, with the title of the paper each is about."""
    if not study.shown.is_file():
        return
    content = read_model(study.shown, ShownFile)
    if content.paper not in titles:
        raise InputError(f"{label(study.shown)}: paper: {suggestion(content.paper, titles)}")
    for shown in content.shows:
        yield content.paper, shown


def _filled(
    study: Study, rows: Mapping[str, Sequence[tuple[Study, Shown]]]
) -> dict[Shown, tuple[str, str, str]]:
    """The cells of a study's rows, filled with what it keeps."""
    own = [shown for some in rows.values() for its, shown in some if its.name == study.name]
    if not own:
        return {}
    kept = unpacked(study) if study.kept.is_file() else nullcontext(Path(study.folder / "none"))
    with kept as folder:
        fields = made_of(study, folder).names
    place = label(study.shown)
    cells = {}
    for shown in own:
        where = f"{place}: {shown.of[0]}"
        verdict = " ".join(filled(shown.here, fields, where).split())
        if verdict not in VERDICTS:
            raise InputError(f"{where}: here = {verdict!r}: {suggestion(verdict, VERDICTS)}")
        because = " ".join(filled(shown.because, {**fields, "here": verdict}, where).split())
        cells[shown] = _named(shown.of), shown.says, f"**{verdict}**: {because}"
    return cells


def _opening(texts: Mapping[str, Mapping[Shown, tuple[str, str, str]]]) -> Iterator[str]:
    """The title, what the words mean, and how many rows have which."""
    verdicts = [row[2].split("**")[1] for cells in texts.values() for row in cells.values()]
    yield "# What of five papers comes out"
    yield (
        "Each table and figure of the papers that the testbed's variants, policies and scenarios"
        " are from, and some claims of their sections. Numbers are of the studies' kept runs."
    )
    rows = tuple((word, str(verdicts.count(word)), means) for word, means in VERDICTS.items())
    yield as_markdown(Table("Verdicts", ("verdict", "rows", "what it means"), rows))


def _named(of: Sequence[str]) -> str:
    """Tables and figures, several in a row as "figures 1 to 7"."""
    numbered = [_NUMBERED.fullmatch(one) for one in of]
    kinds, numbers = ([one[group] for one in numbered if one] for group in (1, 2))
    first = int(numbers[0]) if numbers else 0
    in_a_row = [str(number) for number in range(first, first + len(of))]
    if len(of) > 2 and len({*kinds}) == 1 and numbers == in_a_row:
        return f"{kinds[0]}s {first} to {numbers[-1]}"
    return ", ".join(of)


def _order(text: str) -> tuple[bool, str, int, str]:
    """Tables, then figures, then sections, each by number."""
    found = _NUMBERED.match(text)
    if not found:
        return True, "", 0, text
    return False, {"table": "0", "figure": "1"}[found[1]], int(found[2]), text
