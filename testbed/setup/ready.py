"""The set-up as one call: all that runs need is there, or gets made.

What each part needs is said in its own module.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from testbed.setup import builds, kernel, packages, releases, tor
from testbed.setup.builds import Build
from testbed.setup.releases import Choice
from testbed.setup.side_by_side import Task, side_by_side
from testbed.setup.steps import Progress


@dataclass(frozen=True)
class TorNeed:
    """A Tor that is needed: which source, with which patches (paths, in order)."""

    source: tor.TorSource = tor.CHOSEN
    patches: tuple[Path, ...] = ()


def tor_need(tree: str | Path | None, release: str | None, patches: Iterable[Path]) -> TorNeed:
    """The Tor of a source tree of the user's own, or else of a release, with some patches.

    Args:
        release: None for the one that this cache has chosen.
    """
    return TorNeed(tor.TorSource(Path(tree) if tree else None, release), tuple(patches))


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
    progress, unlike = _progress(console), list(dict.fromkeys(needs))
    packages.ensure_packages(progress)
    # The kernel first, as it takes longest.
    linux: Task[Build] = (kernel.choice().release.title, partial(kernel.kernel_build, progress))
    built, *tors = side_by_side([linux, *_tor_tasks(unlike, progress)], progress)
    _tell_others([kernel.choice(), *_chosen_tor(unlike)], progress)
    return Ready(kernel=built, tors=dict(zip(unlike, tors, strict=True)))


def ensure_tors(console: Console, needs: Iterable[TorNeed]) -> dict[TorNeed, Build]:
    """The same without the kernel, for runs on the host's own."""
    progress, unlike = _progress(console), list(dict.fromkeys(needs))
    packages.ensure_packages(progress)
    tors = side_by_side(_tor_tasks(unlike, progress), progress)
    _tell_others(_chosen_tor(unlike), progress)
    return dict(zip(unlike, tors, strict=True))


def _tor_tasks(needs: Iterable[TorNeed], progress: Progress) -> list[Task[Build]]:
    return [
        (
            builds.with_patches(need.source.title, need.patches),
            partial(tor.tor_build, need.source, need.patches, progress),
        )
        for need in needs
    ]


def _chosen_tor(needs: Iterable[TorNeed]) -> list[Choice]:
    """The choice of Tor, if one of the needs leaves it to that."""
    return [releases.chosen("tor")] if any(need.source == tor.CHOSEN for need in needs) else []


def _tell_others(choices: Iterable[Choice], progress: Progress) -> None:
    """Tell what isn't the first choice: runs with it are not put together with others'."""
    for choice in choices:
        if choice.other:
            progress.say(str(choice))


def _progress(console: Console) -> Progress:
    return Progress(console.file, live=console.is_terminal)
