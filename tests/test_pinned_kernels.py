"""Every kernel that is pinned carries out a run, not only the first choice.

Each takes minutes to build, so by name only:
./run.py test -- -n0 -m long tests/test_pinned_kernels.py
"""

from pathlib import Path

import pytest
from machine import run_scenario

from testbed.setup import releases


def others() -> list[str]:
    return [release.version for release in releases.in_order("linux")[1:]]


@pytest.mark.long
@pytest.mark.experiment
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", others())
def test_pinned_kernel_carries_out_a_run(
    version: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "long" not in request.config.option.markexpr:
        pytest.skip("by name only: -m long")
    monkeypatch.setenv("HYDRA_KERNEL", version)
    run = run_scenario(tmp_path, "One", "pctls", 5, timeout_s=3000)
    assert run.manifest["kernel"]["version"] == version
    assert run.summary.valid
