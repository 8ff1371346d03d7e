"""Breaks the lines of a Markdown page's paragraphs again, as fields are of any length."""

import re
import textwrap

WIDTH = 120
_KEPT = "\N{NO-BREAK SPACE}"
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_NO_PARAGRAPH = ("|", "#", ">", "-", "<", "!", "`", " ")


def wrapped(text: str) -> str:
    """The page with its paragraphs' lines as long as they may be; all else stays."""
    parts = _FENCED.split(text)
    parts[::2] = [_wrapped(part) for part in parts[::2]]
    return "".join(parts)


def _wrapped(text: str) -> str:
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    filled = "\n\n".join(
        block if block.startswith(_NO_PARAGRAPH) else _filled(block) for block in blocks
    )
    before, after = (
        "\n" * min(2, len(text) - len(cut)) for cut in (text.lstrip("\n"), text.rstrip("\n"))
    )
    return f"{before}{filled}{after}" if filled else before


def _filled(paragraph: str) -> str:
    """The paragraph in lines; a number stays with its percent sign."""
    text = " ".join(paragraph.split()).replace(" %", f"{_KEPT}%")
    filled = textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return filled.replace(_KEPT, " ")
