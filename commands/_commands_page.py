"""The page docs/commands.md, which is made of the commands' docstrings and options."""

import argparse
from collections.abc import Iterator

from commands.__main__ import command_files, docstring, parser

_HEAD = """\
# Commands

What each command does, and its options; `./run.py reference commands` prints this page. A scenario
or variant is a name (`./run.py list`) or the path of a file; variants have
[parameters and can be combined](variants.md#names-and-parameters). Progress and messages go to
standard error, results to standard output; `--json`, where a command has it, prints the results for
programs.

The exit status is 0 if all went well, 1 if something failed, 2 if the input can't be run (one
line says what would be right, and nothing is started), 3 if a run was carried out but its premise
did not hold, and 130 after Ctrl-C, when nothing half-done is left. What else can go wrong:
[reliability.md](reliability.md).

| command | |
|---|---|"""


def commands_markdown() -> str:
    """The page as Markdown: a section for each command, with its examples and its options."""
    files = command_files()
    # All names are given, so that each command has its options.
    (choice,) = (
        action
        for action in parser([*files])._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    texts = {name: docstring(file) for name, file in files.items()}
    rows = [f"| [`{name}`](#{name}) | {text.splitlines()[0]} |" for name, text in texts.items()]
    sections = [
        "\n".join([f"## {name}", "", text, *_options(choice.choices[name])])
        for name, text in texts.items()
    ]
    return "\n\n".join(["\n".join([_HEAD, *rows]), *sections]) + "\n"


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    """A command's arguments and options as a table, and what its exit status means."""
    formatter = command._get_formatter()
    rows = [
        f"| {_name(action)} | {_text(formatter, action)} |"
        for action in command._actions
        if "--help" not in action.option_strings
    ]
    if rows:
        yield from ("", "| option | |", "|---|---|", *rows)
    if command.epilog:
        yield from ("", f"{command.epilog[0].upper()}{command.epilog[1:]}.")


def _name(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest.upper()
    if not action.option_strings:
        return f"`{metavar}`"
    value = "" if action.nargs == 0 else f" {metavar}"
    return " ".join(f"`{option}{value}`" for option in action.option_strings)


def _text(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    """What `--help` says, in which `|` would end a cell of the table."""
    text = formatter._expand_help(action) if action.help else ""
    if action.choices:
        text = f"{text} ({', '.join(map(str, action.choices))})".strip()
    return text.replace("|", r"\|")
