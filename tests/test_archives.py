"""Debian's archive as this machine's apt knows it: its addresses, and its signed indexes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_archive import Archives, Named, serving
from test_setup import program

from testbed.basics import steps
from testbed.basics.errors import TestbedError
from testbed.setup import archives

ARCHIVE = "http://archive.example/debian/"
POOL = "pool/main/t/toy"
TOY = Named("2.2.1-1", f"{POOL}/toy_2.2.1.orig.tar.xz")


# Which archive is used.


def test_main_archive_is_chosen_among_others() -> None:
    targets = [
        "http://other.example/apt/|bookworm|main|Other|Other",
        "http://security.example/|bookworm-security|main|Debian|Debian-Security",
        f"{ARCHIVE}|bookworm-updates|main|Debian|Debian",
        f"{ARCHIVE}|bookworm|contrib|Debian|Debian",
        f"{ARCHIVE}|bookworm|main|Debian|Debian",
        f"{ARCHIVE}|sid|main|Debian|Debian",
    ]
    assert archives.choose_archives(targets) == [ARCHIVE]


def test_field_that_apt_left_as_it_was_counts_as_empty() -> None:
    line = "http://archive.example/debian|trixie|main|$(ORIGIN)|$(LABEL)"
    assert archives.choose_archives([line]) == [ARCHIVE]


def test_mirrors_of_a_list_are_archives(tmp_path: Path) -> None:
    """Debian's cloud images have one."""
    (tmp_path / "mirrors.list").write_text(f"# ours\n{ARCHIVE}\npriority.example\tpriority:2\n")
    line = f"mirror+file:{tmp_path}/mirrors.list/|bookworm|main|Debian|Debian"
    assert archives.choose_archives([line]) == [ARCHIVE, "priority.example/"]


@pytest.mark.parametrize("targets", [[], ["nonsense"], ["http://u.example/|noble|main|Ubuntu|"]])
def test_apt_without_debian_is_said(targets: list[str]) -> None:
    with pytest.raises(TestbedError, match="no Debian archive"):
        archives.choose_archives(targets)


def test_unreadable_apt_state_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "apt-get", "echo 'E: Malformed entry 1 in list file' >&2; exit 100")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TestbedError, match=r"Malformed entry 1 in list file.*repair /etc/apt"):
        archives.debian_archives()


# The releases in its signed indexes.


@pytest.fixture
def served(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archives]:
    """An empty archive."""
    with serving({}, tmp_path, monkeypatch) as served:
        yield served


def named(progress: steps.Progress) -> list[str]:
    return [release.version for release in archives.listed("toy", ["2.2", "1.12"], progress)]


def test_releases_come_by_series_and_the_newest_first(
    served: Archives, tmp_path: Path, progress: steps.Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = ["1.12.9-1", "2.2.13-1", "2.3.1-1", "2:2.2.9-1~bpo13+1", "1.12.117-2", "2.2.13-2"]
    upstreams = [version.partition("-")[0].rpartition(":")[2] for version in versions]
    paths = [f"{POOL}/toy_{upstream}.orig.tar.xz" for upstream in upstreams]
    served.sign_index(map(Named, versions, paths), tmp_path, monkeypatch)
    assert named(progress) == ["2.2.13", "2.2.9", "1.12.117", "1.12.9"]


def test_a_release_has_the_hash_of_the_index(
    served: Archives, tmp_path: Path, progress: steps.Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.sign_index([TOY], tmp_path, monkeypatch)
    [release] = archives.listed("toy", ["2.2"], progress)
    [tarball] = release.tarballs
    assert not release.pinned
    assert tarball.debian == TOY.path
    assert tarball.sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("fault", ["another's key", "changed"])
def test_an_index_that_nobody_trusted_has_signed_is_no_index(
    fault: str,
    served: Archives,
    tmp_path: Path,
    progress: steps.Progress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served.sign_index([TOY], tmp_path, monkeypatch)
    if fault == "another's key":
        monkeypatch.setattr(archives, "KEYRINGS", (tmp_path / "nothing",))
    else:
        index = "/debian/dists/unstable/main/source/Sources"
        served.files[index] = served.files[index].replace(b"2.2.1", b"2.2.2")
    with pytest.raises(TestbedError, match="no index of Debian's sources is available; the log is"):
        named(progress)


def test_apts_own_state_is_not_changed(
    served: Archives, tmp_path: Path, progress: steps.Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> set[tuple[Path, float]]:
        folders = (Path("/var/lib/apt"), Path("/var/cache/apt"), Path("/etc/apt"))
        return {
            (path, path.stat().st_mtime)
            for folder in folders
            for path in (folder, *folder.rglob("*"))
        }

    before = state()
    served.sign_index([TOY], tmp_path, monkeypatch)
    assert named(progress) == ["2.2.1"]
    assert state() == before
