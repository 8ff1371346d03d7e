"""HTML pages and their parts, made from plain text, tables and figures.

The report decides what stands on its page, and in which order.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from analysis.plot import Plot
from analysis.table import Table, as_csv

_TEMPLATE = Path(__file__).with_name("page.html")

_LONGEST_NAME = 100
"""The most letters of a name before its hash; two such names and an ending stay below 255."""

_LONG = 40
"""The letters of a cell from which its column is wide, rather than its row high."""

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|s\b|ms\b|[kM]B\b|Mbit/s))")

_NUMBER = re.compile(r"-|[-+]?\d[\d.]*( [±%(].*)?")
"""A cell that is aligned to the right: a number with its deviation and change, or "-"."""


def page(title: str, sections: Sequence[tuple[str, str]], opening: str = "") -> str:
    """A page that needs no other file.

    Args:
        sections: headings, and contents as HTML.
        opening: what stands before the list of contents, as HTML.
    """
    contents = "".join(
        f'<li><a href="#{slug(heading)}">{escape(heading)}</a></li>' for heading, _ in sections
    )
    body = "".join(
        f'<section id="{slug(heading)}"><h2>{escape(heading)}</h2>{content}</section>\n'
        for heading, content in sections
    )
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=plain(title), contents=contents, body=body, opening=opening)


def slug(text: str) -> str:
    """A name for a file or an anchor: letters, digits, underscores and hyphens.

    A long name is cut and ends with a hash: file names have at most 255 bytes, and the description
    of what made runs can be of any length.
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-").lower()
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:8]}"


def subheading(text: str, level: int = 3) -> str:
    """A heading within a section."""
    return f"<h{level}>{plain(text)}</h{level}>"


def paragraph(text: str, link: str = "") -> str:
    """A paragraph of plain text, with a link (HTML) at its end if there is one."""
    return f"<p>{plain(text)}{' ' if link else ''}{link}</p>"


def lead(text: str) -> str:
    """A sentence in large letters, whose first part, up to a colon, stands out."""
    claim, colon, rest = text.partition(": ")
    return f'<p class="lead"><strong>{plain(claim)}</strong>{colon}{plain(rest)}</p>'


def link_to(section: str, words: str) -> str:
    """A link to a section of the page, by its heading."""
    return f'<a href="#{slug(section)}">{plain(words)}</a>'


def plain(text: str) -> str:
    """Plain text as HTML, with units on the lines of their numbers."""
    return escape(_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text))


def items(lines: Iterable[str]) -> str:
    """A list of plain lines; nothing if there are none."""
    return html_items([plain(line) for line in lines])


def html_items(lines: Sequence[str]) -> str:
    """A list of lines that are HTML; nothing if there are none."""
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if lines else ""


def preformatted(text: str) -> str:
    """Text as in a file or on a terminal."""
    return f"<pre>{escape(text)}</pre>"


def folded(summary: str, content: str) -> str:
    """Content (HTML) that a click on its summary shows."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(shown: Table, csv: str) -> str:
    """A table with its title, its note, and a link to its file `csv`."""
    head = "".join(
        _cell("th", heading, all(map(_NUMBER.fullmatch, shown.column(number))))
        for number, heading in enumerate(shown.columns)
    )
    rows = "\n".join(
        f"<tr>{''.join(_cell('td', text, bool(_NUMBER.fullmatch(text))) for text in row)}</tr>"
        for row in shown.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(shown.heading)}">'
        f"<table><caption>{escape(shown.heading)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
        f'<p class="note">{escape(shown.note)} {_link(csv, "CSV")}</p>'
    )


def _cell(tag: str, text: str, is_number: bool) -> str:
    kind = ' scope="col"' if tag == "th" else ""
    if is_number or len(text) > _LONG:
        kind += f' class="{"number" if is_number else "long"}"'
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def figure(plot: Plot, number: int, png: Path, svg: Path) -> str:
    """A figure, with its SVG in the page and links to its files.

    A box to tick makes it larger, in a frame that scrolls; it needs no script.
    """
    name, narrow = slug(plot.name), plot.narrow_svg()
    for_telephones = (
        f'<source media="(max-width: 40rem)" srcset="{_data(narrow)}">' if narrow else ""
    )
    return (
        f'<figure id="{name}"><input type="checkbox" class="zoom" id="{name}-larger">'
        f'<label for="{name}-larger">Enlarge figure {number}</label>'
        f'<div class="frame" tabindex="0" role="group" aria-label="Figure {number}"><picture>'
        f'{for_telephones}<img alt="{escape(plot.alternative)}" src="{_data(svg.read_bytes())}">'
        f"</picture></div>"
        f"<figcaption><b>Figure {number}: {plain(plot.title)}.</b> {plain(plot.caption)}"
        f" {_link(png.name, 'PNG')} {_link(svg.name, 'SVG')}</figcaption></figure>"
    )


def _data(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"


@dataclass
class Folder:
    """A page's folder: writes tables and figures there, and returns them as HTML.

    Attributes:
        figures: the number of figures so far.
        made_by: what made the runs of the next tables and figures, if others stand apart.
    """

    path: Path
    figures: int = 0
    made_by: str = ""

    def table(self, shown: Table) -> str:
        """Write a table's file, and return the table as HTML."""
        shown = replace(shown, made_by=shown.made_by or self.made_by)
        name = f"{slug(shown.heading)}.csv"
        (self.path / name).write_text(as_csv(shown), encoding="utf-8")
        return table(shown, name)

    def folded_table(self, shown: Table) -> str:
        """Write a table's file, and return the table as HTML that a click on its title shows."""
        heading = replace(shown, made_by=shown.made_by or self.made_by).heading
        return folded(heading, self.table(shown))

    def figure(self, plot: Plot) -> str:
        """Write a figure's files, and return it as HTML with the next number."""
        self.figures += 1
        if self.made_by:
            plot = replace(
                plot,
                name=f"{plot.name}-{slug(self.made_by)}",
                title=f"{plot.title} ({self.made_by})",
            )
        return figure(plot, self.figures, *plot.save(self.path))


def _link(file: str, words: str) -> str:
    return f'<a href="{quote(file)}">{words}</a>'
