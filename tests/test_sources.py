"""Where the sources come from: an archive on loopback has them, lacks, cuts and falsifies them.

It is asked by apt's own loader, as Debian's archive and upstream's are.
"""

import hashlib
import io
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_setup import program

from testbed.errors import InputError, TestbedError
from testbed.setup import builds, cache, kernel, sources, tor
from testbed.setup.steps import Progress

ARCHIVE = "http://archive.example/debian/"
DEBIAN_PATH = "/debian/pool/main/t/toy/toy_1.0.orig.tar.gz"
UPSTREAM_PATH = "/upstream/toy-1.0.tar.gz"
# As with Linux: the same release, and not the same file.
DEBIAN_FILE = b"as Debian packs it" * 1000
UPSTREAM_FILE = b"as upstream packs it" * 1000
DEBIAN_SHA256 = hashlib.sha256(DEBIAN_FILE).hexdigest()
UPSTREAM_SHA256 = hashlib.sha256(UPSTREAM_FILE).hexdigest()


class Archives:
    """Archives on loopback: what they have, by path, what of it they cut, and what was asked."""

    def __init__(self) -> None:
        self.files = {DEBIAN_PATH: DEBIAN_FILE, UPSTREAM_PATH: UPSTREAM_FILE}
        self.cut: set[str] = set()
        self.asked: list[str] = []


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HYDRA_SOURCES", raising=False)
    return cache.cache_folder()


@pytest.fixture
def archives(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archives]:
    """The project toy, of one release, and archives that have it."""
    archives = Archives()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            archives.asked.append(self.path)
            content = archives.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in archives.cut else content)
            self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()

    programs = tmp_path / "programs"
    programs.mkdir()
    program(programs, "apt-get", f"echo '{address}/debian/|bookworm|main|Debian|Debian'")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (tmp_path / "apt.conf").write_text('Acquire::http::Proxy::127.0.0.1 "DIRECT";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    write_pins(
        tmp_path / "pins.toml",
        f"""
        [default]
        toy = "1.0"
        [[toy."1.0"]]
        sha256 = "{DEBIAN_SHA256}"
        debian = "{DEBIAN_PATH.removeprefix("/debian/")}"
        [[toy."1.0"]]
        sha256 = "{UPSTREAM_SHA256}"
        upstream = ["{address}/gone/toy-1.0.tar.gz", "{address}{UPSTREAM_PATH}"]
        """,
        monkeypatch,
    )
    yield archives
    server.shutdown()
    server.server_close()


def write_pins(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(text)
    monkeypatch.setattr(sources, "PINS", path)


def take() -> tuple[bytes, str]:
    """The content of the toy's tarball, and what the set-up said of it."""
    shown = io.StringIO()
    tarball = sources.source_tarball(sources.release("toy"), Progress(shown))
    content = tarball.path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == tarball.sha256
    return content, shown.getvalue()


def in_cache(own_cache: Path) -> list[str]:
    """The names of what the cache has of sources, locks left out."""
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


# A folder of the user's own


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
    # It is in the cache now: the folder may go.
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


# Releases and their builds


def test_another_release_is_asked_for_by_name(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = sources.PINS.read_text()
    assert sources.release("tor").version == tomllib.loads(pins)["default"]["tor"]
    assert sources.release("tor", "0.4.5.16").tarballs != sources.release("tor").tarballs
    assert "0.4.5.16" in tor.TorSource(release="0.4.5.16").title
    with pytest.raises(
        InputError, match=r"tor 0\.4\.5\.1 is not pinned: there are 0\.4\.9\.11, 0\.4"
    ):
        sources.release("tor", "0.4.5.1")


def test_each_release_has_its_own_build() -> None:
    [old] = tor.tor_recipes(tor.TorSource(release="0.4.5.16"), [])
    [new] = tor.tor_recipes(tor.PINNED, [])
    assert (old.version, new.version) == ("0.4.5.16", sources.release("tor").version)
    assert old.key != new.key


def test_another_kernel_is_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYDRA_KERNEL", raising=False)
    default = kernel.chosen_release()
    monkeypatch.setenv("HYDRA_KERNEL", "7.3.4")
    assert kernel.chosen_release() != default
    assert {recipe.version for recipe in kernel.kernel_recipes()} == {"7.3.4"}
    monkeypatch.setenv("HYDRA_KERNEL", "6.1")
    with pytest.raises(InputError, match=r"linux 6\.1 is not pinned: there are 7\.2\.8, 7\.3\.4"):
        kernel.chosen_release()


def test_a_build_of_either_tarball_counts(
    archives: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has built upstream's file has no use for Debian's, nor for either any more."""
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
        for origin in builds.pinned_ingredients(sources.release("toy"))
    ]


def test_source_that_changed_while_it_was_built_is_said(archives: Archives) -> None:
    with pytest.raises(TestbedError, match="changed while it was built"):
        builds.taking(toy_recipes(), "0" * 64)


def test_pins_are_whole() -> None:
    pins = tomllib.loads(sources.PINS.read_text())
    default = pins.pop("default")
    assert default.keys() == pins.keys() == {"tor", "linux"}
    for project, versions in pins.items():
        for version in versions:
            release = sources.release(project, version)
            assert release.tarballs
            for tarball in release.tarballs:
                assert len(bytes.fromhex(tarball.sha256)) == 32
                assert tarball.names
                assert all(version in name for name in tarball.names)
                assert not tarball.debian.startswith(("/", "http"))
                assert all(address.startswith("https://") for address in tarball.upstream)


# Which archive


def test_main_archive_is_chosen_among_others() -> None:
    targets = [
        "http://other.example/apt/|bookworm|main|Other|Other",
        "http://security.example/|bookworm-security|main|Debian|Debian-Security",
        f"{ARCHIVE}|bookworm-updates|main|Debian|Debian",
        f"{ARCHIVE}|bookworm|contrib|Debian|Debian",
        f"{ARCHIVE}|bookworm|main|Debian|Debian",
        f"{ARCHIVE}|sid|main|Debian|Debian",
    ]
    assert sources.choose_archives(targets) == [ARCHIVE]


def test_field_that_apt_left_as_it_was_counts_as_empty() -> None:
    line = "http://archive.example/debian|trixie|main|$(ORIGIN)|$(LABEL)"
    assert sources.choose_archives([line]) == [ARCHIVE]


def test_mirrors_of_a_list_are_archives(tmp_path: Path) -> None:
    """As Debian's images for clouds have it."""
    (tmp_path / "mirrors.list").write_text(f"# ours\n{ARCHIVE}\npriority.example\tpriority:2\n")
    line = f"mirror+file:{tmp_path}/mirrors.list/|bookworm|main|Debian|Debian"
    assert sources.choose_archives([line]) == [ARCHIVE, "priority.example/"]


@pytest.mark.parametrize("targets", [[], ["nonsense"], ["http://u.example/|noble|main|Ubuntu|"]])
def test_apt_without_debian_is_said(targets: list[str]) -> None:
    with pytest.raises(TestbedError, match="no Debian archive"):
        sources.choose_archives(targets)


def test_unreadable_apt_state_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "apt-get", "echo 'E: Malformed entry 1 in list file' >&2; exit 100")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TestbedError, match=r"Malformed entry 1 in list file.*repair /etc/apt"):
        sources.debian_archives()
