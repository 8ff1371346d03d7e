"""The sources of Tor and Linux: where a release's files come from.

A file counts by its SHA-256 alone, so that it may come from anywhere. Which releases there are is
said in releases, what is done with a file in tor and kernel. Standard library only.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError, TestbedError
from testbed.setup import cache, releases
from testbed.setup.archives import debian_archives
from testbed.setup.releases import Release, Tarball
from testbed.setup.steps import Progress, run_logged

FOLDER_VARIABLE = "HYDRA_SOURCES"
# Loads one file as apt would, by the machine's own proxies and certificates.
APT_HELPER = (
    "/usr/lib/apt/apt-helper",
    # apt's own user has no access to a cache in a home folder.
    *("--option", "APT::Sandbox::User=root"),
    *("--option", "Acquire::Retries=1"),
    *("--option", "Acquire::http::Timeout=30"),
    *("--option", "Acquire::https::Timeout=30"),
    "download-file",
)


class Unavailable(TestbedError):
    """Raised where no place has a release's source."""

    def __init__(self, release: Release, text: str) -> None:
        super().__init__(text)
        self.release = release


@dataclass(frozen=True)
class SourceTarball:
    """A release's tarball in the cache: where it is, and its SHA-256."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Place:
    """Where a tarball may be had: its name in messages, and a file or an address for apt."""

    tarball: Tarball
    title: str
    location: Path | str


def source_tarball(wanted: Release, progress: Progress) -> SourceTarball:
    """Return a release's tarball in the cache; get it first where the cache has none.

    What is in the cache had the right SHA-256 when it came; `builds.unpack` looks again.

    Raises:
        InputError: HYDRA_SOURCES is no folder.
        Unavailable: no place has it.
        TestbedError: one has another file under its name.
    """
    folder = cache.subfolder("sources")
    if (known := _cached(wanted, folder)) is not None:
        return known
    fetching = f"Fetching {wanted.title}"
    lock = folder / f"{wanted.project}-{wanted.version}.lock"
    with cache.locked(lock, lambda since_s: progress.step(fetching, since_s)):
        if (known := _cached(wanted, folder)) is not None:
            return known
        with progress.step(fetching):
            place, tarball = _fetch(wanted, folder)
        progress.say(f"{wanted.title} was taken from {place}")
    return tarball


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached(wanted: Release, folder: Path) -> SourceTarball | None:
    for tarball in wanted.tarballs:
        path = folder / tarball.names[0]
        if path.is_file():
            return SourceTarball(path, tarball.sha256)
    return None


def _fetch(wanted: Release, folder: Path) -> tuple[str, SourceTarball]:
    """Bring a release's tarball into a folder from the first place that has it; name the place."""
    log = cache.new_log(f"source-{wanted.project}-{wanted.version}")
    lacking: list[str] = []
    for place in _places(wanted, lacking):
        name = place.tarball.names[0]
        partial = folder / f".partial.{name}"
        partial.unlink(missing_ok=True)
        try:
            if (reason := _load(place, partial, log)) is not None:
                lacking.append(f"{place.title} ({reason})")
                continue
            _refuse_another(wanted, place, sha256_of(partial))
            partial.rename(folder / name)
        finally:
            partial.unlink(missing_ok=True)
        return place.title, SourceTarball(folder / name, place.tarball.sha256)
    raise Unavailable(
        wanted,
        f"{wanted.title}: no place has its source: {'; '.join(lacking)}: {_by_hand(wanted)}; "
        f"the log is {log}",
    )


def _places(wanted: Release, lacking: list[str]) -> Iterator[Place]:
    """Yield the places outside the cache in their order; tell of what is no place at all."""
    if given := os.environ.get(FOLDER_VARIABLE):
        folder = Path(given).expanduser().absolute()
        if not folder.is_dir():
            raise InputError(f"{FOLDER_VARIABLE} is {given}: there is no such folder")
        for tarball in wanted.tarballs:
            for name in tarball.names:
                yield Place(tarball, str(folder / name), folder / name)
    try:
        archives = debian_archives()
    except TestbedError as error:
        archives = []
        lacking.append(str(error))
    for archive in archives:
        for tarball in wanted.tarballs:
            if tarball.debian:
                address = archive + tarball.debian
                yield Place(tarball, f"Debian's archive, {address}", address)
    for tarball in wanted.tarballs:
        for address in tarball.upstream:
            yield Place(tarball, address, address)


def _load(place: Place, target: Path, log: Path) -> str | None:
    """Bring a place's file to a target; the reason if the place lacks it or gives only half."""
    if isinstance(place.location, Path):
        try:
            shutil.copyfile(place.location, target)
        except OSError as error:
            return str(error.strerror)
        return None
    told_before = log.stat().st_size if log.exists() else 0
    try:
        run_logged([*APT_HELPER, place.location, str(target)], log)
    except TestbedError:
        told = log.read_bytes()[told_before:].decode(errors="replace")
        return _reason(told, place.location)
    if target.is_symlink():  # what apt makes of an archive in a folder
        found = target.resolve()
        target.unlink()
        shutil.copyfile(found, target)
    return None


def _reason(told: str, address: str) -> str:
    """What apt says is the matter, such as "404 Not Found", without the address."""
    errors = [line for line in told.splitlines() if line.startswith("E: ")]
    first = errors[0].removeprefix("E: ") if errors else "no reason given"
    return " ".join(first.removeprefix("Failed to fetch").replace(address, "").split())


def _refuse_another(wanted: Release, place: Place, found: str) -> None:
    if found != place.tarball.sha256:
        said = f"pinned in {releases.PINS}" if wanted.pinned else "in Debian's signed index"
        raise TestbedError(
            f"{place.title} is not {wanted.title}: its SHA-256 is {found}, and "
            f"{place.tarball.sha256} is {said}: it was refused, for it is damaged or "
            f"somebody has changed it; {_by_hand(wanted)}"
        )


def _by_hand(wanted: Release) -> str:
    files = " or ".join(
        f"{' or '.join(tarball.names)} (SHA-256 {tarball.sha256})" for tarball in wanted.tarballs
    )
    return f"put {files} into a folder and name that in {FOLDER_VARIABLE}"
