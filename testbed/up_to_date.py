"""Whether a run on disk is the one that a plan would give now: of this plan, and made by the same.

Nothing is built to find out, and nothing is run.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.plan_differences import differences
from testbed.plan_model import Plan
from testbed.results import Run
from testbed.results.made_by import FILES, files_sha256, makers, unlike
from testbed.runner import plan_need
from testbed.setup import builds, kernel, tor
from testbed.setup.builds import Recipe
from testbed.setup.ready import Ready, TorNeed


class Today:
    """What would make a run now. Each thing is looked up once, and only if it is asked for."""

    def __init__(self, ready: Ready | None = None) -> None:
        """By the recipes of the builds; or the builds themselves, where they are `ready`."""
        self._ready = ready
        self._tors: dict[TorNeed, dict[str, Any]] = {}

    def manifest(self, plan: Plan) -> dict[str, Any]:
        """Of a run of a plan, as far as it says what made it."""
        return {
            "plan": plan.model_dump(mode="json"),
            "tor": self._tor(plan_need(plan)),
            "kernel": self._kernel,
            "project": {FILES: self._files_sha256},
        }

    def _tor(self, need: TorNeed) -> dict[str, Any]:
        if need not in self._tors:
            self._tors[need] = self._ready.tors[need].metadata if self._ready else tor_now(need)
        return self._tors[need]

    @cached_property
    def _kernel(self) -> dict[str, Any]:
        return self._ready.kernel.metadata if self._ready else kernel_now()

    @cached_property
    def _files_sha256(self) -> str:
        return files_sha256()


def tor_now(need: TorNeed) -> dict[str, Any]:
    """What the metadata of this Tor's build would be, but for when it was built."""
    return _metadata(tor.tor_recipes(need.source, need.patches))


def kernel_now() -> dict[str, Any]:
    """The same of the kernel."""
    return _metadata(kernel.kernel_recipes())


def _metadata(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Of the build that there is, or else of the one that is likely to come."""
    if known := builds.first_finished(recipes):
        return known.metadata
    recipe = recipes[0]
    return {**asdict(recipe), "key": recipe.key}


def reason_against(run: Run, plan: Plan, today: Today, *, mixed: bool = False) -> str | None:
    """Why a run is not what the virtual machine would make of a plan now; None if it is.

    Args:
        mixed: whether what made it may be another.

    Returns:
        A phrase that goes on after "it is", such as "of another plan: seed is 2, not 1".
    """
    if run.summary.machine != "virtual":
        return f"of the {run.summary.machine} machine"
    if run.manifest["plan_key"] != plan.key and (
        differing := differences(run.manifest["plan"], plan.model_dump(mode="json"))
    ):
        return f"of another plan: {differing}"
    if mixed:
        return None
    if plan.tor.source and run.manifest["tor"]["sources"][0]["sha256"] != tor.tree_sha256(
        Path(plan.tor.source)
    ):
        return f"made by another (--mixed keeps it): {plan.tor.source} was changed since"
    if changed := unlike(run.makers, makers("virtual", today.manifest(plan))):
        return f"made by another (--mixed keeps it): {changed}"
    return None
