"""The errors that a user meets, each with the exit status of `run.py`."""

from pathlib import Path


class TestbedError(Exception):
    """Something that the testbed can name went wrong; its text is one line for the user."""

    exit_status = 1


def reason_of(error: OSError, place: Path) -> str:
    """What the system refused, such as "/results: No space left on device".

    The error of a write names no file; it was one at `place` then.
    """
    return f"{error.filename or place}: {error.strerror or error}"


class InputError(TestbedError):
    """What the user gave can't be run: names file, key, value and what would be right."""

    exit_status = 2
