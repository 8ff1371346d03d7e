"""The sources of Tor and Linux: where a release's files come from.

Only a file's SHA-256 counts, so it may come from anywhere. `releases` has the releases; `tor` and
`kernel` use the files. Standard library only.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.basics import cache
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.steps import Progress, run_logged
from testbed.setup import releases
from testbed.setup.archives import debian_archives
from testbed.setup.releases import Release, Tarball

FOLDER_VARIABLE = "HYDRA_SOURCES"
# Loads one file as apt would, with the machine's own proxies and certificates.
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
    """A release's tarball in the cache: its path and its SHA-256."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Origin:
    """Where a tarball may come from: its name in messages, and a file or an address for apt."""

    tarball: Tarball
    title: str
    location: Path | str


def source_tarball(wanted: Release, progress: Progress) -> SourceTarball:
    """Return a release's tarball in the cache; get it first if the cache lacks it.

    Its SHA-256 is checked when it comes into the cache, and again by `builds.unpack`.

    Raises:
        InputError: HYDRA_SOURCES is no folder.
        Unavailable: no place has it.
        TestbedError: a place has another file under its name.
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
    """Load a release's tarball into a folder from the first origin that has it.

    Returns:
        The origin's title, and the tarball.
    """
    log = cache.new_log(f"source-{wanted.project}-{wanted.version}")
    lacking: list[str] = []
    for origin in _origins(wanted, lacking):
        name = origin.tarball.names[0]
        partial = folder / f".partial.{name}"
        partial.unlink(missing_ok=True)
        try:
            if (reason := _load(origin, partial, log)) is not None:
                lacking.append(f"{origin.title} ({reason})")
                continue
            _refuse_another(wanted, origin, sha256_of(partial))
            partial.rename(folder / name)
        finally:
            partial.unlink(missing_ok=True)
        return origin.title, SourceTarball(folder / name, origin.tarball.sha256)
    raise Unavailable(
        wanted,
        f"{wanted.title}: no place has its source: {'; '.join(lacking)}: {_by_hand(wanted)}; "
        f"the log is {log}",
    )


def _origins(wanted: Release, lacking: list[str]) -> Iterator[Origin]:
    """Yield the origins outside the cache in their order; add a missing archive to `lacking`."""
    if given := os.environ.get(FOLDER_VARIABLE):
        folder = Path(given).expanduser().absolute()
        if not folder.is_dir():
            raise InputError(f"{FOLDER_VARIABLE} is {given}: there is no such folder")
        for tarball in wanted.tarballs:
            for name in tarball.names:
                yield Origin(tarball, str(folder / name), folder / name)
    try:
        archives = debian_archives()
    except TestbedError as error:
        archives = []
        lacking.append(str(error))
    for archive in archives:
        for tarball in wanted.tarballs:
            if tarball.debian:
                address = archive + tarball.debian
                yield Origin(tarball, f"Debian's archive, {address}", address)
    for tarball in wanted.tarballs:
        for address in tarball.upstream:
            yield Origin(tarball, address, address)


def _load(origin: Origin, target: Path, log: Path) -> str | None:
    """Load an origin's file to a target; return the reason if it has none or only a part of it."""
    if isinstance(origin.location, Path):
        try:
            shutil.copyfile(origin.location, target)
        except OSError as error:
            return str(error.strerror)
        return None
    logged_before = log.stat().st_size if log.exists() else 0
    try:
        run_logged([*APT_HELPER, origin.location, str(target)], log)
    except TestbedError:
        output = log.read_bytes()[logged_before:].decode(errors="replace")
        return _reason(output, origin.location)
    if target.is_symlink():  # apt links to the file if the archive is a folder
        found = target.resolve()
        target.unlink()
        shutil.copyfile(found, target)
    return None


def _reason(output: str, address: str) -> str:
    """The error that apt reports, such as "404 Not Found", without the address."""
    errors = [line for line in output.splitlines() if line.startswith("E: ")]
    first = errors[0].removeprefix("E: ") if errors else "no reason given"
    return " ".join(first.removeprefix("Failed to fetch").replace(address, "").split())


def _refuse_another(wanted: Release, origin: Origin, found: str) -> None:
    if found != origin.tarball.sha256:
        listed = f"pinned in {releases.PINS}" if wanted.pinned else "in Debian's signed index"
        raise TestbedError(
            f"{origin.title} is not {wanted.title}: its SHA-256 is {found}, and "
            f"{origin.tarball.sha256} is {listed}: it was refused, as it is damaged or "
            f"somebody has changed it; {_by_hand(wanted)}"
        )


def _by_hand(wanted: Release) -> str:
    files = " or ".join(
        f"{' or '.join(tarball.names)} (SHA-256 {tarball.sha256})" for tarball in wanted.tarballs
    )
    return f"put {files} into a folder and name that in {FOLDER_VARIABLE}"
