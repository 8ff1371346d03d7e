"""Archives on loopback, with sources and signed indexes; they record what was requested.

apt's own loader uses them, as it does Debian's archive and upstream's.
"""

import hashlib
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_setup import program

from testbed.setup import archives, releases

DEBIAN = "/debian/"
KEY_OWNER = "archive@localhost"

# apt's list of archives is replaced; everything else apt does itself.
APT_GET = """
case "$1" in
indextargets) echo '{address}{archive}|bookworm|main|Debian|Debian' ;;
*) PATH=/usr/bin:/bin exec apt-get "$@" ;;
esac
"""


@dataclass(frozen=True)
class Named:
    """A source in an index: its version, and the path and content of its tarball."""

    version: str
    path: str
    content: bytes = b""

    @property
    def paragraph(self) -> str:
        """The source's paragraph in the index."""
        folder, _, name = self.path.rpartition("/")
        return (
            f"Package: {name.partition('_')[0]}\nVersion: {self.version}\n"
            f"Directory: {folder}\nFormat: 3.0 (quilt)\nChecksums-Sha256:\n"
            f" {'0' * 64} 1000 {name.partition('.orig')[0]}.dsc\n"
            f" {_sha256(self.content)} {len(self.content)} {name}\n"
        )


class Archives:
    """Archives on loopback.

    Attributes:
        files: the files' contents by path.
        cut: the paths of files that are sent only in half.
        asked: the paths that were requested.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.address = ""
        self.files = dict(files)
        self.cut: set[str] = set()
        self.asked: list[str] = []

    def sign_index(
        self, named: Iterable[Named], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Give Debian's archive a signed index of the suite unstable, and let apt trust its key.

        Args:
            named: the sources in the index, which the archive may have or not.
            folder: a folder for the key.
        """
        key = _Key(folder)
        sources = "\n\n".join(one.paragraph for one in named).encode()
        release = (
            "Origin: Debian\nLabel: Debian\nSuite: unstable\nCodename: sid\nComponents: main\n"
            "Architectures: amd64\nDate: Tue, 24 Nov 2026 00:00:00 UTC\nSHA256:\n"
            f" {_sha256(sources)} {len(sources)} main/source/Sources\n"
        )
        self.files[f"{DEBIAN}dists/unstable/main/source/Sources"] = sources
        self.files[f"{DEBIAN}dists/unstable/InRelease"] = key.signed(release)
        key.end()
        monkeypatch.setattr(archives, "KEYRINGS", (key.public,))


class _Key:
    """Make a key pair of the test's own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("gpg") is None:
            pytest.skip("signing an index needs Debian's gnupg")
        self._home = folder / "keys"
        self._home.mkdir(mode=0o700)
        self.public = folder / "archive.gpg"
        self._gpg("--quick-generate-key", KEY_OWNER, "rsa2048", "sign", "never")
        self.public.write_bytes(self._gpg("--export", KEY_OWNER))

    def signed(self, text: str) -> bytes:
        """The text with its signature, like an InRelease file."""
        return self._gpg("--clearsign", stdin=text.encode())

    def end(self) -> None:
        """End the daemon that GnuPG has started for the key."""
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "all"], check=True)

    def _gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        quiet = ["gpg", "--homedir", str(self._home), "--batch", "--quiet", "--passphrase", ""]
        return subprocess.run(
            [*quiet, "--pinentry-mode", "loopback", *arguments],
            input=stdin,
            capture_output=True,
            check=True,
        ).stdout


@contextmanager
def serving(
    files: Mapping[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archives]:
    """Serve files by path; apt takes those below `DEBIAN` for Debian's archive."""
    served = Archives(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            content = served.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in served.cut else content)
            self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    programs = folder / "programs"
    programs.mkdir()
    program(programs, "apt-get", APT_GET.format(address=served.address, archive=DEBIAN))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (folder / "apt.conf").write_text('Acquire::http::Proxy::127.0.0.1 "DIRECT";\n')
    monkeypatch.setenv("APT_CONFIG", str(folder / "apt.conf"))
    monkeypatch.delenv("HYDRA_SOURCES", raising=False)
    yield served
    server.shutdown()
    server.server_close()


def write_pins(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the project's pins."""
    path.write_text(text)
    monkeypatch.setattr(releases, "PINS", path)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
