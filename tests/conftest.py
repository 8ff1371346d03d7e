"""What holds for all tests: those that need root are skipped without it."""

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures are made."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
