"""The overview of papers: a row for each of their tables and figures, and whether it comes out.

Which tables and figures a paper has is in studies/papers.toml. The rows are in the studies'
`shown.toml`. Verdicts follow from comparisons of published numbers with what the study keeps
(`study.verdicts`), except of what isn't measured here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from analysis.table import Table, as_markdown
from study.expressions import filled
from study.folder import Study, find_study, names
from study.kept import unpacked
from study.page import made_of
from study.paragraphs import wrapped
from study.verdicts import DIFFERS, NOT_MADE, OPEN, REPRODUCED, RULES, Compared, together
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Text, label, read_model, suggestion
from testbed.batch.batch_file import STUDIES

PAPERS = STUDIES / "papers.toml"
HEAD = "<!-- `./run.py reference papers` makes this page from shown.toml files and kept runs. -->\n"
TYPED = {
    "not here": "it can't be measured here",
    "no measurement": "it shows nothing that was measured",
}
"""The verdicts that a row may state itself."""
VERDICTS = {
    REPRODUCED: "it comes out here, too",
    DIFFERS: "it comes out otherwise",
    OPEN: "what was measured doesn't decide it",
    NOT_MADE: "nothing of it was measured",
    **TYPED,
}
"""What a row says of a table or figure, and what that means."""
UNKNOWN_CAUSE = "we don't know why"

Row = tuple[str, str, str, str]
"""The cells of a row, as Markdown."""

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
    """A row: what of the paper it is about, what that says, and what comes out of it.

    It has either comparisons, from which its verdict follows, or a verdict of `TYPED`. `numbers`,
    `because` and `see` are templates with the fields of the study's page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: tuple[Text, ...] = Field(min_length=1)
    """Tables, figures or sections: "figure 10", "figure 14a", "section 3"."""
    says: Text
    here: str = ""
    compared: tuple[Compared, ...] = ()
    numbers: str = ""
    """What was measured, beside what was published; shown as soon as there is any of it."""
    because: str = ""
    """Why it isn't measured; with comparisons why they differ, shown only if they do."""
    see: str = ""
    """Where more of it stands: "[here](../studies/hydra/README.md)"."""

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
        columns = ("table or figure", "what it says", "here", "by")
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


def _filled(study: Study, rows: Mapping[str, Sequence[tuple[Study, Shown]]]) -> dict[Shown, Row]:
    """The cells of a study's rows, filled with what it keeps."""
    own = [shown for some in rows.values() for its, shown in some if its.name == study.name]
    if not own:
        return {}
    kept = unpacked(study) if study.kept.is_file() else nullcontext(Path(study.folder / "none"))
    with kept as folder:
        fields = made_of(study, folder).names
    return {shown: cells_of(shown, fields, f"{label(study.shown)}: {shown.of[0]}") for shown in own}


def cells_of(shown: Shown, fields: Mapping[str, object], place: str) -> Row:
    """A row's cells, filled; the last says by which rules it is compared."""
    check_verdict(shown, place)
    compared = [one for of in shown.compared for one in of.verdicts(fields, place)]
    verdict = shown.here or together(compared)
    cause = shown.because or UNKNOWN_CAUSE
    if shown.compared:
        shows = [shown.numbers] if verdict != NOT_MADE else []
        reasons = [*shows, cause] if verdict == DIFFERS else shows
    else:
        reasons = [shown.because]
    text = ": ".join(_line(one, fields, place) for one in (f"**{verdict}**", *reasons) if one)
    see = f" ({_line(shown.see, fields, place)})" if shown.see else ""
    rules = dict.fromkeys(one.within for one in shown.compared)
    return _named(shown.of), shown.says, text + see, ", ".join(rules)


def check_verdict(shown: Shown, place: str) -> None:
    """Check that a row's verdict follows from comparisons, or is one that needs none.

    Raises:
        InputError: it is typed and may not be, or there are both, or neither.
    """
    if shown.here and shown.here not in TYPED:
        known = suggestion(shown.here, TYPED)
        raise InputError(f"{place}: here = {shown.here!r}: {known}; others follow from compared")
    if bool(shown.here) == bool(shown.compared):
        raise InputError(f"{place}: it needs either compared, or here with one of {[*TYPED]}")
    if shown.here and not shown.because:
        raise InputError(f"{place}: here = {shown.here!r} needs a reason: because")


def _line(template: str, fields: Mapping[str, object], place: str) -> str:
    """A template, filled, on one line."""
    return " ".join(filled(template, fields, place).split())


def _opening(texts: Mapping[str, Mapping[Shown, Row]]) -> Iterator[str]:
    """The title, what the words mean, and how many rows have which."""
    verdicts = [row[2].split("**")[1] for cells in texts.values() for row in cells.values()]
    yield "# Which results of the papers hold here"
    yield (
        "Each table and figure of the papers that the testbed's variants, policies and scenarios"
        " are from, and some claims of their sections. Numbers are of the studies' kept runs."
    )
    rows = tuple((word, str(verdicts.count(word)), means) for word, means in VERDICTS.items())
    yield as_markdown(Table("Verdicts", ("verdict", "rows", "what it means"), rows))
    yield "Verdicts follow from comparisons, by one of these rules; a row is reproduced if all are:"
    rules = tuple(RULES.items())
    yield as_markdown(Table("Rules", ("by", "the published number is reproduced if"), rows=rules))


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
