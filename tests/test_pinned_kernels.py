"""Every pinned kernel, not only the first choice, can carry out a run.

Each takes minutes to build, so these tests run only when named:
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
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_KERNEL", version)
    run = run_scenario(tmp_path, "One", "pctls", 5, timeout_s=3000)
    assert run.manifest["kernel"]["version"] == version
    assert run.summary.valid
