"""The cache of builds: each is keyed by all its inputs, and is there whole or not at all.

How something is built is defined in `tor` and `kernel`.
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

from testbed.basics import cache
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.steps import Progress, run_logged
from testbed.setup.releases import Release
from testbed.setup.sources import SourceTarball, sha256_of

METADATA = "build.json"
# The prefix of an unfinished build's name.
PARTIAL = ".partial."
# Room for the largest build: a kernel's tree with its objects.
ROOM_BYTES = 3_000_000_000


class Misfit(TestbedError):
    """Raised where a file of the testbed, a patch or the configuration, does not fit a source.

    Attributes:
        file: the file that does not fit.
    """

    def __init__(self, file: Path, text: str) -> None:
        super().__init__(text)
        self.file = file


@dataclass(frozen=True)
class Ingredient:
    """An input file of a build: its name and its SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Recipe:
    """All that determines a build. `steps` is raised when the way of building changes."""

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
        """The inputs with their hashes, and when and how long it was built (`date`, `seconds`)."""
        metadata: dict[str, Any] = json.loads((self.folder / METADATA).read_text(encoding="utf-8"))
        return metadata

    @property
    def key(self) -> str:
        """The key of its recipe."""
        return self.folder.name.rpartition("-")[2]

    @property
    def source_sha256(self) -> str:
        """The SHA-256 of the tarball or tree that it was built from."""
        sha256: str = self.metadata["sources"][0]["sha256"]
        return sha256

    def product(self, name: str) -> Path:
        """Return the path of a product.

        Raises:
            TestbedError: the build lacks it, so somebody has removed it.
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
    """Return the first build that the cache has of some recipes."""
    return next(filter(None, map(finished, recipes)), None)


def taking(recipes: Iterable[Recipe], sha256: str) -> Recipe:
    """Return the recipe that uses a source.

    Raises:
        TestbedError: none does, as the source has changed meanwhile.
    """
    for recipe in recipes:
        if recipe.sources[0].sha256 == sha256:
            return recipe
    raise TestbedError("the source was changed during the build: run the command again")


def build(
    recipe: Recipe,
    make: Callable[[Path, Path], None],
    progress: Progress,
    *,
    room_bytes: int = ROOM_BYTES,
) -> Build:
    """Return the build of a recipe; build it first if the cache lacks it.

    Args:
        recipe: what to build.
        make: puts the products into a folder, and its output into a log; it gets both paths. The
            folder is renamed to its final place only after `make` has returned.
        progress: shows the build.
        room_bytes: the room that must be free before the build.

    Raises:
        TestbedError: there is no room, or `make` raises it.
    """
    if (known := finished(recipe)) is not None:
        return known
    folder = _folder(recipe)
    # Another process that builds it is shown as if it were this one, as we wait for it.
    with cache.locked(_lock(folder), lambda since_s: progress.step(_title(recipe), since_s)):
        if (known := finished(recipe)) is not None:
            return known
        _sweep(folder.parent)
        return _make(recipe, make, progress, room_bytes)


def all_finished() -> list[Build]:
    """Return every finished build in the cache, sorted by name."""
    return [Build(path.parent) for path in sorted(cache.subfolder("builds").glob(f"*/{METADATA}"))]


@functools.cache
def compiler_version() -> str:
    """Return the first line of `cc --version`.

    Raises:
        TestbedError: there is no C compiler.
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
    """Return each tarball from which a release can be built as an ingredient."""
    return [Ingredient(tarball.names[0], tarball.sha256) for tarball in release.tarballs]


def unpack(tarball: SourceTarball, folder: Path, log: Path, *exclude: str) -> None:
    """Unpack a tarball into a folder, without its outermost folder.

    Raises:
        TestbedError: the tarball has changed since it was fetched, or can't be unpacked.
    """
    if sha256_of(tarball.path) != tarball.sha256:
        raise TestbedError(f"{tarball.path} is damaged: remove it and run ./run.py setup")
    folder.mkdir()
    # Anchored: otherwise tar would try each pattern at every position of every name.
    patterns = ["--anchored", *(f"--exclude={pattern}" for pattern in exclude)]
    run_logged(
        ["tar", "--extract", "--strip-components=1", *patterns, "--file", str(tarball.path)],
        log,
        folder=folder,
    )


def apply_patch(patch: Path, title: str, folder: Path, log: Path) -> None:
    """Apply a patch to a source tree, without fuzz.

    Args:
        title: the source's name in messages.

    Raises:
        Misfit: it does not fit; names the patch, the source, and the files.
    """
    # With fuzz, a change whose surrounding lines differ could be made in a wrong place.
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
    """Where a folder's build is made before it is finished."""
    return folder.with_name(PARTIAL + folder.name)


def _sweep(builds: Path) -> None:
    """Remove what interrupted builds left. A build whose lock is held is still being made."""
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
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB of room, but a build needs "
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
        # A folder without metadata is no build, but would be in the way.
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return Build(folder)


def with_patches(title: str, patches: Iterable[Path | Ingredient]) -> str:
    """Return a build's title: what is built, with the patch's name or the number of patches."""
    names = [patch.name for patch in patches]
    if not names:
        return title
    return f"{title} with {names[0] if len(names) == 1 else f'{len(names)} patches'}"


def _title(recipe: Recipe) -> str:
    return with_patches(f"Building {recipe.name} {recipe.version}", recipe.patches)


def _write_through(folder: Path) -> None:
    """Write the products to the disk before the rename, lest a power cut leave empty files."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
