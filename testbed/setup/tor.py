"""Tor, built from a pinned release or a local tree, with a variant's patches.

How it is configured and run is the business of `testbed.tor`.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError
from testbed.setup import builds, sources
from testbed.setup.builds import Build, Ingredient, Recipe
from testbed.setup.steps import Progress, run_logged

STEPS = 1
# Documents, tests and compressions that a closed lab has no use for are left out; what decides
# how Tor carries cells is as Debian has it. No debug information: it triples the tree.
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
# What configure and make leave in a tree; it is neither copied nor counted as a change.
BUILT_FOLDERS = frozenset({".git", ".deps", ".libs", "autom4te.cache"})
BUILT_FILES = frozenset({"config.status", "config.log", "Makefile", "orconfig.h", "stamp-h1"})
BUILT_SUFFIXES = frozenset({".o", ".a", ".lo", ".la"})
MADE_BY_AUTOTOOLS = ("aclocal.m4", "configure", "Makefile.in")


@dataclass(frozen=True)
class TorSource:
    """Where Tor's source comes from: a local tree, or else a pinned release (None: the default)."""

    tree: Path | None = None
    release: str | None = None

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"tor in {self.tree}" if self.tree else sources.release("tor", self.release).title


PINNED = TorSource()


def tor_build(source: TorSource, patches: Sequence[Path], progress: Progress) -> Build:
    """Return Tor with some patches: products `tor` and `tor-gencert`; build it where need be.

    A patched Tor is made from a copy of the plain tree, already built, so that it costs seconds:
    `make` compiles again what a patch touches and all that includes it.

    Args:
        source: which source.
        patches: patches to apply with `patch -p1`, in this order.
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
    """Return what decides a build of Tor: a recipe for each tarball that its release may come in.

    Raises:
        InputError: the release isn't pinned; the tree or a patch can't be read.
    """
    return _recipes("tor", source, tuple(builds.ingredient(patch) for patch in patches))


def _recipes(name: str, source: TorSource, patches: tuple[Ingredient, ...] = ()) -> list[Recipe]:
    if source.tree is None:
        release = sources.release("tor", source.release)
        version, origins = release.version, builds.pinned_ingredients(release)
    else:
        version = tree_version(source.tree)
        origins = [Ingredient(source.tree.name, tree_sha256(source.tree))]
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
        tarball = sources.source_tarball(sources.release("tor", source.release), progress)
        recipe = builds.taking(recipes, tarball.sha256)
    else:
        recipe = recipes[0]

    def make(folder: Path, log: Path) -> None:
        tree = folder / "tree"
        if source.tree is None:
            builds.unpack(tarball, tree, log)
        else:
            shutil.copytree(source.tree, tree, symlinks=True, ignore=_built)
        run_logged(["./configure", *CONFIGURATION], log, folder=tree)
        _compile(tree, log)

    return builds.build(recipe, make, progress)


def _patched_copy(plain: Path, title: str, patches: Sequence[Path], tree: Path, log: Path) -> None:
    # With their times, or make would compile everything anew.
    shutil.copytree(plain, tree, symlinks=True)
    for patch in patches:
        builds.apply_patch(patch, title, tree, log)
    _compile(tree, log)


def _compile(tree: Path, log: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    run_logged(["make", f"--jobs={cores}", *PROGRAMS], log, folder=tree)


def tree_version(tree: Path) -> str:
    """Return the version that a local tree of Tor's source says it has.

    Raises:
        InputError: this is no tree of Tor's source, or one without `configure`.
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
    """Refuse a tree in which `make` would call the autotools, which nothing else here needs."""
    made = [tree / name for name in MADE_BY_AUTOTOOLS if (tree / name).exists()]
    oldest = min(made, key=lambda path: path.stat().st_mtime_ns)
    for path in (*tree.glob("*.a[cm]"), *tree.glob("m4/*.m4"), *tree.glob("src/**/include.am")):
        if path.stat().st_mtime_ns > oldest.stat().st_mtime_ns:
            raise InputError(
                f"{tree}: {oldest.name} is older than {path.relative_to(tree)}: run ./autogen.sh"
                " there, or copy the tree with its times (cp -a)"
            )


def tree_sha256(tree: Path) -> str:
    """Return a hash over the names and contents of a tree's files, without what a build leaves."""
    total = hashlib.sha256()
    for path in _source_files(tree):
        total.update(f"{path.relative_to(tree)}\0{sources.sha256_of(path)}\n".encode())
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
    """Return which names in a folder are a build's and not the source's (for `copytree` too)."""
    programs = {
        Path(program).name for program in PROGRAMS if parent.endswith(str(Path(program).parent))
    }
    return {
        name
        for name in names
        if name in BUILT_FOLDERS | BUILT_FILES | programs or Path(name).suffix in BUILT_SUFFIXES
    }
