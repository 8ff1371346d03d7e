"""The patches and the configuration fit every kernel that is pinned, not only the default one.

Minutes each, so by name only: ./run.py test -- -n0 -m long tests/test_pinned_kernels.py
"""

import tomllib
from pathlib import Path

import pytest
from machine import run_inside

from testbed.errors import TestbedError
from testbed.setup import sources

RELEASE = "import platform; print('it is', platform.release())"


def others() -> list[str]:
    pins = tomllib.loads(sources.PINS.read_text())
    return [version for version in pins["linux"] if version != pins["default"]["linux"]]


@pytest.mark.long
@pytest.mark.experiment
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", others())
def test_pinned_kernel_builds_and_boots(
    version: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "long" not in request.config.option.markexpr:
        pytest.skip("by name only: -m long")
    monkeypatch.setenv("HYDRA_KERNEL", version)
    try:
        printed = run_inside(RELEASE, tmp_path / "machine")
    except TestbedError as error:
        if "no place has its source" in str(error):
            pytest.skip(str(error))
        raise
    assert f"it is {version}" in printed
