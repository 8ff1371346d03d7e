"""Decides whether a run on disk is the one that a plan would give now.

It must be of this plan, and made by the same Tor, kernel and testbed. Nothing is built or run to
find out.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.results import Run
from testbed.results.differences import differences
from testbed.results.made_by import FILES, files_sha256, makers, unlike
from testbed.runs.runner import plan_need
from testbed.setup import builds, kernel, tor
from testbed.setup.builds import Recipe
from testbed.setup.ready import Ready, TorNeed


class Today:
    """The Tors, kernel and testbed that would make a run now, each looked up once, when needed."""

    def __init__(self, ready: Ready | None = None) -> None:
        """Use builds that are `ready`, or else the recipes of the builds."""
        self._ready = ready
        self._tors: dict[TorNeed, dict[str, Any]] = {}

    def manifest(self, plan: Plan) -> dict[str, Any]:
        """The parts of the manifest of a plan's run that say what made it."""
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
    """The metadata of a Tor's build, or what it would be, without the time of the build."""
    return _metadata(tor.tor_recipes(need.source, need.patches))


def kernel_now() -> dict[str, Any]:
    """The metadata of the kernel's build, or what it would be."""
    return _metadata(kernel.kernel_recipes())


def _metadata(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The metadata of the first finished build, or else of the most likely one."""
    if known := builds.first_finished(recipes):
        return known.metadata
    recipe = recipes[0]
    return {**asdict(recipe), "key": recipe.key}


def reason_against(run: Run, plan: Plan, today: Today, *, mixed: bool = False) -> str | None:
    """Why a run is not the one that the virtual machine would give for a plan now; None if it is.

    Args:
        mixed: whether another Tor, kernel or testbed may have made it.

    Returns:
        A phrase that continues "it is", such as "of another plan: seed is 2, not 1".
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
