"""Debian's source tarballs of Tor and Linux, fetched with an apt configuration of our own.

apt checks every file against the signed index. What is done with a tarball is said in tor, kernel.
"""

import functools
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from testbed.errors import TestbedError
from testbed.setup import cache
from testbed.setup.steps import Progress, dying_with_us

# The suites whose sources are asked for, the second lot only if the first has nothing that loads.
SUITES = (("sid", "trixie-backports"), ("forky", "trixie"))
RELEASES = frozenset(
    {"bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing", "unstable"}
)
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
TARGET_FIELDS = ("REPO_URI", "SIGNED_BY", "RELEASE", "COMPONENT", "ORIGIN", "LABEL")
NO_NETWORK = re.compile(
    r"Could not resolve|Could not connect|Cannot initiate the connection|"
    r"Temporary failure|Network is unreachable|Connection timed out"
)


@dataclass(frozen=True)
class Archive:
    """Debian's archive as this machine's own apt knows it: where it is and whose keys sign it."""

    address: str
    keyring: str


@dataclass(frozen=True)
class SourceTarball:
    """An upstream tarball in the cache: Debian package, Debian version, file and its SHA-256."""

    package: str
    version: str
    path: str
    sha256: str

    @property
    def upstream_version(self) -> str:
        """The version without Debian's revision: `0.4.9.11` of `0.4.9.11-1~bpo13+1`."""
        return self.version.rpartition("-")[0] or self.version


@dataclass(frozen=True)
class Wanted:
    """Which source is wanted: Debian's package, and the least series that will do (`7.2`).

    With `same_series` newer series are only taken when nothing of that one loads: patches are made
    for one series and may not fit the next.
    """

    package: str
    oldest: str
    same_series: bool


def source_tarball(wanted: Wanted, progress: Progress) -> SourceTarball:
    """Return the tarball of a Debian source package; fetch it first where the cache has none.

    A tarball once fetched stays the chosen one, so that results of one cache can be compared.

    Args:
        wanted: the package and which of its versions.
        progress: shows the fetch.

    Raises:
        TestbedError: no archive known to apt, no network, or no version could be loaded.
    """
    folder = cache.subfolder("sources")
    record = folder / f"{wanted.package}.json"
    if (known := _recorded(record)) is not None:
        return known
    with FileLock(folder / f"{wanted.package}.lock"):
        if (known := _recorded(record)) is not None:
            return known
        with progress.step(f"Fetching the source of {wanted.package}"):
            tarball = _fetch(wanted, folder)
        # Only a record makes a tarball count, and it comes into place as a whole.
        fresh = record.with_suffix(".partial")
        fresh.write_text(json.dumps(asdict(tarball), indent=2), encoding="utf-8")
        fresh.rename(record)
    return tarball


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def preferred(versions: Iterable[str], wanted: Wanted) -> list[str]:
    """Order Debian versions by preference: the newest first, older series than wanted left out.

    A series is as many numbers as `wanted.oldest` has. With `wanted.same_series` the oldest series
    comes first, and in each series the newest version.
    """
    numbers = len(wanted.oldest.split("."))
    least = _series(wanted.oldest, numbers)
    newest_first = sorted(
        {version for version in versions if _series(version, numbers) >= least},
        key=functools.cmp_to_key(_compare),
        reverse=True,
    )
    if not wanted.same_series:
        return newest_first
    return sorted(newest_first, key=lambda version: _series(version, numbers))


def _series(version: str, numbers: int) -> tuple[int, ...]:
    upstream = version.partition(":")[2] or version
    found = re.match(r"\d+(?:\.\d+)*", upstream)
    return tuple(int(part) for part in found[0].split(".")[:numbers]) if found else ()


def _compare(one: str, other: str) -> int:
    """Compare two versions by Debian's rules, with Debian's own tool."""
    if one == other:
        return 0
    newer = subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False)
    return 1 if newer.returncode == 0 else -1


def machine_archive() -> Archive:
    """Return Debian's archive as it stands in this machine's own apt sources.

    Raises:
        TestbedError: apt has none, or Debian's keyring is not there.
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
    return choose_archive(answer.stdout.splitlines())


def choose_archive(targets: Iterable[str]) -> Archive:
    """Pick Debian's main archive out of apt's index targets.

    Args:
        targets: lines of `TARGET_FIELDS` with `|` between them. apt leaves a field that it has no
            value for as it was, `$(ORIGIN)`.

    Raises:
        TestbedError: none of them is Debian's main archive, or Debian's keyring is not there.
    """
    for line in targets:
        values = [value if not value.startswith("$(") else "" for value in line.split("|")]
        if len(values) != len(TARGET_FIELDS):
            continue
        target = dict(zip(TARGET_FIELDS, values, strict=True))
        debian = target["ORIGIN"] in ("", "Debian") and target["LABEL"] in ("", "Debian")
        main = target["COMPONENT"] == "main" and target["RELEASE"] in RELEASES
        if debian and main and target["REPO_URI"]:
            return Archive(target["REPO_URI"], target["SIGNED_BY"] or _keyring())
    raise TestbedError(
        "apt's sources have no Debian archive (suite bookworm or trixie, component main): "
        "add Debian's `main` to /etc/apt/sources.list.d and run `apt-get update`"
    )


def _keyring() -> str:
    for path in KEYRINGS:
        if path.exists():
            return str(path)
    raise TestbedError(f"{KEYRINGS[0]} is missing: `apt-get install debian-archive-keyring`")


def _fetch(wanted: Wanted, folder: Path) -> SourceTarball:
    package = wanted.package
    archive = machine_archive()
    log = cache.new_log(f"source-{package}")
    tried: list[str] = []
    for suites in SUITES:
        configuration = _configure_apt(archive, suites)
        # It fails when one of several suites is missing; what counts is which versions are listed.
        _, output = _apt(configuration, folder, log, "apt-get", "update")
        for version in preferred(_versions(package, configuration, folder, log), wanted):
            if version in tried:
                continue
            tried.append(version)
            path, output = _download(package, version, configuration, folder, log)
            if path is not None:
                return SourceTarball(package, version, str(path), sha256_of(path))
        if not tried and NO_NETWORK.search(output):
            raise TestbedError(
                f"Debian's archive can't be reached for the source of {package}: "
                f"check the network and apt's proxy settings; the log is {log}"
            )
    raise TestbedError(
        f"no source of {package} {wanted.oldest} or newer could be loaded from Debian's archive; "
        f"tried: {', '.join(tried) or 'none was listed'}; the log is {log}"
    )


def _configure_apt(archive: Archive, suites: Sequence[str]) -> Path:
    """Write an apt configuration that touches nothing outside the cache, and return its path."""
    folder = cache.subfolder("apt") / "-".join(suites)
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(
        "".join(
            f"deb-src [signed-by={archive.keyring}] {archive.address} {suite} main\n"
            for suite in suites
        ),
        encoding="utf-8",
    )
    settings = {
        "Dir::Etc::sourcelist": str(folder / "sources.list"),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": str(folder / "lists"),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder),
        "Dir::Cache::archives": str(folder / "archives"),
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "30",
        # apt's own user has no access to a cache in a home folder.
        "APT::Sandbox::User": "root",
    }
    path = folder / "apt.conf"
    path.write_text(
        "".join(f'{key} "{value}";\n' for key, value in settings.items()), encoding="utf-8"
    )
    return path


def _apt(configuration: Path, folder: Path, log: Path, *arguments: str) -> tuple[bool, str]:
    """Run one of apt's programs with our configuration; its output goes to the log as well.

    Returns:
        Whether it ended well, and what it said.
    """
    answer = subprocess.run(
        dying_with_us(arguments),
        cwd=folder,
        env={**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(arguments)}\n{answer.stdout}")
    return answer.returncode == 0, answer.stdout


def _versions(package: str, configuration: Path, folder: Path, log: Path) -> list[str]:
    _, listing = _apt(configuration, folder, log, "apt-cache", "madison", package)
    rows = ([field.strip() for field in line.split("|")] for line in listing.splitlines())
    return [row[1] for row in rows if len(row) == 3 and row[0] == package]


def _download(
    package: str, version: str, configuration: Path, folder: Path, log: Path
) -> tuple[Path | None, str]:
    """Try one version: a listed version need not be there (mirrors lag behind their index)."""
    loaded, output = _apt(
        configuration,
        folder,
        log,
        *("apt-get", "source", "--download-only", "--tar-only", f"{package}={version}"),
    )
    upstream = version.rpartition("-")[0].partition(":")[2] or version.rpartition("-")[0]
    # Without apt's word a file of this name may be half of one.
    names = [f"{package}_{upstream}.orig.tar.{suffix}" for suffix in ("xz", "gz", "bz2", "zst")]
    found = [folder / name for name in names if loaded and (folder / name).is_file()]
    return (found[0] if found else None), output


def _recorded(record: Path) -> SourceTarball | None:
    """Return what a record says, if the tarball it names is there."""
    try:
        tarball = SourceTarball(**json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return tarball if Path(tarball.path).is_file() else None
