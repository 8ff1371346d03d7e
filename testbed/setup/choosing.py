"""Chooses the release to build: the first that is available.

`releases` has the pinned ones, `archives` those in apt's indexes; `ready` tells users which one is
in use if it isn't the first choice. Standard library only.
"""

from collections.abc import Callable, Iterator

from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress
from testbed.setup import archives, releases
from testbed.setup.builds import Build, Misfit
from testbed.setup.releases import Release
from testbed.setup.sources import SourceTarball, Unavailable, source_tarball

Make = Callable[[Release, SourceTarball], Build]
"""Builds a release from its tarball."""


def build_first(project: str, version: str | None, make: Make, progress: Progress) -> Build:
    """Build the first available release of a project, and keep it as this cache's choice.

    The pinned releases come first, in their order; then, newest first, the releases of each series
    in apt's signed indexes of today, if the testbed's patches fit them.

    Args:
        project: `tor` or `linux`.
        version: the only version to build, if the user has named one.
        make: builds a release.
        progress: shows the steps.

    Raises:
        InputError: that version isn't pinned.
        TestbedError: no release is available, or building one failed.
    """
    if version is not None:
        release = releases.named(project, version)
        return make(release, source_tarball(release, progress))
    absent: list[Unavailable] = []
    others: list[str] = []

    def reasons() -> list[str]:
        lacking = ", ".join(error.release.version for error in absent)
        return [f"no place has {project} {lacking}", *others] if absent else others

    for release in _candidates(project, progress, others):
        try:
            build = make(release, source_tarball(release, progress))
        except Unavailable as error:
            absent.append(error)
            continue
        except Misfit as error:
            if release.pinned:  # a fault of the testbed, which must not be hidden
                raise
            others.append(f"{error.file.name} does not fit {release.title}")
            continue
        releases.choose(release, "; ".join(reasons()))
        return build
    raise TestbedError(f"{'; '.join(reasons())}: {absent[0]}")


def _candidates(project: str, progress: Progress, others: list[str]) -> Iterator[Release]:
    pinned = releases.in_order(project)
    yield from pinned
    before = releases.chosen(project).release
    if not before.pinned:
        yield before  # its tarball may be in the cache while the archive is out of reach
    try:
        listed = archives.listed(project, releases.series(project), progress)
    except TestbedError as error:
        others.append(str(error))
        return
    tried = {release.version for release in (*pinned, before)}
    yield from (release for release in listed if release.version not in tried)
