"""The set-up as one call: installs and builds all that runs need and is missing.

Each part's own needs are in its own module.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from testbed.basics.steps import Progress
from testbed.setup import builds, kernel, packages, releases, tor
from testbed.setup.builds import Build
from testbed.setup.releases import Choice
from testbed.setup.side_by_side import Task, side_by_side


@dataclass(frozen=True)
class TorNeed:
    """A Tor that is needed: its source and its patches (paths, in order)."""

    source: tor.TorSource = tor.CHOSEN
    patches: tuple[Path, ...] = ()


def tor_need(tree: str | Path | None, release: str | None, patches: Iterable[Path]) -> TorNeed:
    """The Tor of a user's own source tree, or else of a release, with some patches.

    Args:
        release: the version; None for this cache's choice.
    """
    return TorNeed(tor.TorSource(Path(tree) if tree else None, release), tuple(patches))


@dataclass(frozen=True)
class Ready:
    """The builds for runs: the kernel, and a Tor for each need."""

    kernel: Build
    tors: dict[TorNeed, Build]


def ensure_ready(console: Console, needs: Iterable[TorNeed]) -> Ready:
    """Return the builds that runs need; first install and build what is missing.

    Takes some 50 ms if nothing is missing.

    Args:
        console: where progress is shown.
        needs: the Tors, each of which is built once.

    Raises:
        TestbedError: something is unavailable; says what it is and how to get it.
    """
    progress, unlike = _progress(console), list(dict.fromkeys(needs))
    packages.ensure_packages(progress)
    # The kernel comes first, as it takes longest.
    linux: Task[Build] = (kernel.choice().release.title, partial(kernel.kernel_build, progress))
    built, *tors = side_by_side([linux, *_tor_tasks(unlike, progress)], progress)
    _name_other_choices([kernel.choice(), *_chosen_tor(unlike)], progress)
    return Ready(kernel=built, tors=dict(zip(unlike, tors, strict=True)))


def ensure_tors(console: Console, needs: Iterable[TorNeed]) -> dict[TorNeed, Build]:
    """Like `ensure_ready` without a kernel, for runs on the host's own."""
    progress, unlike = _progress(console), list(dict.fromkeys(needs))
    packages.ensure_packages(progress)
    tors = side_by_side(_tor_tasks(unlike, progress), progress)
    _name_other_choices(_chosen_tor(unlike), progress)
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
    """This cache's choice of Tor, if one of the needs uses it."""
    return [releases.chosen("tor")] if any(need.source == tor.CHOSEN for need in needs) else []


def _name_other_choices(choices: Iterable[Choice], progress: Progress) -> None:
    """Name releases that aren't the first choice: their runs are kept apart from others."""
    for choice in choices:
        if choice.other:
            progress.say(str(choice))


def _progress(console: Console) -> Progress:
    return Progress(console.file, live=console.is_terminal)
