"""Builds Tor from a release or a local tree, with a variant's patches.

How it is configured and run is `testbed.inside.tor`'s business.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.steps import Progress, run_logged
from testbed.setup import builds, choosing, releases
from testbed.setup.builds import Build, Ingredient, Recipe
from testbed.setup.releases import Release
from testbed.setup.sources import SourceTarball, sha256_of

STEPS = 1
# Without the documents, tests and compressions, which are useless in a closed lab. All options that
# decide how Tor carries cells are Debian's. Without debug information, which triples the tree.
CONFIGURATION = (
    "--disable-asciidoc",
    "--disable-manpage",
    "--disable-html-manual",
    "--disable-unittests",
    "--disable-lzma",
    "--disable-zstd",
    "--disable-systemd",
    "--disable-seccomp",
    "--disable-tool-name-check",
    "CFLAGS=-O2",
)
PROGRAMS = ("src/app/tor", "src/tools/tor-gencert")
# Files that configure and make leave in a tree; they are neither copied nor count as changes.
BUILT_FOLDERS = frozenset({".git", ".deps", ".libs", "autom4te.cache"})
BUILT_FILES = frozenset({"config.status", "config.log", "Makefile", "orconfig.h", "stamp-h1"})
BUILT_SUFFIXES = frozenset({".o", ".a", ".lo", ".la"})
MADE_BY_AUTOTOOLS = ("aclocal.m4", "configure", "Makefile.in")


@dataclass(frozen=True)
class TorSource:
    """Where Tor's source comes from: a local tree, or else a release.

    Attributes:
        release: its version; None for this cache's choice: the first that was available.
    """

    tree: Path | None = None
    release: str | None = None

    @property
    def title(self) -> str:
        """The source's name in messages."""
        return f"tor in {self.tree}" if self.tree else self.of_release().title

    def of_release(self) -> Release:
        """Return the release of a source without a tree.

        Raises:
            InputError: it isn't pinned.
        """
        if self.release is None:
            return releases.chosen("tor").release
        return releases.named("tor", self.release)


CHOSEN = TorSource()


def tor_build(source: TorSource, patches: Sequence[Path], progress: Progress) -> Build:
    """Return Tor with some patches (products `tor` and `tor-gencert`); build it if needed.

    A patched Tor is built in a copy of the plain, already compiled tree. This takes only seconds:
    `make` compiles the files that a patch touches and all that include them.

    Args:
        source: the source.
        patches: the patches, applied with `patch -p1` in this order.
        progress: shows the steps.

    Raises:
        InputError: the tree or a patch can't be read.
        TestbedError: no source, a patch that doesn't fit, or a compiler's error.
    """
    recipes = tor_recipes(source, patches)
    if (known := builds.first_finished(recipes)) is not None:
        return known
    of_tree = _plain_tree(source, progress)
    plain = of_tree.product("tree")
    recipes = tor_recipes(source, patches)  # the build above may have chosen another release

    def make(folder: Path, log: Path) -> None:
        tree = folder / "tree"
        if patches:
            _patched_copy(plain, source.title, patches, tree, log)
        built = tree if patches else plain
        for program in PROGRAMS:
            shutil.copy2(built / program, folder)
        shutil.rmtree(folder / "tree", ignore_errors=True)

    return builds.build(builds.taking(recipes, of_tree.source_sha256), make, progress)


def tor_recipes(source: TorSource, patches: Sequence[Path]) -> list[Recipe]:
    """Return the recipes of a Tor, one for each tarball of its release.

    Raises:
        InputError: the release isn't pinned; the tree or a patch can't be read.
    """
    return _recipes("tor", source, tuple(builds.ingredient(patch) for patch in patches))


def _recipes(name: str, source: TorSource, patches: tuple[Ingredient, ...] = ()) -> list[Recipe]:
    if source.tree is None:
        release = source.of_release()
        return _of(name, release.version, builds.tarball_ingredients(release), patches)
    version = tree_version(source.tree)
    return _of(name, version, [Ingredient(source.tree.name, tree_sha256(source.tree))], patches)


def _of(
    name: str, version: str, origins: Sequence[Ingredient], patches: tuple[Ingredient, ...] = ()
) -> list[Recipe]:
    return [
        Recipe(
            name=name,
            version=version,
            sources=(origin,),
            configuration=" ".join(CONFIGURATION),
            compiler=builds.compiler_version(),
            steps=STEPS,
            patches=patches,
        )
        for origin in origins
    ]


def _plain_tree(source: TorSource, progress: Progress) -> Build:
    """Return the unpatched source, configured and compiled: product `tree`."""
    recipes = _recipes("tor-tree", source)
    if (known := builds.first_finished(recipes)) is not None:
        return known
    if source.tree is None:
        make = partial(_tree_of_release, progress)
        return choosing.build_first("tor", source.release, make, progress)
    own = source.tree

    def copy(tree: Path, _log: Path) -> None:
        shutil.copytree(own, tree, symlinks=True, ignore=_built)

    return _tree(recipes[0], copy, progress)


def _tree_of_release(progress: Progress, release: Release, tarball: SourceTarball) -> Build:
    recipes = _of("tor-tree", release.version, builds.tarball_ingredients(release))

    def unpack(tree: Path, log: Path) -> None:
        builds.unpack(tarball, tree, log)

    return _tree(builds.taking(recipes, tarball.sha256), unpack, progress)


def _tree(recipe: Recipe, bring: Callable[[Path, Path], None], progress: Progress) -> Build:
    """Configure and compile a tree that `bring` puts into place; it gets the path and the log."""

    def make(folder: Path, log: Path) -> None:
        tree = folder / "tree"
        bring(tree, log)
        run_logged(["./configure", *CONFIGURATION], log, folder=tree)
        _compile(tree, log)

    return builds.build(recipe, make, progress)


def _patched_copy(plain: Path, title: str, patches: Sequence[Path], tree: Path, log: Path) -> None:
    # With the files' times, or make would compile everything again.
    shutil.copytree(plain, tree, symlinks=True)
    for patch in patches:
        builds.apply_patch(patch, title, tree, log)
    _compile(tree, log)


def _compile(tree: Path, log: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    run_logged(["make", f"--jobs={cores}", *PROGRAMS], log, folder=tree)


def tree_version(tree: Path) -> str:
    """Return the version in a local tree of Tor's source.

    Raises:
        InputError: it is no tree of Tor's source, or has no `configure`.
    """
    try:
        text = (tree / "configure.ac").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{tree}: not a tree of Tor's source: it has no configure.ac") from error
    found = re.search(r"AC_INIT\(\[tor\],\s*\[([^\]]+)\]", text)
    if found is None:
        raise InputError(f"{tree}/configure.ac: not Tor's: AC_INIT([tor],[version]) is not there")
    if not (tree / "configure").exists():
        raise InputError(f"{tree}: has no configure: run ./autogen.sh there first")
    _refuse_outdated(tree)
    return found[1]


def _refuse_outdated(tree: Path) -> None:
    """Refuse a tree in which `make` would run the autotools, which nothing else here needs."""
    made = [tree / name for name in MADE_BY_AUTOTOOLS if (tree / name).exists()]
    oldest = min(made, key=lambda path: path.stat().st_mtime_ns)
    for path in (*tree.glob("*.a[cm]"), *tree.glob("m4/*.m4"), *tree.glob("src/**/include.am")):
        if path.stat().st_mtime_ns > oldest.stat().st_mtime_ns:
            raise InputError(
                f"{tree}: {oldest.name} is older than {path.relative_to(tree)}: run ./autogen.sh"
                " there, or copy the tree with its times (cp -a)"
            )


def tree_sha256(tree: Path) -> str:
    """Return a hash over the names and contents of a tree's files, without a build's files."""
    total = hashlib.sha256()
    for path in _source_files(tree):
        total.update(f"{path.relative_to(tree)}\0{sha256_of(path)}\n".encode())
    return total.hexdigest()


def _source_files(tree: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(tree):
        left_out = _built(parent, [*folders, *files])
        folders[:] = sorted(set(folders) - left_out)
        for name in sorted(set(files) - left_out):
            path = Path(parent, name)
            if path.is_file():
                yield path


def _built(parent: str, names: list[str]) -> set[str]:
    """Return the names in a folder that a build has made (also for `copytree`)."""
    programs = {
        Path(program).name for program in PROGRAMS if parent.endswith(str(Path(program).parent))
    }
    return {
        name
        for name in names
        if name in BUILT_FOLDERS | BUILT_FILES | programs or Path(name).suffix in BUILT_SUFFIXES
    }
