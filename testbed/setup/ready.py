"""The set-up as one call: all that runs need is there, or gets made.

What each part needs is said in its own module.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from testbed.setup import kernel, packages, tor
from testbed.setup.builds import Build
from testbed.setup.steps import Progress


@dataclass(frozen=True)
class TorNeed:
    """A Tor that is needed: which source, with which patches (paths, in order)."""

    source: tor.TorSource = tor.DEBIAN
    patches: tuple[Path, ...] = ()


def tor_need(tree: str | Path | None, patches: Iterable[Path]) -> TorNeed:
    """The Tor of a source tree of the user's own, or of Debian's source, with some patches."""
    source = tor.TorSource(Path(tree)) if tree else tor.DEBIAN
    return TorNeed(source, tuple(patches))


@dataclass(frozen=True)
class Ready:
    """What runs need: the kernel's build, and Tor's build for each need."""

    kernel: Build
    tors: dict[TorNeed, Build]


def ensure_ready(console: Console, needs: Iterable[TorNeed]) -> Ready:
    """Return the builds that runs need; install and build first what is missing.

    Takes some 50 ms when all is there.

    Args:
        console: where progress is shown.
        needs: the Tors; the same one twice is built once.

    Raises:
        TestbedError: something can't be had; its text says what and how to get it.
    """
    progress = Progress(console.file, live=console.is_terminal)
    packages.ensure_packages(progress)
    unlike = dict.fromkeys(needs)
    tors = {need: tor.tor_build(need.source, need.patches, progress) for need in unlike}
    return Ready(kernel=kernel.kernel_build(progress), tors=tors)
