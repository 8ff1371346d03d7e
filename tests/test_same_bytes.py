"""The same seed, the same bytes: real runs of one plan by other users, in other places, at once.

They differ on purpose in what belongs to a host: paths and their depth, the cache, variables,
locale, time zone, umask, user, load, cores, the times of files. `docs/determinism.md` says what is
promised.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machine import OWN_MOUNTS, refused_memory
from rich.console import Console

from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.basics.toml_file import PROJECT
from testbed.inside.tor.bootstrap import NETWORK
from testbed.machines import guest
from testbed.results import Run, read_run
from testbed.results.tables import SCHEMAS
from testbed.runs import runner
from testbed.setup import builds, environment, processor

pytestmark = [pytest.mark.experiment, pytest.mark.timeout(1200)]

SCENARIO = ("scenario", "One", "--variant", "pctls", "--duration", "4 s", "--seed", "2")
OTHER_USER = 54_321
COPIED = (
    *("run.py", "requirements.txt", "pyproject.toml"),
    *("analysis", "commands", "flashflow", "salsa", "study", "studies"),
    *("scenarios", "topologies", "tor-configs"),
)


@dataclass
class Place:
    """A checkout with a cache of its own, somewhere.

    Attributes:
        before: a command that runs the one after it.
        variables: environment variables beside those of every user.
    """

    project: Path
    cache: Path
    before: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, out: Path, *options: str) -> Run:
        """Carry the scenario out as a user would; the run must be valid."""
        done = subprocess.run(
            [
                *self.before,
                str(environment.SYSTEM_PYTHON),
                "run.py",
                *SCENARIO,
                "--out",
                str(out),
                *options,
            ],
            cwd=self.project,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.cache),
                "HYDRA_CACHE": str(self.cache),
                **self.variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return read_run(out)


@pytest.fixture(scope="module")
def here() -> Place:
    return Place(PROJECT, cache.cache_folder())


@pytest.fixture(scope="module")
def first(here: Place, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return here.run(tmp_path_factory.mktemp("first") / "run")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are private."""
    folder = Path("/tmp", f"same-bytes-{secrets.token_hex(8)}")
    folder.mkdir()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def there(elsewhere: Path) -> Place:
    """Another place, with its own umask, cores, locale and variables."""
    place = moved(elsewhere / "one")
    place.before = ["sh", "-c", 'umask 077; exec taskset --cpu-list 0 "$@"', "sh"]
    place.variables = {
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Asia/Kathmandu",
        "PYTHONHASHSEED": "7",
        "A_LONG_VARIABLE": "x" * 3000,
    }
    return place


def moved(folder: Path) -> Place:
    """A copy of this checkout and of its cache, except for bootstrapped networks."""
    project = folder / "a place of its own" / "deeper" / "and, deeper" / "hydra"
    shutil.copytree(
        PROJECT / "testbed", project / "testbed", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in COPIED:
        subprocess.run(["cp", "--recursive", PROJECT / name, project], check=True)
    for path in project.rglob("*.py"):
        os.utime(path, (1e9, 1e9))
    there = folder / "cache"
    for kind in ("builds", "environments", "sources"):
        (there / kind).mkdir(parents=True)
    own = environment.environment_folder(PROJECT)
    kept = [build.folder for build in builds.all_finished() if build.metadata["name"] != "network"]
    for path in [own, *kept]:
        target = there / path.relative_to(cache.cache_folder())
        subprocess.run(["cp", "--archive", path, target], check=True)
    return Place(project, there)


def carried_out(out: Path, variant: str) -> Run:
    """A run by this process, so a test can replace parts of it."""
    plan = make_plan("One", variant, seed=2, duration="4 s")
    runner.carry_out(plan, out, Console(stderr=True), lambda _step: None)
    return read_run(out)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep all cores busy within the context."""
    programs = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def assert_equal(one: Run, other: Run) -> None:
    """Compare all files, not only fingerprints, which are made by the code under test."""
    for name in SCHEMAS:
        files = [run.directory / f"{name}.parquet" for run in (one, other)]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    assert one.manifest["fingerprint"] == other.manifest["fingerprint"]
    assert one.summary.model_dump(exclude={"cost"}) == other.summary.model_dump(exclude={"cost"})


def test_two_at_once_in_two_places(here: Place, there: Place, tmp_path: Path) -> None:
    """Each has its own checkout, cache, variables, umask and cores; one bootstraps its network."""
    with busy_cores(), ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(place.run, tmp_path / name)
            for place, name in ((here, "short"), (there, "a name that is rather longer"))
        ]
        one, other = (run.result() for run in runs)
    assert_equal(one, other)


@pytest.mark.root
def test_two_users(first: Run, elsewhere: Path) -> None:
    there = moved(elsewhere / "another's")
    ids = [f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
    own = elsewhere / "another's"
    subprocess.run(["chown", "--recursive", f"{OTHER_USER}:{OTHER_USER}", own], check=True)
    there.before = ["setpriv", *ids]
    assert_equal(first, there.run(own / "run"))


@pytest.mark.usefixtures("own_mounts")
def test_another_host(first: Run, elsewhere: Path) -> None:
    """It has other Python packages, another /etc, own programs and settings, more locales.

    The guest's root is the host's, and what a program finds there can change what it does next.
    """
    there = moved(elsewhere / "on another host")
    own = elsewhere / "of another host"
    own.mkdir()
    there.before = [*OWN_MOUNTS, str(PROJECT / "tests" / "another-host.sh"), str(own)]
    assert_equal(first, there.run(elsewhere / "run of another host"))


def test_a_host_that_refuses_mappings(here: Place, first: Run, tmp_path: Path) -> None:
    """How many mappings a process may have differs between hosts."""
    with refused_memory(limit_mb=24):
        other = here.run(tmp_path / "run")
    assert_equal(first, other)


def test_a_patch_in_another_place(tmp_path: Path) -> None:
    far = tmp_path / "a folder" / ("whose name is long " * 10)
    shutil.copytree(PROJECT / "docs" / "examples", far)
    variants = [PROJECT / "docs" / "examples" / "no-delay.toml", far / "no-delay.toml"]
    assert_equal(
        *(
            carried_out(tmp_path / str(number), str(variant))
            for number, variant in enumerate(variants)
        )
    )


def test_another_seed_is_another_run(here: Place, first: Run, tmp_path: Path) -> None:
    """Even if only one bit of the seed differs."""
    other = here.run(tmp_path / "run", "--seed", "3")
    assert other.manifest["fingerprint"] != first.manifest["fingerprint"]


def test_entropy_of_the_host_shows(
    first: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tests here rest on this: they would fail if chance got in."""
    monkeypatch.setattr(guest, "derived_seed", lambda *_of, **_kind: secrets.randbits(64))
    other = carried_out(tmp_path / "run", "pctls")
    with pytest.raises(AssertionError):
        assert_equal(first, other)


def test_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without some of this one's features, libraries run other code, and have other page faults.

    If the guest didn't say which features to use, runs would differ. Even the length of what it
    says matters.
    """
    of_others = (*processor.NOT_USED, "ERMS", "FSRM", "RTM", "XSAVE", "XSAVEC")
    nothing = tuple("X" * len(name) for name in of_others)
    variables, runs = processor.VARIABLES, []
    for number, lacking in enumerate((of_others, nothing)):
        tunables = variables["GLIBC_TUNABLES"] + "".join(f",-{name}" for name in lacking)
        others = {**variables, "GLIBC_TUNABLES": tunables}
        monkeypatch.setattr(processor, "VARIABLES", others)
        runs.append(carried_out(tmp_path / str(number), "pctls"))
    assert_equal(*runs)


def test_a_damaged_network_is_made_again(there: Place, first: Run, tmp_path: Path) -> None:
    """The bytes don't depend on what is in a cache."""
    assert_equal(first, there.run(tmp_path / "before"))
    (network,) = (there.cache / "builds").glob(f"network-two_clients-*/{NETWORK}")
    whole = network.read_bytes()
    network.write_bytes(whole[:-1] + b"x")
    assert_equal(first, there.run(tmp_path / "after"))
    assert network.read_bytes() == whole
