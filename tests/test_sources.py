"""Where the sources come from: an archive on loopback has, lacks, cuts or falsifies them.

apt's own loader uses it, as it does Debian's archive and upstream's.
"""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_archive import Archives, serving, write_pins
from test_setup import program

from testbed.basics.errors import InputError, TestbedError
from testbed.basics.steps import Progress
from testbed.setup import builds, releases, sources

DEBIAN_PATH = "/debian/pool/main/t/toy/toy_1.0.orig.tar.gz"
UPSTREAM_PATH = "/upstream/toy-1.0.tar.gz"
# As with Linux, one release has two different files.
DEBIAN_FILE = b"as Debian packs it" * 1000
UPSTREAM_FILE = b"as upstream packs it" * 1000
DEBIAN_SHA256 = hashlib.sha256(DEBIAN_FILE).hexdigest()
UPSTREAM_SHA256 = hashlib.sha256(UPSTREAM_FILE).hexdigest()


@pytest.fixture
def archives(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archives]:
    """The project toy, with one release, and archives that have it."""
    files = {DEBIAN_PATH: DEBIAN_FILE, UPSTREAM_PATH: UPSTREAM_FILE}
    with serving(files, tmp_path, monkeypatch) as archives:
        write_pins(
            tmp_path / "pins.toml",
            f"""
            [order]
            toy = ["1.0"]
            [[toy."1.0"]]
            sha256 = "{DEBIAN_SHA256}"
            debian = "{DEBIAN_PATH.removeprefix("/debian/")}"
            [[toy."1.0"]]
            sha256 = "{UPSTREAM_SHA256}"
            upstream = [
                "{archives.address}/gone/toy-1.0.tar.gz",
                "{archives.address}{UPSTREAM_PATH}",
            ]
            """,
            monkeypatch,
        )
        yield archives


def take() -> tuple[bytes, str]:
    """The content of the toy's tarball, and the set-up's message about it."""
    shown = io.StringIO()
    tarball = sources.source_tarball(releases.named("toy", "1.0"), Progress(shown))
    content = tarball.path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == tarball.sha256
    return content, shown.getvalue()


def in_cache(own_cache: Path) -> list[str]:
    """The names of the sources in the cache, without locks."""
    return [path.name for path in (own_cache / "sources").iterdir() if path.suffix != ".lock"]


def test_debian_comes_before_upstream(archives: Archives) -> None:
    content, shown = take()
    assert content == DEBIAN_FILE
    assert "toy 1.0 was taken from Debian's archive, http://127.0.0.1" in shown
    assert archives.asked == [DEBIAN_PATH]


def test_what_is_in_the_cache_is_taken_without_asking(archives: Archives) -> None:
    take()
    archives.asked.clear()
    assert take() == (DEBIAN_FILE, "")
    assert archives.asked == []


def test_archive_that_lacks_it_is_passed_over(archives: Archives) -> None:
    del archives.files[DEBIAN_PATH]
    content, shown = take()
    assert content == UPSTREAM_FILE
    assert f"{UPSTREAM_PATH}\n" in shown
    assert archives.asked == [DEBIAN_PATH, "/gone/toy-1.0.tar.gz", UPSTREAM_PATH]


def test_half_a_file_is_passed_over(archives: Archives, own_cache: Path) -> None:
    archives.cut.add(DEBIAN_PATH)
    assert take()[0] == UPSTREAM_FILE
    assert in_cache(own_cache) == ["toy-1.0.tar.gz"]


def test_apt_without_debian_is_passed_over(archives: Archives, tmp_path: Path) -> None:
    program(tmp_path / "programs", "apt-get", "echo 'http://other.example/||any|main|Other|Other'")
    assert take()[0] == UPSTREAM_FILE


@pytest.mark.parametrize(
    ("path", "pinned"), [(DEBIAN_PATH, DEBIAN_SHA256), (UPSTREAM_PATH, UPSTREAM_SHA256)]
)
def test_falsified_file_is_refused(
    archives: Archives, own_cache: Path, path: str, pinned: str
) -> None:
    del archives.files[DEBIAN_PATH]
    archives.files[path] = false = b"as somebody else packs it"
    with pytest.raises(TestbedError) as caught:
        take()
    text = str(caught.value)
    assert path in text
    assert f"its SHA-256 is {hashlib.sha256(false).hexdigest()}, and {pinned} is pinned" in text
    assert "HYDRA_SOURCES" in text
    assert archives.asked[-1] == path, "another place was asked after that"
    assert in_cache(own_cache) == []


def test_where_none_has_it_the_error_says_which_file_to_put_where(
    archives: Archives, own_cache: Path
) -> None:
    archives.files.clear()
    with pytest.raises(TestbedError) as caught:
        take()
    text = str(caught.value)
    assert text.count("404 Not Found") == 3
    assert f"put toy_1.0.orig.tar.gz (SHA-256 {DEBIAN_SHA256}) or toy-1.0.tar.gz (SHA-256 " in text
    assert "into a folder and name that in HYDRA_SOURCES" in text
    assert "\n" not in text
    assert in_cache(own_cache) == []


# A folder of the user's own.


@pytest.fixture
def own_sources(archives: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "own sources"
    folder.mkdir()
    monkeypatch.setenv("HYDRA_SOURCES", str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [("toy_1.0.orig.tar.gz", DEBIAN_FILE), ("toy-1.0.tar.gz", UPSTREAM_FILE)],
)
def test_folder_of_the_user_comes_first(
    archives: Archives, own_sources: Path, name: str, content: bytes
) -> None:
    (own_sources / name).write_bytes(content)
    taken, shown = take()
    assert taken == content
    assert f"toy 1.0 was taken from {own_sources / name}" in shown
    assert archives.asked == []
    # It is in the cache now, so the folder isn't needed.
    (own_sources / name).unlink()
    assert take() == (content, "")


def test_folder_that_lacks_it_is_passed_over(archives: Archives, own_sources: Path) -> None:
    assert take()[0] == DEBIAN_FILE


def test_wrong_file_of_the_user_is_refused(archives: Archives, own_sources: Path) -> None:
    (own_sources / "toy-1.0.tar.gz").write_bytes(DEBIAN_FILE)
    with pytest.raises(TestbedError, match=r"own sources/toy-1\.0\.tar\.gz is not toy 1\.0"):
        take()
    assert archives.asked == []


def test_folder_that_is_none_is_bad_input(
    archives: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_SOURCES", "/nowhere")
    with pytest.raises(InputError, match="HYDRA_SOURCES is /nowhere: there is no such folder"):
        take()


# Builds of a release with two tarballs.


def test_a_build_of_either_tarball_counts(
    archives: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a build from upstream's file, neither tarball is needed."""
    monkeypatch.setattr(builds, "ROOM_BYTES", 0)
    progress = Progress(io.StringIO())
    _, of_upstream = toy_recipes()
    built = builds.build(of_upstream, lambda folder, _log: None, progress)
    assert builds.first_finished(toy_recipes()) == built
    assert built.source_sha256 == UPSTREAM_SHA256
    assert built.key != toy_recipes()[0].key


def toy_recipes() -> list[builds.Recipe]:
    return [
        builds.Recipe("toy", "1.0", (origin,), configuration="", compiler="cc", steps=1)
        for origin in builds.tarball_ingredients(releases.named("toy", "1.0"))
    ]


def test_source_that_changed_while_it_was_built_is_said(archives: Archives) -> None:
    with pytest.raises(TestbedError, match="changed during the build"):
        builds.taking(toy_recipes(), "0" * 64)
