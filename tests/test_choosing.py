"""Which release is built, if an archive on loopback has only some of the possible ones.

Toys are built, by the same steps as Tor and the kernel.
"""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_archive import DEBIAN, Archives, Named, serving, write_pins

from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress
from testbed.setup import builds, kernel, releases, tor

KERNELS = ("2.2.8", "2.1.8", "1.12.107")
"""The pinned releases, in their order."""
NEWER = ("2.2.13", "2.1.9", "1.12.117")
"""Releases of the same series, as in an index."""
TOR, NEWER_TOR = "0.4.9.11", "0.4.9.15"

MAKEFILE = "tinyconfig:\n\ttouch .config\nolddefconfig:\nlinux: version\n\tcp /bin/true linux\n"
CONFIGURE = """#!/bin/sh
cat > Makefile <<'END'
src/app/tor src/tools/tor-gencert: version
\tmkdir -p $(@D)
\tcp version $@
END
"""
PATCH = "--- a/version\n+++ b/version\n@@ -1 +1 @@\n-{}\n+{}\n"


def path_of(project: str, version: str) -> str:
    return f"pool/main/{project[0]}/{project}/{project}_{version}.orig.tar.gz"


def tarball(project: str, version: str) -> bytes:
    """A release that builds in a moment; its product contains its version."""
    files = {"version": f"any\n{version}\n", "Makefile": MAKEFILE}
    if project == "tor":
        files |= {"configure": CONFIGURE}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{project}-{version}/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture
def archive(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> "Iterator[Archive]":
    """An archive without releases, until a test adds some."""
    monkeypatch.delenv("HYDRA_KERNEL", raising=False)
    monkeypatch.setattr(builds, "ROOM_BYTES", 0)
    monkeypatch.setattr(kernel, "FOLDER", tmp_path / "patches")
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "0001-any.patch").write_text(
        "--- a/version\n+++ b/version\n@@ -1 +1 @@\n-any\n+our\n"
    )
    of = {"linux": KERNELS, "tor": (TOR,)}
    pins = "[order]\n" + "".join(f"{name} = {list(versions)}\n" for name, versions in of.items())
    pins += '[series]\nlinux = ["2.2", "2.1", "1.12"]\ntor = ["0.4.9"]\n'
    for project, versions in of.items():
        for version in versions:
            sha256 = hashlib.sha256(tarball(project, version)).hexdigest()
            pins += f'[[{project}."{version}"]]\nsha256 = "{sha256}"\n'
            pins += f'debian = "{path_of(project, version)}"\n'
    with serving({}, tmp_path, monkeypatch) as served:
        write_pins(tmp_path / "pins.toml", pins, monkeypatch)
        yield Archive(served, tmp_path, monkeypatch)


@dataclass
class Archive:
    """The archive, whose index lists all newer releases, whether it has them or not."""

    served: Archives
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def has(self, project: str, *versions: str) -> None:
        """Let the archive have these releases, and no others."""
        self.served.files = {
            f"{DEBIAN}{path_of(project, version)}": tarball(project, version)
            for version in versions
        }
        newer = NEWER if project == "linux" else (NEWER_TOR,)
        named = [
            Named(f"{version}-1", path_of(project, version), tarball(project, version))
            for version in newer
        ]
        self.served.sign_index(named, self.folder, self.monkeypatch)


def built_kernel() -> tuple[builds.Build, str]:
    """The kernel's content, and the message about its release."""
    return kernel.kernel_build(Progress(io.StringIO())), str(kernel.choice())


@pytest.mark.parametrize("version", [*KERNELS, *NEWER])
def test_the_only_kernel_that_can_be_had_is_taken_and_said(version: str, archive: Archive) -> None:
    archive.has("linux", version)
    build, said = built_kernel()
    assert build.metadata["version"] == version
    first = version == KERNELS[0]
    reason = "the first choice" if first else f"no place has linux {KERNELS[0]}"
    assert said.startswith(f"linux {version} is in use: {reason}")
    # Now it is in the cache, and the archive isn't asked again.
    archive.served.files.clear()
    archive.served.asked.clear()
    assert built_kernel() == (build, said)
    assert archive.served.asked == []


def test_pins_come_before_what_an_index_names(archive: Archive) -> None:
    archive.has("linux", *NEWER, *KERNELS[1:])
    build, said = built_kernel()
    assert build.metadata["version"] == KERNELS[1]
    assert not [path for path in archive.served.asked if "Sources" in path]
    assert said == "linux 2.1.8 is in use: no place has linux 2.2.8"


def test_what_the_patches_do_not_fit_is_passed_over(archive: Archive, tmp_path: Path) -> None:
    archive.has("linux", *NEWER)
    series = tmp_path / "patches" / "2.2"
    series.mkdir()
    (series / "0001-any.patch").write_text(PATCH.format("another", "ours"))
    build, said = built_kernel()
    assert build.metadata["version"] == "2.1.9"
    assert said == (
        "linux 2.1.9 is in use: no place has linux 2.2.8, 2.1.8, 1.12.107;"
        " 0001-any.patch does not fit linux 2.2.13"
    )


def test_a_patch_that_does_not_fit_a_pinned_kernel_is_a_fault(
    archive: Archive, tmp_path: Path
) -> None:
    archive.has("linux", *KERNELS)
    (tmp_path / "patches" / "0001-any.patch").write_text(PATCH.format("another", "ours"))
    with pytest.raises(
        TestbedError, match=r"0001-any\.patch does not fit linux 2\.2\.8 in version"
    ):
        built_kernel()


def test_where_nothing_can_be_had_the_error_says_all(archive: Archive) -> None:
    archive.has("linux")
    with pytest.raises(TestbedError) as caught:
        built_kernel()
    text = str(caught.value)
    assert text.startswith(f"no place has linux {', '.join([*KERNELS, *NEWER])}: linux 2.2.8: ")
    assert "put linux_2.2.8.orig.tar.gz (SHA-256" in text
    assert "\n" not in text


def test_a_falsified_file_of_an_index_is_refused(archive: Archive) -> None:
    archive.has("linux", NEWER[0])
    archive.served.files[f"{DEBIAN}{path_of('linux', NEWER[0])}"] = tarball("linux", "9.9.9")
    with pytest.raises(TestbedError, match="is in Debian's signed index: it was refused"):
        built_kernel()


def test_a_named_kernel_is_built_or_nothing(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.has("linux", KERNELS[0])
    monkeypatch.setenv("HYDRA_KERNEL", KERNELS[2])
    with pytest.raises(TestbedError, match=r"linux 1\.12\.107: no place has its source"):
        built_kernel()
    monkeypatch.delenv("HYDRA_KERNEL")
    assert built_kernel()[0].metadata["version"] == KERNELS[0]


def test_another_order_is_another_choice(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.has("linux", KERNELS[1])
    built_kernel()
    pins = releases.PINS.read_text().replace("'2.2.8', '2.1.8'", "'2.1.8', '2.2.8'")
    write_pins(tmp_path / "pins.toml", pins, monkeypatch)
    assert str(kernel.choice()) == "linux 2.1.8 is in use: the first choice"


def test_tor_is_of_the_archive_where_the_pinned_one_is_nowhere(
    archive: Archive, tmp_path: Path
) -> None:
    archive.has("tor", NEWER_TOR)
    patch = tmp_path / "own.patch"
    patch.write_text(f"--- a/version\n+++ b/version\n@@ -1,2 +1,2 @@\n-any\n+own\n {NEWER_TOR}\n")
    progress = Progress(io.StringIO())
    patched = tor.tor_build(tor.CHOSEN, [patch], progress)
    assert patched.product("tor").read_text() == f"own\n{NEWER_TOR}\n"
    plain = tor.tor_build(tor.CHOSEN, [], progress)
    assert plain.product("tor").read_text() == f"any\n{NEWER_TOR}\n"
    assert str(releases.chosen("tor")) == f"tor {NEWER_TOR} is in use: no place has tor {TOR}"


def test_a_tor_that_a_variant_names_is_that_one_or_none(archive: Archive) -> None:
    archive.has("tor", NEWER_TOR)
    with pytest.raises(TestbedError, match=rf"tor {TOR}: no place has its source"):
        tor.tor_build(tor.TorSource(release=TOR), [], Progress(io.StringIO()))
