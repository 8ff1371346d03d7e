"""The memory by which kernels share a clock, with processes instead of kernels.

They are linked with the kernel patch's own code for meetings. `test_several_kernels` has real ones.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.basics.toml_file import PROJECT
from testbed.machines.shared_clock import (
    NEVER_NS,
    ClockShare,
    CrossLink,
    header,
    lookaheads_ns,
    ring_bytes,
    shared_clock,
)
from testbed.machines.together import shared_out

PATCH = PROJECT / "testbed/machines/kernel/0012-um-one-clock.patch"
PROGRAM = Path(__file__).with_name("kernels_as_processes.c")
STOP_NS = 500_000_000
MS = 1_000_000


def ring(kernels: int, *, uneven: bool = True) -> list[CrossLink]:
    """Links from each kernel to the next, with other delays back."""
    return [
        CrossLink(
            (one, (one + 1) % kernels), (2 * MS + one * 700_000 * uneven, 3 * MS - one * 100_000)
        )
        for one in range(kernels)
    ]


def new_files(patch: str) -> dict[str, str]:
    """The files that a patch adds, by name."""
    found = {}
    for part in patch.split("\n--- /dev/null\n+++ b/")[1:]:
        path, _, lines = part.partition("\n")
        added = [line[1:] for line in lines.splitlines() if line.startswith("+")]
        found[Path(path).name] = "\n".join([*added, ""])
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`kernels_as_processes`, with the files of the patch."""
    folder = tmp_path_factory.mktemp("processes")
    for name, text in new_files(PATCH.read_text(encoding="utf-8")).items():
        (folder / name).write_text(text)
    made = folder / "processes"
    sources = [str(PROGRAM), str(folder / "ttwin_user.c")]
    command = ["cc", "-D_GNU_SOURCE", "-O2", "-Wall", f"-I{folder}", "-o", str(made), *sources]
    subprocess.run(command, check=True)
    return made


def hashes(
    program: Path, kernels: int, links: Sequence[CrossLink], cores: int, stop_ns: int = STOP_NS
) -> tuple[str, int, tuple[int, ...]]:
    """What each process saw, how often they met, and the windows of each."""
    with shared_clock(kernels, links, 2**20) as clock:
        path = clock.of(0).option.partition(":")[2]
        done = subprocess.run(
            [program, path, str(cores), str(stop_ns)],
            pass_fds=[clock.of(0).descriptor],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout
        met = clock.meetings()
    return done.stdout, met.meetings, met.windows


@pytest.mark.parametrize("kernels", [2, 3, 8])
def test_in_windows_the_same_happens_as_one_after_the_other(program: Path, kernels: int) -> None:
    expected, none, _ = hashes(program, kernels, ring(kernels), cores=0)
    assert none == 0
    assert len(set(expected.split())) == kernels
    on_one = hashes(program, kernels, ring(kernels), cores=1)
    on_all = hashes(program, kernels, ring(kernels), cores=len(os.sched_getaffinity(0)))
    assert on_one[0] == expected
    assert on_one == on_all


def test_windows_are_as_long_as_the_shortest_delay_allows(program: Path) -> None:
    _, often, _ = hashes(program, 2, [CrossLink((0, 1), (2 * MS, 2 * MS))], cores=1)
    _, seldom, _ = hashes(program, 2, [CrossLink((0, 1), (20 * MS, 20 * MS))], cores=1)
    assert STOP_NS / (4 * MS) < often <= STOP_NS / (2 * MS) + 2
    assert seldom < often / 4


def test_kernels_without_links_meet_once_and_run_to_their_end(program: Path) -> None:
    expected, _, _ = hashes(program, 3, [], cores=0)
    assert hashes(program, 3, [], cores=1) == (expected, 2, (1, 1, 1))


@pytest.mark.long
@pytest.mark.parametrize(("kernels", "cores"), [(2, 1), (2, 2), (8, 2), (16, 2), (64, 2)])
def test_a_meeting_takes_microseconds(
    program: Path, kernels: int, cores: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print the wall time of a meeting: that of some 10,000 with hardly any work between them."""
    links = [CrossLink((0, one), (1000, 1000)) for one in range(1, kernels)]
    start_s = time.monotonic()
    _, meetings, _ = hashes(program, kernels, links, cores, stop_ns=10 * STOP_NS // kernels)
    took_s = (time.monotonic() - start_s) / meetings
    with capsys.disabled():
        print(f"\n{kernels} kernels on {cores} cores: {took_s * 1e6:.0f} us for each meeting")
    assert took_s < 0.01


def test_the_nearest_of_all_links_to_a_kernel_counts() -> None:
    links = [CrossLink((0, 1), (50, 60)), CrossLink((1, 0), (40, 70)), CrossLink((1, 2), (5, 90))]
    assert lookaheads_ns(4, links) == [40, 50, 5, NEVER_NS]


@pytest.mark.parametrize(
    ("kernels", "links", "said"),
    [
        (0, [], "0 kernels"),
        (65, [], "65 kernels"),
        (2, [CrossLink((0, 2), (5, 5))], "joins two of the 2 kernels"),
        (2, [CrossLink((1, 1), (5, 5))], "joins two of the 2 kernels"),
        (2, [CrossLink((0, 1), (5, 0))], "at least 1 ns"),
        (2, [CrossLink((0, 1), (5, 5))] * 4097, "4097 links"),
    ],
)
def test_what_cant_be_is_refused(kernels: int, links: list[CrossLink], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        header(kernels, links, 2**20)


def test_rings_of_many_kernels_are_smaller() -> None:
    assert [ring_bytes(kernels) >> 20 for kernels in (1, 2, 4, 8, 64)] == [64, 64, 64, 16, 8]


def test_the_option_is_as_long_in_every_run() -> None:
    assert ClockShare(1, 7).option == "ttwin=1:" + "/proc/self/fd/7".rjust(32, "/")
    assert len(ClockShare(1, 7).option) == len(ClockShare(1, 123).option)


def test_each_load_goes_to_the_core_that_has_least() -> None:
    assert shared_out([0, 0, 0], 2) == [0, 1, 0]
    assert shared_out([1, 5, 3, 2], 2) == [0, 0, 1, 1]
    assert shared_out([1, 1, 1], 2) == [0, 1, 0]
    assert shared_out([1, 1], 1) == [0, 0]
