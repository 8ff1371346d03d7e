"""The cache of builds: keyed by all that went in, there as a whole or not at all.

How something is built is said in tor and kernel.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from testbed.errors import InputError, TestbedError
from testbed.setup import cache
from testbed.setup.sources import SourceTarball, sha256_of
from testbed.setup.steps import Progress, run_logged

METADATA = "build.json"
# A kernel's tree with its objects is the largest thing that is ever unpacked here.
ROOM_BYTES = 3_000_000_000


@dataclass(frozen=True)
class Ingredient:
    """A file that goes into a build: its name, and the SHA-256 of what is in it."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Recipe:
    """All that decides what a build is. `steps` is raised when the way of building changes."""

    name: str
    version: str
    sources: tuple[Ingredient, ...]
    configuration: str
    compiler: str
    steps: int
    patches: tuple[Ingredient, ...] = field(default=())

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that differ when anything in the recipe does."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Build:
    """A finished build: its folder in the cache, which holds the products and `build.json`."""

    folder: Path

    @property
    def metadata(self) -> dict[str, Any]:
        """What went in, with hashes, and when and how long it was built (`date`, `seconds`)."""
        metadata: dict[str, Any] = json.loads((self.folder / METADATA).read_text(encoding="utf-8"))
        return metadata

    @property
    def key(self) -> str:
        """The key of its recipe."""
        return self.folder.name.rpartition("-")[2]

    def product(self, name: str) -> Path:
        """Return the path of something that was built.

        Raises:
            TestbedError: the build lacks it, so somebody has taken it away.
        """
        path = self.folder / name
        if not path.exists():
            raise TestbedError(f"{path} is missing: remove {self.folder} and run ./run.py setup")
        return path


def finished(recipe: Recipe) -> Build | None:
    """Return the build of a recipe if the cache has it."""
    folder = _folder(recipe)
    return Build(folder) if (folder / METADATA).exists() else None


def build(
    recipe: Recipe,
    make: Callable[[Path, Path], None],
    progress: Progress,
    *,
    room_bytes: int = ROOM_BYTES,
) -> Build:
    """Return the build of a recipe; make it first where the cache has none.

    Args:
        recipe: what to build.
        make: puts the products into the folder it is given, and writes to the log it is given.
            The folder comes into its place only when `make` has returned.
        progress: shows the build.
        room_bytes: what must be free before it begins.

    Raises:
        TestbedError: no room, or whatever `make` raises.
    """
    if (known := finished(recipe)) is not None:
        return known
    builds = cache.subfolder("builds")
    lock = FileLock(builds / f"{recipe.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.say(f"Waiting for another set-up that builds {recipe.name}")
        lock.acquire()
    try:
        if (known := finished(recipe)) is not None:
            return known
        _sweep(builds, recipe.name)
        return _make(recipe, make, progress, room_bytes)
    finally:
        lock.release()


def all_finished() -> list[Build]:
    """Return every finished build of the cache, by name."""
    return [Build(path.parent) for path in sorted(cache.subfolder("builds").glob(f"*/{METADATA}"))]


def compiler_version() -> str:
    """Return the first line of what the C compiler says of itself.

    Raises:
        TestbedError: there is none.
    """
    try:
        answer = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise TestbedError(
            "the C compiler `cc` does not run: `sudo apt-get install build-essential`"
        ) from error
    return answer.stdout.partition("\n")[0]


def ingredient(path: Path) -> Ingredient:
    """Return a file as an ingredient.

    Raises:
        InputError: it can't be read.
    """
    try:
        return Ingredient(path.name, sha256_of(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: a file is needed here") from error


def unpack(tarball: SourceTarball, folder: Path, log: Path, *exclude: str) -> None:
    """Unpack a tarball into a folder, without its outermost folder.

    Raises:
        TestbedError: the tarball has changed since it was fetched, or can't be unpacked.
    """
    path = Path(tarball.path)
    if sha256_of(path) != tarball.sha256:
        raise TestbedError(f"{path} is damaged: remove it and run ./run.py setup")
    folder.mkdir()
    patterns = [f"--exclude={pattern}" for pattern in exclude]
    run_logged(
        ["tar", "--extract", "--strip-components=1", *patterns, "--file", str(path)],
        log,
        folder=folder,
    )


def apply_patch(patch: Path, folder: Path, log: Path) -> None:
    """Apply a patch to a tree, without guessing.

    Raises:
        TestbedError: it does not fit; names the patch.
    """
    arguments = ["patch", "--strip=1", "--batch", "--forward", "--input", str(patch.absolute())]
    try:
        run_logged(arguments, log, folder=folder)
    except TestbedError as error:
        raise TestbedError(f"{patch} does not fit this source: {error}") from error


def _folder(recipe: Recipe) -> Path:
    return cache.subfolder("builds") / f"{recipe.name}-{recipe.version}-{recipe.key}"


def _partial_name(name: str, key: str) -> str:
    return f".partial.{name}.{key}"


def _sweep(builds: Path, name: str) -> None:
    """Remove what an interrupted build left. Its lock is ours, so nobody is building it."""
    for path in builds.glob(_partial_name(name, "*")):
        shutil.rmtree(path, ignore_errors=True)


def _make(
    recipe: Recipe, make: Callable[[Path, Path], None], progress: Progress, room_bytes: int
) -> Build:
    folder = _folder(recipe)
    partial = folder.parent / _partial_name(recipe.name, recipe.key)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < room_bytes:
        raise TestbedError(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB of room, a build needs "
            f"{room_bytes / 1e9:.1f} GB: free some, or set HYDRA_CACHE to another folder"
        )
    partial.mkdir()
    start_s = time.monotonic()
    try:
        with progress.step(_title(recipe)):
            make(partial, cache.new_log(recipe.name))
        metadata = {
            **asdict(recipe),
            "key": recipe.key,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(time.monotonic() - start_s, 1),
        }
        (partial / METADATA).write_text(json.dumps(metadata, indent=2), encoding="utf-8")
        _write_through(partial)
        # A build whose metadata somebody removed is no build; it would be in the way.
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return Build(folder)


def _title(recipe: Recipe) -> str:
    patched = f" with {', '.join(patch.name for patch in recipe.patches)}" if recipe.patches else ""
    return f"Building {recipe.name} {recipe.version}{patched}"


def _write_through(folder: Path) -> None:
    """Bring the products to the disk before the rename does, lest a power cut leave empty files."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
