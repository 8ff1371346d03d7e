"""The limits of CONTRIBUTING.md: how long a Python file and a function may be."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.basics.toml_file import PROJECT

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 50
"""From `def` to the last line, including the docstring."""

DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.Tuple)


def python_files() -> list[Path]:
    """The Python files that git tracks."""
    command = ["git", "-c", f"safe.directory={PROJECT}", "ls-files", "-z", "*.py"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    files = [PROJECT / name for name in done.stdout.split("\0") if name]
    return [file for file in files if file.exists()]


def too_long(name: str, text: str) -> Iterator[str]:
    """Each limit that a file breaks, as a line for people."""
    lines = len(text.splitlines())
    if lines > MOST_LINES_OF_A_FILE:
        yield f"{name}: {lines} lines"
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION and not is_list_of_data(function):
                yield f"{name}: {function.name}: {lines} lines"


def is_list_of_data(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function only returns one list, tuple, set or dict, written out.

    Before that it may have a docstring and name constants.
    """
    *before, last = function.body
    return (
        isinstance(last, ast.Return)
        and isinstance(last.value, DISPLAYS)
        and all(
            isinstance(each, ast.Assign | ast.Expr) and isinstance(each.value, ast.Constant)
            for each in before
        )
    )


def test_no_file_and_no_function_is_too_long() -> None:
    broken = [
        line
        for file in python_files()
        for line in too_long(str(file.relative_to(PROJECT)), file.read_text(encoding="utf-8"))
    ]
    assert not broken, "\n".join(["too long:", *broken])


FILLING = "    number += 1\n" * MOST_LINES_OF_A_FUNCTION
ROWS = "        1,\n" * MOST_LINES_OF_A_FUNCTION


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (f"def count(number):\n{FILLING}", ["x.py: count: 51 lines"]),
        (f"async def count(number):\n{FILLING}", ["x.py: count: 51 lines"]),
        (f"class Of:\n    def rows(self):\n        self.one()\n        return [\n{ROWS}]", True),
        (f'def rows():\n    """Many."""\n    one = 1\n    return [\n{ROWS}    ]', []),
        (f"def rows():\n    one = two()\n    return [\n{ROWS}    ]", True),
        (f"def rows():\n    return fill([\n{ROWS}    ])", True),
        ("\n" * (MOST_LINES_OF_A_FILE + 1), ["x.py: 401 lines"]),
        (f"ROWS = [\n{ROWS}]\n", []),
    ],
)
def test_what_breaks_a_limit(text: str, broken: list[str] | bool) -> None:
    found = list(too_long("x.py", text))
    assert found == broken if isinstance(broken, list) else len(found) == 1
