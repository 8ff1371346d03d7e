"""The makers of a run, by its manifest: what runs must share to be combined, and all versions.

Whatever an older manifest lacks is "not recorded", and so the same in all of them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from testbed.basics.toml_file import PROJECT
from testbed.setup.own_code import IN_THE_MACHINE

NOT_RECORDED = "not recorded"

FILES = "files"
"""The key of `files_sha256` in a manifest's `project`."""

SHOWN_DIGITS = 16
"""The digits of a hash that people read, as many as a build's key has."""

Manifest = Mapping[str, Any]


def files_sha256() -> str:
    """A hash over the rooms of the testbed that make a run: their files' names and contents.

    Users' files are in the plan, and builds of the set-up have keys of their own.
    """
    total = hashlib.sha256()
    rooms = [PROJECT / "testbed" / room for room in (*IN_THE_MACHINE, "machines")]
    for path in sorted(path for room in rooms for path in room.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(PROJECT)} {content}\n".encode())
    return total.hexdigest()


def makers(machine: str, manifest: Manifest) -> dict[str, str]:
    """The things that runs must share to be combined, whatever their variants, in words.

    Of Tor's build they leave out what the plan says: patches, and the release if the variant names
    one; and all of it if the source is a tree of the variant's own. They don't include C library,
    OpenSSL and Python: with others a run has other bytes, but no other distribution, as computing
    takes no time in virtual time.
    """
    return {
        "machine": machine,
        **_shared_of_tor(manifest),
        "kernel": _kernel(manifest),
        "the testbed's files": _digits((manifest.get("project") or {}).get(FILES)),
    }


def unlike(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Describe how two runs' makers differ; empty if they don't.

    Things that only one of them has are ignored.

    Returns:
        Such as "Tor is 0.4.9.11, not 0.4.9.12".
    """
    return "; ".join(
        f"{name} is {text}, not {other[name]}"
        for name, text in one.items()
        if other.get(name, text) != text
    )


Version = str | Mapping[str, str]
"""The version of one thing, or of several things of a kind by their names."""


def ran_with(manifest: Manifest) -> dict[str, Version]:
    """Everything recorded about the programs and the machine of a run, for readers."""
    project, machine = manifest.get("project") or {}, manifest.get("machine") or {}
    libraries = dict(manifest.get("libraries") or {})
    changed = " with uncommitted changes" if project.get("dirty") else ""
    return {
        "testbed": f"{project.get('version')}, commit {project.get('commit')}{changed}",
        "testbed: files": _digits(project.get(FILES)),
        **dict(_of_build("Tor", manifest.get("tor") or {})),
        "kernel": _kernel(manifest),
        **dict(_of_build("kernel", manifest.get("kernel") or {})),
        "C library": libraries.pop("libc.so.6", NOT_RECORDED),
        "OpenSSL": libraries.pop("libcrypto.so.3", NOT_RECORDED),
        "other libraries": libraries or NOT_RECORDED,
        "Debian packages": manifest.get("debian") or NOT_RECORDED,
        "Python": _or_not_recorded(manifest.get("python")),
        "Python packages": manifest.get("packages") or NOT_RECORDED,
        "machine": f"{machine.get('name')}, {machine.get('memory_mb')} MB",
        "host": {name: str(value) for name, value in (machine.get("host") or {}).items()},
    }


def _of_build(what: str, build: Mapping[str, Any]) -> Iterator[tuple[str, Version]]:
    """The facts of a program's build; none if the program is the host's own."""
    if build:
        yield what, f"{build.get('version')}, build {build.get('key')}"
        yield f"{what}: compiler", _or_not_recorded(build.get("compiler"))
        yield f"{what}: configuration", _configuration(build)
        for kind in ("sources", "patches"):
            yield f"{what}: {kind}", _files(build.get(kind, [])) or "none"


def _shared_of_tor(manifest: Manifest) -> dict[str, str]:
    """The things about Tor that runs must share, apart from what their plans say."""
    planned, built = manifest["plan"].get("tor") or {}, manifest.get("tor") or {}
    if planned.get("source"):
        return {}
    how = {
        "Tor's configuration": _configuration(built),
        "Tor's compiler": _or_not_recorded(built.get("compiler")),
    }
    if planned.get("release"):
        return how
    sources = ", ".join(_digits(file.get("sha256")) for file in built.get("sources", ()))
    return {
        "Tor": _or_not_recorded(built.get("version")),
        "Tor's source": sources or NOT_RECORDED,
        **how,
    }


def _kernel(manifest: Manifest) -> str:
    if "kernel" not in manifest:
        return NOT_RECORDED
    build = manifest["kernel"]
    return f"{build.get('version')}, build {build.get('key')}" if build else "the host's"


def _files(files: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(f"{file.get('name')}, sha256 {file.get('sha256')}" for file in files)


def _configuration(build: Mapping[str, Any]) -> str:
    """A hash over the options and steps of a program's build."""
    if "configuration" not in build:
        return NOT_RECORDED
    text = f"{build['configuration']}\nsteps {build.get('steps')}\n"
    return _digits(hashlib.sha256(text.encode()).hexdigest())


def _digits(sha256: str | None) -> str:
    return NOT_RECORDED if sha256 is None else f"sha256 {sha256[:SHOWN_DIGITS]}"


def _or_not_recorded(text: str | None) -> str:
    return NOT_RECORDED if text is None else text
