"""Options that several commands share, and types of arguments."""

import argparse
import tomllib
from collections.abc import Callable
from datetime import date, time
from pathlib import Path

from testbed.basics.toml_file import Value

STATUS = "exit status: 0 valid, 1 failed, 2 bad input, 3 the run's premise failed"


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the scenario, the one argument without dashes."""
    parser.add_argument("scenario", help="a name (see list) or a .toml file")


def add_variant(parser: argparse.ArgumentParser) -> None:
    """Add `--variant`."""
    parser.add_argument(
        "--variant",
        default="vanilla",
        help='a name (see list), with values for its parameters, or a .toml file; "+" combines:'
        " 'mctor(k=4)+vegas' (default: vanilla)",
    )


def add_seed(parser: argparse._ActionsContainer, what: str) -> None:
    """Add `--seed`, whose help begins with `what`."""
    parser.add_argument("--seed", type=int, default=1, help=f"{what} (default: 1)")


def add_traffic(parser: argparse.ArgumentParser) -> None:
    """Add `--traffic`."""
    parser.add_argument("--traffic", help="a traffic model instead of the scenario's")


def add_duration(parser: argparse.ArgumentParser) -> None:
    """Add `--duration`."""
    parser.add_argument(
        "--duration",
        help="instead of the scenario's, such as '90 s'; a bare number is seconds",
    )


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, which changes values of the scenario."""
    parser.add_argument(
        "--set",
        type=_change,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value of the scenario's file, such as 'links.middle-exit.loss=0.2 %%';"
        " may be repeated",
    )


def add_across(parser: argparse.ArgumentParser) -> None:
    """Add `--across`, which has several values where `--set` has one."""
    parser.add_argument(
        "--across",
        type=_values,
        metavar="KEY=VALUE,VALUE,...",
        help="compare these values of the scenario's file, too: all are held against the first"
        " variant with the first value, such as 'links.middle-exit.loss=0.1 %%,0.2 %%'",
    )


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add the directory that holds many runs."""
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="a directory with runs below it"
    )


def add_mixed(parser: argparse.ArgumentParser) -> None:
    """Add `--mixed`."""
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="put runs together even if different Tors, kernels or testbeds made them",
    )


def add_formats(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the output formats beside tables, at most one of which can be chosen."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, not tables")
    formats.add_argument("--csv", action="store_true", help="print CSV, not tables")
    return formats


def whole(least: int) -> Callable[[str], int]:
    """The type of a whole number with a least value."""

    def whole_number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'"{text}" is not a whole number') from None
        if found < least:
            raise argparse.ArgumentTypeError(f"{found} is below {least}")
        return found

    return whole_number


def number(least: float, most: float, *, above: bool = False) -> Callable[[str], float]:
    """The type of a number from a least, or above it, to a greatest."""
    wanted = f"above {least:g} and at most {most:g}" if above else f"from {least:g} to {most:g}"

    def in_range(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number') from None
        if not least <= found <= most or (above and found == least):
            raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
        return found

    return in_range


def duration_s(text: str) -> float:
    """The type of a duration, in seconds."""
    from testbed.basics import units

    try:
        return units.duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from error


def _change(text: str) -> tuple[str, Value]:
    """The type of KEY=VALUE; a value that isn't TOML is a text."""
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise argparse.ArgumentTypeError(f'"{text}" is not KEY=VALUE')
    return key.strip(), _value(text, value)


def _values(text: str) -> tuple[str, list[Value]]:
    """The type of KEY=VALUE,VALUE,…, with two different values or more."""
    key, _, values = text.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not key.strip() or not all(parts) or len(set(parts)) < max(2, len(parts)):
        raise argparse.ArgumentTypeError(
            f'"{text}" is not KEY=VALUE,VALUE,... with two different values or more'
        )
    return key.strip(), [_value(text, part) for part in parts]


def _value(text: str, value: str) -> Value:
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        read = value.strip()
    if isinstance(read, date | time):  # a consensus, say, whose name is its date
        read = value.strip()
    if not isinstance(read, bool | int | float | str):
        raise argparse.ArgumentTypeError(
            f'"{text}": the value must be a number, a text, true or false'
        )
    return read
