"""Errors for users, each with its exit status of `run.py`."""

from pathlib import Path


class TestbedError(Exception):
    """An error that the testbed understands; its text is a line for the user."""

    exit_status = 1


def reason_of(error: OSError, place: Path) -> str:
    """Describe an OSError, such as "/results: No space left on device".

    A failed write names no file; then `place` is named.
    """
    return f"{error.filename or place}: {error.strerror or error}"


class InputError(TestbedError):
    """The user's input can't be run; names file, key and value, and what would be right."""

    exit_status = 2
