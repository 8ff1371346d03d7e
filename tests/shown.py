"""For tests: the commands that the documents show, in blocks of a shell and inline.

How they are carried out is test_shown_commands's.
"""

import contextlib
import io
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from shown_elsewhere import ELSEWHERE

from commands.__main__ import parser
from testbed.basics.toml_file import PROJECT

DOCUMENTS = sorted(
    path
    for path in [*PROJECT.glob("*.md"), *PROJECT.glob("[!.]*/**/*.md")]
    if not path.relative_to(PROJECT).parts[0].startswith("results")
    and not path.name.endswith("page.md")  # a template: the page is beside it
)
SHELL = "sh"
SHELLS = ("sh", "bash", "shell", "console")
CALL = "./run.py"

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_FIRST_COMMENT = re.compile(r"# (\S+\.toml)\n")
_COMMENT = re.compile(r"(^|\s)#.*$")
_CONTINUED = re.compile(r"\s*\\\n\s*")
_LEFT_OPEN = re.compile(r"…|\b[A-Z]+\b(?!=)|\bpath/")
"""What a reader has to put something in place of."""
_STARTS_A_MACHINE = re.compile(
    r"\./run\.py (scenario|compare|verify|shell|calibrate|bench|batch(?!.*--dry-run)"
    r"|study \w(?!.*--(dry-run|kept)))"
)


def fenced(document: Path) -> Iterator[tuple[str, str]]:
    """A document's fenced blocks: the language of each, and its text."""
    for _, language, text in _FENCED.findall(document.read_text(encoding="utf-8")):
        yield language, textwrap.dedent(text)


def blocks(document: Path, language: str) -> Iterator[str]:
    """The texts of a document's blocks in a language."""
    for found, text in fenced(document):
        if found == language:
            yield text


def toml_blocks() -> list[tuple[str, str]]:
    """The TOML files that the documents show: the name, which the first line says, and the text."""
    found = []
    for document in DOCUMENTS:
        for text in blocks(document, "toml"):
            name = _FIRST_COMMENT.match(text)
            assert name, f"{document.name}: a TOML block without its file's name: {text}"
            found.append((name[1], text))
    return found


def lines(text: str) -> list[str]:
    """A shell's lines, without comments; what goes on in the next line is one."""
    whole = _CONTINUED.sub(" ", text)
    return [line for each in whole.splitlines() if (line := _COMMENT.sub("", each).strip())]


@dataclass(frozen=True)
class Shown:
    """What a document shows to be typed: a block's text, or an inline command.

    Attributes:
        document: where it is, below the project.
        text: without the lines that `ELSEWHERE` has.
    """

    document: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What begins with `CALL`, in the order of the text."""
        return [line for line in lines(self.text) if CALL in line]

    @property
    def starts_a_machine(self) -> bool:
        """Whether one of its commands does."""
        return any(map(_STARTS_A_MACHINE.search, self.commands))

    @property
    def name(self) -> str:
        """For people, and for the test's name."""
        line = (self.commands or lines(self.text))[0]
        return f"{self.document}: {line.replace(f'{CALL} ', '')[:40]}"


def here(shown: Shown) -> Shown:
    """What is left of it when the lines of `ELSEWHERE` are taken out."""
    taken = {line for one in ELSEWHERE for line in one.lines}
    left = [line for line in shown.text.splitlines() if not taken.intersection(lines(line))]
    return replace(shown, text="\n".join(left))


def in_blocks() -> list[Shown]:
    """What the documents' shell blocks have."""
    return [
        Shown(str(document.relative_to(PROJECT)), text)
        for document in DOCUMENTS
        for text in blocks(document, SHELL)
    ]


def inline(document: Path) -> list[str]:
    """What a document has of calls within its sentences, whole commands or not."""
    text = _FENCED.sub("", document.read_text(encoding="utf-8"))
    return [" ".join(found.split()) for found in _INLINE.findall(text) if f"{CALL} " in found]


def elsewhere_in(document: Path) -> str:
    """What a document has beside blocks and code within sentences: nothing there is carried out."""
    return _INLINE.sub("", _FENCED.sub("", document.read_text(encoding="utf-8")))


def is_whole(command: str) -> bool:
    """Whether a command can be typed as it is: nothing in it stands for something else."""
    words = shlex.split(command)
    if CALL not in words:
        return True  # another program's, which gets the call as one word
    return not _LEFT_OPEN.search(command) and understood(words)


def understood(words: Sequence[str]) -> bool:
    """Whether the command line takes these words, of which one is `CALL`."""
    arguments = words[list(words).index(CALL) + 1 :]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser(arguments).parse_args(arguments)
        except SystemExit as end:
            return end.code == 0  # --help
    return True


@cache
def carried_out() -> tuple[Shown, ...]:
    """All that is carried out here, each text once: the blocks, and whole inline commands."""
    found: dict[tuple[str, ...], Shown] = {}
    for block in map(here, in_blocks()):
        found.setdefault(tuple(lines(block.text)), block)
    in_a_block = {
        command.removeprefix("sudo ") for one in found.values() for command in one.commands
    }
    for document in DOCUMENTS:
        for command in inline(document):
            if is_whole(command) and command.removeprefix("sudo ") not in in_a_block:
                one = here(Shown(str(document.relative_to(PROJECT)), command))
                found.setdefault((command,), one)
    return tuple(one for one in found.values() if lines(one.text))


def all_lines() -> set[str]:
    """Every line that the documents show to be typed, in whatever kind of block it stands."""
    found: set[str] = set()
    for document in DOCUMENTS:
        for language, text in fenced(document):
            plain = [line.removeprefix("$ ") for line in lines(text)]
            found.update(line for line in plain if language in SHELLS or CALL in line)
        found.update(filter(is_whole, inline(document)))
    return found
