"""The errors that a user meets, each with the exit status of `run.py`."""


class TestbedError(Exception):
    """Something that the testbed can name went wrong; its text is one line for the user."""

    exit_status = 1


class InputError(TestbedError):
    """What the user gave can't be run: names file, key, value and what would be right."""

    exit_status = 2
