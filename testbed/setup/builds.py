"""The cache of builds: keyed by all that went in, there as a whole or not at all.

How something is built is said in tor and kernel.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import InputError, TestbedError
from testbed.setup import cache
from testbed.setup.releases import Release
from testbed.setup.sources import SourceTarball, sha256_of
from testbed.setup.steps import Progress, run_logged

METADATA = "build.json"
# What is still being made has this before its name.
PARTIAL = ".partial."
# A kernel's tree with its objects is the largest thing that is ever unpacked here.
ROOM_BYTES = 3_000_000_000


class Misfit(TestbedError):
    """Raised where the testbed's files do not fit a source: a patch, or the configuration.

    Attributes:
        file: the one that does not.
    """

    def __init__(self, file: Path, text: str) -> None:
        super().__init__(text)
        self.file = file


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

    @property
    def source_sha256(self) -> str:
        """The SHA-256 of the tarball or the tree that it was made of."""
        sha256: str = self.metadata["sources"][0]["sha256"]
        return sha256

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


def first_finished(recipes: Iterable[Recipe]) -> Build | None:
    """Return the build of the first recipe that the cache has a build of."""
    return next(filter(None, map(finished, recipes)), None)


def taking(recipes: Iterable[Recipe], sha256: str) -> Recipe:
    """Return the recipe that takes a source.

    Raises:
        TestbedError: none does, as the source is another one by now.
    """
    for recipe in recipes:
        if recipe.sources[0].sha256 == sha256:
            return recipe
    raise TestbedError("the source was changed while it was built: call the command again")


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
    folder = _folder(recipe)
    # Another process that builds it is shown as if it were us: it is what there is to wait for.
    with cache.locked(_lock(folder), lambda since_s: progress.step(_title(recipe), since_s)):
        if (known := finished(recipe)) is not None:
            return known
        _sweep(folder.parent)
        return _make(recipe, make, progress, room_bytes)


def all_finished() -> list[Build]:
    """Return every finished build of the cache, by name."""
    return [Build(path.parent) for path in sorted(cache.subfolder("builds").glob(f"*/{METADATA}"))]


@functools.cache
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


def tarball_ingredients(release: Release) -> list[Ingredient]:
    """Return the tarballs that a release may be built from, each as an ingredient."""
    return [Ingredient(tarball.names[0], tarball.sha256) for tarball in release.tarballs]


def unpack(tarball: SourceTarball, folder: Path, log: Path, *exclude: str) -> None:
    """Unpack a tarball into a folder, without its outermost folder.

    Raises:
        TestbedError: the tarball has changed since it was fetched, or can't be unpacked.
    """
    if sha256_of(tarball.path) != tarball.sha256:
        raise TestbedError(f"{tarball.path} is damaged: remove it and run ./run.py setup")
    folder.mkdir()
    # Anchored, as tar would otherwise try each pattern at every place of every name.
    patterns = ["--anchored", *(f"--exclude={pattern}" for pattern in exclude)]
    run_logged(
        ["tar", "--extract", "--strip-components=1", *patterns, "--file", str(tarball.path)],
        log,
        folder=folder,
    )


def apply_patch(patch: Path, title: str, folder: Path, log: Path) -> None:
    """Apply a patch to a source's tree, without guessing.

    Args:
        title: the source as messages name it.

    Raises:
        Misfit: it does not fit; names the patch, the source, and the files that it meant.
    """
    # Without fuzz: lines around a change that are unlike the patch's may mean another place.
    arguments = ["patch", "--strip=1", "--batch", "--forward", "--fuzz=0"]
    arguments += ["--input", str(patch.absolute())]
    try:
        run_logged(arguments, log, folder=folder)
    except TestbedError as error:
        unlike = re.findall(r"saving rejects to file (\S+)\.rej", log.read_text(errors="replace"))
        where = f" in {', '.join(unlike)}" if unlike else ""
        text = f"{patch} does not fit {title}{where}: the log is {log}"
        raise Misfit(patch, text) from error


def _folder(recipe: Recipe) -> Path:
    return cache.subfolder("builds") / f"{recipe.name}-{recipe.version}-{recipe.key}"


def _lock(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _partial(folder: Path) -> Path:
    """Where the build is made that will come to a folder."""
    return folder.with_name(PARTIAL + folder.name)


def _sweep(builds: Path) -> None:
    """Remove what interrupted builds left. One whose lock is held is being made at this moment."""
    for path in builds.glob(f"{PARTIAL}*"):
        with cache.lock_if_free(_lock(path.with_name(path.name.removeprefix(PARTIAL)))) as free:
            if free:
                shutil.rmtree(path, ignore_errors=True)


def _make(
    recipe: Recipe, make: Callable[[Path, Path], None], progress: Progress, room_bytes: int
) -> Build:
    folder = _folder(recipe)
    partial = _partial(folder)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < room_bytes:
        raise TestbedError(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB of room, a build needs "
            f"{room_bytes / 1e9:.1f} GB: free some, or set HYDRA_CACHE to another folder"
        )
    shutil.rmtree(partial, ignore_errors=True)  # an interrupted build left it
    partial.mkdir()
    start_s = time.monotonic()
    try:
        with progress.step(_title(recipe)):
            make(partial, cache.new_log(folder.name))
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


def with_patches(title: str, patches: Iterable[Path | Ingredient]) -> str:
    """Return what a build is called: what is built, and with which patch, or how many."""
    names = [patch.name for patch in patches]
    if not names:
        return title
    return f"{title} with {names[0] if len(names) == 1 else f'{len(names)} patches'}"


def _title(recipe: Recipe) -> str:
    return with_patches(f"Building {recipe.name} {recipe.version}", recipe.patches)


def _write_through(folder: Path) -> None:
    """Bring the products to the disk before the rename does, lest a power cut leave empty files."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
