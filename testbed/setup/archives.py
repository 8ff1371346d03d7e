"""Debian's archive as this machine's apt knows it: its addresses, and the releases in its indexes.

Which release is built is decided in `choosing`. Standard library only.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

from testbed.basics import cache
from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress, run_logged
from testbed.setup.releases import Release, Tarball

# Debian's suites as /etc/apt may name them; other archives have other names.
RELEASES = frozenset(
    {"bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing", "unstable"}
)
TARGET_FIELDS = ("REPO_URI", "RELEASE", "COMPONENT", "ORIGIN", "LABEL")
# How apt names a list of mirrors in a file, as Debian's images for clouds have it.
MIRROR_LIST = "mirror+file:"

# The suites whose sources are searched, by names that stay when Debian has a new release.
SUITES = (
    "unstable",
    "testing",
    "stable",
    "stable-backports",
    "oldstable",
    "oldstable-backports",
)
# The keys that may sign an index: Debian's, and those that this machine's apt trusts for every
# archive.
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/etc/apt/trusted.gpg.d"),
)
# Read after the machine's own configuration, so its proxies and certificates apply. The hooks that
# a machine runs after an update are cleared.
APT_CONFIGURATION = """
#clear APT::Update;
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::Retries "1";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Trusted "/dev/null";
Dir::Etc::TrustedParts "{folder}/trusted/";
Dir::State::Lists "{folder}/lists";
Dir::Cache "{folder}/cache";
"""


def listed(project: str, series: Sequence[str], progress: Progress) -> list[Release]:
    """Return the releases of a project that apt's signed indexes of sources list today.

    The indexes come from this machine's own Debian archive and are kept in the cache; apt's own
    files stay as they are. Suites that the archive lacks are skipped.

    Args:
        project: `tor` or `linux`, which are also the names of Debian's source packages.
        series: the series, such as "7.2", to which releases are limited.
        progress: shows the step.

    Returns:
        The releases with the SHA-256 from the index: in the order of their series, the newest of
        each series first.

    Raises:
        TestbedError: apt has no Debian archive, or no index of it is available.
    """
    folder = cache.subfolder("index")
    archives = debian_archives()
    with cache.locked(folder / "lock"), progress.step("Reading the indexes of Debian's sources"):
        configuration = _indexes(folder, archives)
        answer = subprocess.run(
            ["apt-cache", f"--config-file={configuration}", "showsrc", "--only-source", project],
            capture_output=True,
            text=True,
            check=False,
        )
    found = {one.version: one for one in releases_in(answer.stdout, project)}
    return [
        found[version]
        for one in series
        for version in sorted(found, key=_numbers, reverse=True)
        if version.startswith(f"{one}.")
    ]


def releases_in(answer: str, project: str) -> Iterator[Release]:
    """Read releases from the output of `apt-cache showsrc` for a source package."""
    for paragraph in answer.strip().split("\n\n"):
        source = Parser().parsestr(paragraph)
        if (tarball := _original(source)) is None:
            continue
        version = source["Version"].rpartition("-")[0].rpartition(":")[2]
        yield Release(project, version, (tarball,), pinned=False)


def _original(source: Message) -> Tarball | None:
    """The original tarball of a source package, packed by upstream or repacked by Debian."""
    # " 08f058f9…  163638868 linux_7.2.8.orig.tar.xz"
    for line in source.get("Checksums-Sha256", "").splitlines():
        words = line.split()
        if len(words) == 3 and words[2].rpartition(".tar.")[0].endswith(".orig"):
            return Tarball(words[0], f"{source['Directory']}/{words[2]}")
    return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".") if number.isdigit()]


def _indexes(folder: Path, archives: Sequence[str]) -> Path:
    """Update the indexes from the first archive that has any.

    Returns:
        The apt configuration that uses them.

    Raises:
        TestbedError: no archive has an index.
    """
    log = cache.new_log("index")
    for archive in archives:
        configuration = _configure(folder, archive)
        update = ["apt-get", f"--config-file={configuration}", "--quiet", "update"]
        # It fails where an archive lacks a suite, which is no fault.
        with contextlib.suppress(TestbedError):
            run_logged(update, log)
        if any((folder / "lists").glob("*Sources*")):
            return configuration
    raise TestbedError(f"no index of Debian's sources is available; the log is {log}")


def _configure(folder: Path, archive: str) -> Path:
    """Write an apt configuration that knows only one archive's sources, and return its path."""
    trusted = folder / "trusted"
    shutil.rmtree(trusted, ignore_errors=True)
    for each in (trusted, folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
        each.mkdir(parents=True, exist_ok=True)
    for keyring in KEYRINGS:
        for file in sorted(keyring.iterdir()) if keyring.is_dir() else [keyring]:
            if file.suffix in (".asc", ".gpg") and file.exists():
                (trusted / file.name).symlink_to(file)
    lines = [f"deb-src {archive} {suite} main\n" for suite in SUITES]
    (folder / "sources.list").write_text("".join(lines), encoding="utf-8")
    configuration = folder / "apt.conf"
    configuration.write_text(APT_CONFIGURATION.format(folder=folder), encoding="utf-8")
    return configuration


def debian_archives() -> list[str]:
    """Return the addresses of Debian's archive in this machine's apt sources.

    Raises:
        TestbedError: there are none.
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
    """Pick the addresses of Debian's main archive, each once, from apt's index targets.

    Args:
        targets: lines of `TARGET_FIELDS` separated by `|`. A field without a value is left by apt
            as it was, such as `$(ORIGIN)`.

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
