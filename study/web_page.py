"""A study's page as one HTML file: its text, its tables, and its figures, which can be enlarged.

It needs neither network nor script. Figures as PNG and SVG, and tables as CSV, lie beside it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from analysis import page
from analysis.plot import Plot
from study.folder import Study
from study.page import HEAD, Page
from testbed.basics.errors import InputError

Section = tuple[str, str]
"""A heading, and the content as HTML."""

_READER = MarkdownIt("commonmark", {"html": False}).enable("table")


def write_web_page(study: Study, made: Page, file: Path) -> None:
    """Write a study's page as HTML, with its figures and tables beside it.

    Raises:
        InputError: it can't be written, or isn't named .html.
    """
    if file.suffix != ".html":
        raise InputError(f"--out {file}: give a file that ends in .html")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for name, text in made.files.items():
            (file.parent / name).write_text(text, encoding="utf-8", newline="")
        file.write_text(_html(study, made, file.parent), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {file}: {error.filename}: {error.strerror}") from error


def _html(study: Study, made: Page, folder: Path) -> str:
    tokens = _READER.parse(made.text.removeprefix(HEAD.format(template=study.template.name)))
    title = study.keys.question
    if tokens[:1] and tokens[0].tag == "h1":
        title, tokens = tokens[1].content, tokens[3:]
    for token in tokens:
        for inline in token.children or ():
            _lead_elsewhere(inline, study.folder, folder, made.files)
    _name_tables(tokens)
    if tokens[:1] and tokens[0].type == "paragraph_open":
        tokens[0].attrSet("class", "lead")
    plots = {f"{plot.name}.png": plot for plot in made.plots}
    shown = page.Folder(folder)
    (_, opening), *sections = (
        (heading, "".join(_rendered(some, plots, shown))) for heading, some in _sections(tokens)
    )
    return page.page(title, sections, opening)


def _sections(tokens: Sequence[Token]) -> Iterator[tuple[str, Sequence[Token]]]:
    """The parts of a page by their headings; the first, without one, is its opening."""
    begins = [number for number, token in enumerate(tokens) if _begins_section(token)]
    yield "", tokens[: begins[0] if begins else None]
    for begin, end in zip(begins, [*begins[1:], len(tokens)], strict=True):
        yield tokens[begin + 1].content, tokens[begin + 3 : end]


def _begins_section(token: Token) -> bool:
    return token.type == "heading_open" and token.tag == "h2"


def _rendered(
    tokens: Sequence[Token], plots: Mapping[str, Plot], folder: page.Folder
) -> Iterator[str]:
    """The HTML of some tokens; a figure of the study takes the place of its image's paragraph."""
    begin = 0
    for number in range(len(tokens)):
        if plot := _only_image(tokens[number : number + 3], plots):
            yield _READER.renderer.render(tokens[begin:number], _READER.options, {})
            yield folder.figure(plot)
            begin = number + 3
    yield _READER.renderer.render(tokens[begin:], _READER.options, {})


def _only_image(tokens: Sequence[Token], plots: Mapping[str, Plot]) -> Plot | None:
    """The figure of a paragraph that has nothing but an image of it."""
    if len(tokens) < 3 or tokens[0].type != "paragraph_open":
        return None
    children = tokens[1].children or []
    if [child.type for child in children] != ["image"]:
        return None
    return plots.get(str(children[0].attrGet("src")))


def _lead_elsewhere(token: Token, source: Path, folder: Path, beside: Mapping[str, object]) -> None:
    """Let a link to a file of the project lead there from the page's folder."""
    address = token.attrGet("href")
    parts = urlsplit(str(address or "#"))
    if parts.scheme or not parts.path or parts.path in beside:
        return
    way = os.path.relpath(source / parts.path, folder.resolve())
    token.attrSet("href", f"{way}#{parts.fragment}" if parts.fragment else way)


def _name_tables(tokens: Sequence[Token]) -> None:
    """Give tables a frame that scrolls, with a name, and say what their heads and numbers are."""
    numbers = count(1)
    for token in tokens:
        if token.type == "table_open":
            token.hidden, token.type = False, "html_block"
            token.content = (
                '<div class="scroll" tabindex="0" role="region"'
                f' aria-label="Table {next(numbers)}">\n<table>\n'
            )
        elif token.type == "table_close":
            token.type, token.content = "html_block", "</table></div>\n"
        elif token.type in ("th_open", "td_open"):
            if token.type == "th_open":
                token.attrSet("scope", "col")
            if token.attrs.pop("style", "") == "text-align:right":
                token.attrSet("class", "number")
