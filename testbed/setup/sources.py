"""The sources of Tor and Linux: which releases there are, by pins.toml, and where they come from.

A file counts by its SHA-256 alone, so that it may come from anywhere. What is done with it is said
in tor and kernel. Standard library only.
"""

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError, TestbedError
from testbed.setup import cache
from testbed.setup.steps import Progress, run_logged

PINS = Path(__file__).resolve().with_name("pins.toml")
FOLDER_VARIABLE = "HYDRA_SOURCES"
# Debian's suites as /etc/apt may name them; other archives have other names.
RELEASES = frozenset(
    {"bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing", "unstable"}
)
TARGET_FIELDS = ("REPO_URI", "RELEASE", "COMPONENT", "ORIGIN", "LABEL")
# How apt names a list of mirrors in a file, as Debian's images for clouds have it.
MIRROR_LIST = "mirror+file:"
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


@dataclass(frozen=True)
class Tarball:
    """A tarball as pinned: its SHA-256, its path in Debian's archive, and upstream's addresses."""

    sha256: str
    debian: str = ""
    upstream: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names that it has as a file: Debian's first, if Debian has it."""
        places = [self.debian, *self.upstream] if self.debian else self.upstream
        return list(dict.fromkeys(place.rpartition("/")[2] for place in places))


@dataclass(frozen=True)
class SourceTarball:
    """A pinned tarball in the cache: where it is, and its SHA-256."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Release:
    """A release as pinned: the project (`tor`, `linux`), the version, and its tarballs."""

    project: str
    version: str
    tarballs: tuple[Tarball, ...]

    @property
    def title(self) -> str:
        """The release as messages name it."""
        return f"{self.project} {self.version}"


@dataclass(frozen=True)
class Place:
    """Where a tarball may be had: its name in messages, and a file or an address for apt."""

    tarball: Tarball
    title: str
    location: Path | str


def release(project: str, version: str | None = None) -> Release:
    """Return a release of a project, the default one if no version is given.

    Raises:
        InputError: that version isn't pinned.
    """
    pins = tomllib.loads(PINS.read_text(encoding="utf-8"))
    chosen = pins["default"][project] if version is None else version
    if chosen not in pins[project]:
        raise InputError(
            f"{project} {chosen} is not pinned: there are {', '.join(pins[project])}; "
            f"another one is added to {PINS} with its SHA-256"
        )
    tarballs = (
        Tarball(each["sha256"], each.get("debian", ""), tuple(each.get("upstream", ())))
        for each in pins[project][chosen]
    )
    return Release(project, chosen, tuple(tarballs))


def source_tarball(wanted: Release, progress: Progress) -> SourceTarball:
    """Return a release's tarball in the cache; get it first where the cache has none.

    What is in the cache had the right SHA-256 when it came; `builds.unpack` looks again.

    Raises:
        InputError: HYDRA_SOURCES is no folder.
        TestbedError: no place has it, or one has another file under its name.
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
    raise TestbedError(
        f"{wanted.title}: no place has its source: {'; '.join(lacking)}: {_by_hand(wanted)}; "
        f"the log is {log}"
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
        raise TestbedError(
            f"{place.title} is not {wanted.title}: its SHA-256 is {found}, and "
            f"{place.tarball.sha256} is pinned in {PINS}: it was refused, for it is damaged or "
            f"somebody has changed it; {_by_hand(wanted)}"
        )


def _by_hand(wanted: Release) -> str:
    files = " or ".join(
        f"{' or '.join(tarball.names)} (SHA-256 {tarball.sha256})" for tarball in wanted.tarballs
    )
    return f"put {files} into a folder and name that in {FOLDER_VARIABLE}"


def debian_archives() -> list[str]:
    """Return the addresses of Debian's archive as this machine's own apt has them.

    Raises:
        TestbedError: apt has none.
    """
    layout = "|".join(f"$({field})" for field in TARGET_FIELDS)
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", layout, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TestbedError(f"apt can't read its own sources: {reason}: repair /etc/apt first")
    return choose_archives(answer.stdout.splitlines())


def choose_archives(targets: Iterable[str]) -> list[str]:
    """Pick Debian's main archive out of apt's index targets: each of its addresses once.

    Args:
        targets: lines of `TARGET_FIELDS` with `|` between them. apt leaves a field that it has no
            value for as it was, `$(ORIGIN)`.

    Raises:
        TestbedError: none of them is Debian's main archive.
    """
    archives: list[str] = []
    for line in targets:
        values = [value if not value.startswith("$(") else "" for value in line.split("|")]
        if len(values) != len(TARGET_FIELDS):
            continue
        target = dict(zip(TARGET_FIELDS, values, strict=True))
        debian = target["ORIGIN"] in ("", "Debian") and target["LABEL"] in ("", "Debian")
        main = target["COMPONENT"] == "main" and target["RELEASE"] in RELEASES
        if debian and main and target["REPO_URI"]:
            archives += _addresses(target["REPO_URI"])
    if not archives:
        raise TestbedError(
            "apt's sources have no Debian archive (suite bookworm or trixie, component main): "
            "add Debian's `main` to /etc/apt/sources.list.d and run `apt-get update`"
        )
    return list(dict.fromkeys(archives))


def _addresses(archive: str) -> list[str]:
    """An archive's addresses, each with a slash at its end; a list of mirrors has several."""
    if not archive.startswith(MIRROR_LIST):
        return [archive.rstrip("/") + "/"]
    try:
        text = Path(archive.removeprefix(MIRROR_LIST).rstrip("/")).read_text(encoding="utf-8")
    except OSError:
        return []
    # "http://archive.example/debian  priority:1"
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return [words[0].rstrip("/") + "/" for words in lines if words]
