"""The releases of Tor and Linux in pins.toml, and the one that this cache has chosen.

Where their files come from is `sources`' business, how one is chosen `choosing`'s. Standard library
only.
"""

import json
import os
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.basics import cache
from testbed.basics.errors import InputError

PINS = Path(__file__).resolve().with_name("pins.toml")


@dataclass(frozen=True)
class Tarball:
    """A release's file: its SHA-256, its path in Debian's archive, and upstream's addresses."""

    sha256: str
    debian: str = ""
    upstream: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Its file names: Debian's first, if Debian has it."""
        places = [self.debian, *self.upstream] if self.debian else self.upstream
        return list(dict.fromkeys(place.rpartition("/")[2] for place in places))


@dataclass(frozen=True)
class Release:
    """A release: the project (`tor`, `linux`), the version, and its tarballs.

    Attributes:
        pinned: whether it is in pins.toml; otherwise it comes from a signed index of Debian's.
    """

    project: str
    version: str
    tarballs: tuple[Tarball, ...]
    pinned: bool = True

    @property
    def title(self) -> str:
        """The release's name in messages."""
        return f"{self.project} {self.version}"


@dataclass(frozen=True)
class Choice:
    """A release in use.

    Attributes:
        other: why it isn't the first choice, in words; empty if it is.
    """

    release: Release
    other: str = ""

    def __str__(self) -> str:
        """The release and the reason for it, as a message."""
        return f"{self.release.title} is in use: {self.other or 'the first choice'}"


def named(project: str, version: str) -> Release:
    """Return a release by its version.

    Raises:
        InputError: it is neither pinned nor this cache's choice from an index.
    """
    choice = chosen(project).release
    if version == choice.version:
        return choice
    pinned = _pins()[project]
    if version not in pinned:
        raise InputError(
            f"{project} {version} is not pinned: there are {', '.join(pinned)}; "
            f"another one is added to {PINS} with its SHA-256"
        )
    return _pinned(project, version)


def in_order(project: str) -> list[Release]:
    """Return the pinned releases in the order in which they are tried."""
    return [_pinned(project, version) for version in _pins()["order"][project]]


def series(project: str) -> list[str]:
    """Return the series, such as "7.2", in the order in which they are tried.

    If no pinned release is available, any of their releases may be built.
    """
    return list(_pins()["series"][project])


def chosen(project: str) -> Choice:
    """Return the release that this cache builds by default: the first that was available."""
    first = _pinned(project, _pins()["order"][project][0])
    try:
        kept = json.loads(_file(project).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Choice(first)
    if kept["order"] != _pins()["order"][project]:  # written by another version of the testbed
        return Choice(first)
    tarballs = (
        Tarball(one["sha256"], one["debian"], tuple(one["upstream"])) for one in kept["tarballs"]
    )
    release = Release(project, kept["version"], tuple(tarballs), kept["pinned"])
    return Choice(release, kept["passed_over"])


def choose(release: Release, passed_over: str) -> None:
    """Keep a release as this cache's choice; without a file the first one is.

    Args:
        passed_over: why the releases before it were not built; empty for the first one.
    """
    file = _file(release.project)
    if not passed_over:
        file.unlink(missing_ok=True)
        return
    note = {
        "order": _pins()["order"][release.project],
        "version": release.version,
        "pinned": release.pinned,
        "tarballs": [asdict(tarball) for tarball in release.tarballs],
        "passed_over": passed_over,
    }
    partial = file.with_name(f".partial.{file.name}.{os.getpid()}")
    partial.write_text(json.dumps(note, indent=1), encoding="utf-8")
    partial.rename(file)


def _pins() -> dict[str, Any]:
    return tomllib.loads(PINS.read_text(encoding="utf-8"))


def _pinned(project: str, version: str) -> Release:
    return _release(project, version, _pins()[project][version], pinned=True)


def _release(
    project: str, version: str, tarballs: list[dict[str, Any]], *, pinned: bool
) -> Release:
    files = (
        Tarball(each["sha256"], each.get("debian", ""), tuple(each.get("upstream", ())))
        for each in tarballs
    )
    return Release(project, version, tuple(files), pinned)


def _file(project: str) -> Path:
    """The file that keeps a choice other than the first one."""
    return cache.subfolder("sources") / f"{project}.chosen.json"
