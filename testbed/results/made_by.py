"""What made a run, by its manifest: what runs must share to be put together, and all it ran with.

What an older manifest doesn't say is "not recorded", and so the same in all of them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from testbed.toml_file import PROJECT

NOT_RECORDED = "not recorded"

FILES = "files"
"""The key of `files_sha256` in a manifest's `project`."""

SHOWN_DIGITS = 16
"""Of a hash, where people read it. A build's key has no more."""

FOLDERS = ("testbed", "tor-configs/torrc")
AROUND_RUNS = (
    *(
        "batch",
        "setup",
        "bare_host.py",
        "bench.py",
        "bench_network.py",
        "cli.py",
        "drawing.py",
        "ending.py",
        "idle.py",
        "repeats.py",
        "shell.py",
    ),
    *("up_to_date.py", "verify.py"),
    *("network/bandwidth_weights.py", "network/consensus.py", "network/distilled.py"),
    *("network/distilled_places.py", "network/drawn.py", "network/exit_policies.py"),
    *("network/finding.py", "network/places.py", "network/positions.py", "network/routes.py"),
    *("network/sampled.py", "network/show.py", "network/summary.py"),
)
"""What of `testbed` has no part in a run. What `setup` builds, the builds' keys tell; and what is
drawn, the plan."""

Manifest = Mapping[str, Any]


def files_sha256() -> str:
    """A hash over the testbed's files that make a run: their names and contents.

    Scenarios, topologies and variants aren't among them: what they say is in the plan.
    """
    total = hashlib.sha256()
    left_out = {PROJECT / "testbed" / name for name in AROUND_RUNS}
    for path in sorted(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*")):
        compiled = "__pycache__" in path.parts
        if path.is_file() and not compiled and left_out.isdisjoint([path, *path.parents]):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(PROJECT)} {content}\n".encode())
    return total.hexdigest()


def makers(machine: str, manifest: Manifest) -> dict[str, str]:
    """What runs must share to be put together, whatever their variants: each thing in words.

    Of Tor it is the build without what the plan says: patches, and the release if the variant names
    one; and nothing if the source is a tree of the variant's own. C library, OpenSSL and Python
    don't belong to it: with others a run has other bytes, but no other distribution, as in virtual
    time computing takes no time.
    """
    return {
        "machine": machine,
        **_shared_of_tor(manifest),
        "kernel": _kernel(manifest),
        "the testbed's files": _digits((manifest.get("project") or {}).get(FILES)),
    }


def unlike(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """What differs in two runs' makers, in words; empty if nothing does.

    What only one of them says anything of is passed over.

    Returns:
        Such as "Tor is 0.4.9.11, not 0.4.9.12".
    """
    return "; ".join(
        f"{name} is {text}, not {other[name]}"
        for name, text in one.items()
        if other.get(name, text) != text
    )


Version = str | Mapping[str, str]
"""Of one thing, or of several of a kind by their names."""


def ran_with(manifest: Manifest) -> dict[str, Version]:
    """All that is recorded of what a run ran with, for readers."""
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
        "Python": _said(manifest.get("python")),
        "Python packages": manifest.get("packages") or NOT_RECORDED,
        "machine": f"{machine.get('name')}, {machine.get('memory_mb')} MB",
        "host": {name: str(value) for name, value in (machine.get("host") or {}).items()},
    }


def _of_build(what: str, build: Mapping[str, Any]) -> Iterator[tuple[str, Version]]:
    """Of a program that was built; nothing of the host's own."""
    if build:
        yield what, f"{build.get('version')}, build {build.get('key')}"
        yield f"{what}: compiler", _said(build.get("compiler"))
        yield f"{what}: configuration", _configuration(build)
        for kind in ("sources", "patches"):
            yield f"{what}: {kind}", _files(build.get(kind, [])) or "none"


def _shared_of_tor(manifest: Manifest) -> dict[str, str]:
    """What runs must share of Tor, as far as their plans don't say it."""
    said, built = manifest["plan"].get("tor") or {}, manifest.get("tor") or {}
    if said.get("source"):
        return {}
    how = {
        "Tor's configuration": _configuration(built),
        "Tor's compiler": _said(built.get("compiler")),
    }
    if said.get("release"):
        return how
    sources = ", ".join(_digits(file.get("sha256")) for file in built.get("sources", ()))
    return {"Tor": _said(built.get("version")), "Tor's source": sources or NOT_RECORDED, **how}


def _kernel(manifest: Manifest) -> str:
    if "kernel" not in manifest:
        return NOT_RECORDED
    build = manifest["kernel"]
    return f"{build.get('version')}, build {build.get('key')}" if build else "the host's"


def _files(files: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(f"{file.get('name')}, sha256 {file.get('sha256')}" for file in files)


def _configuration(build: Mapping[str, Any]) -> str:
    """A hash over how a program was built, options and steps."""
    if "configuration" not in build:
        return NOT_RECORDED
    text = f"{build['configuration']}\nsteps {build.get('steps')}\n"
    return _digits(hashlib.sha256(text.encode()).hexdigest())


def _digits(sha256: str | None) -> str:
    return NOT_RECORDED if sha256 is None else f"sha256 {sha256[:SHOWN_DIGITS]}"


def _said(text: str | None) -> str:
    return NOT_RECORDED if text is None else text
