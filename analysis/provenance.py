"""Where runs come from: their list, checks, versions and variants, and the commands to repeat them.

Their results are in `analysis.tables`.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.metrics.metric import Metric
from analysis.metrics.transfers import (
    CIRCUIT_ROUND_TRIP,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    TIME_TO_LAST_BYTE,
)
from analysis.runs import Found
from analysis.table import Table
from analysis.wording import NOTHING
from testbed.asked.scenario import SCENARIOS
from testbed.asked.variant_name import as_typed
from testbed.basics.toml_file import names_in, shown
from testbed.plan.model import Plan
from testbed.plan.programs import Patch, Tor
from testbed.results import Check, Run, kept_patch
from testbed.results.made_by import ran_with

_HOLDS = {True: "yes", False: "no", None: "not judged"}


def left_out_table(found: Found) -> Table:
    """A row for each run that doesn't count, with the reason."""
    rows = tuple((line,) for line in found.left_out)
    return Table(title="Left out", columns=("run and reason",), rows=rows)


def runs_table(runs: Sequence[Run], directory: Path) -> Table:
    """A row for each run; directories are relative to `directory`."""
    metrics = (THROUGHPUT, TIME_TO_LAST_BYTE, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP)
    return Table(
        title="Every run",
        columns=(
            *("scenario", "traffic", "duration, s", "variant", "seed", "transfers", "failed"),
            *(metric.label for metric in metrics),
            *("wall time, s", "fingerprint", "directory"),
        ),
        rows=tuple(
            (
                *(run.summary.scenario, run.summary.traffic, f"{run.summary.duration_s:g}"),
                *(run.summary.variant, str(run.summary.seed)),
                *(str(run.summary.transfers.completed), str(run.summary.transfers.failed)),
                *(_number(metric, run) for metric in metrics),
                *(f"{run.summary.cost.wall_s:.0f}", run.shown_fingerprint),
                str(run.directory.relative_to(directory)),
            )
            for run in runs
        ),
        note="Means within a run, of the clients that run the traffic model under test.",
    )


def _number(metric: Metric, run: Run) -> str:
    value = metric.of(run)
    return NOTHING if value is None else f"{value:.{metric.digits}f}"


def checks_table(runs: Sequence[Run]) -> Table:
    """A row for each check of each run."""
    return _checks_table(
        "Every check", [(run, check) for run in runs for check in run.summary.checks]
    )


def failed_checks_table(runs: Sequence[Run]) -> Table:
    """A row for each check that did not hold."""
    failed = [(run, check) for run in runs for check in run.summary.failed_checks]
    return _checks_table("Checks that failed", failed)


def _checks_table(title: str, checks: Sequence[tuple[Run, Check]]) -> Table:
    return Table(
        title=title,
        columns=(
            *("scenario", "traffic", "variant", "seed"),
            *("check", "expected", "observed", "holds"),
        ),
        rows=tuple(
            (
                *(run.summary.scenario, run.summary.traffic, run.summary.variant),
                *(str(run.summary.seed), check.name, check.expected, check.observed),
                _HOLDS[check.ok],
            )
            for run, check in checks
        ),
    )


def versions_table(runs: Sequence[Run]) -> Table:
    """A row for each version of a component, with the number of runs that used it."""
    counts = Counter(entry for run in runs for entry in _versions(run))
    return Table(
        title="Versions",
        columns=("what", "version", "runs"),
        rows=tuple(
            (what, version, str(number)) for (what, version), number in sorted(counts.items())
        ),
    )


def _versions(run: Run) -> Iterator[tuple[str, str]]:
    for what, version in ran_with(run.manifest).items():
        if isinstance(version, str):
            yield what, version
        else:
            yield what, ", ".join(f"{name} {each}" for name, each in version.items())


@dataclass(frozen=True)
class VariantText:
    """A variant as it was run.

    Attributes:
        lines: the configuration, and the premise on the shared link.
        patches: each patch's name and text.
    """

    name: str
    title: str
    lines: Sequence[str]
    patches: Sequence[tuple[str, str]]


def variants(runs: Iterable[Run]) -> list[VariantText]:
    """Each variant once, or once for each state of its file if that changed between runs."""
    examples = {run.plan.tor.model_dump_json(): run for run in runs}
    return [
        VariantText(
            run.plan.variant,
            run.plan.variant_title,
            list(_configuration(run.plan.tor)),
            [(patch.name, patch_text(patch, run.directory)) for patch in run.plan.tor.patches],
        )
        for run in examples.values()
    ]


def _configuration(tor: Tor) -> Iterator[str]:
    """A variant's settings, as lines of its file."""
    for table, options in (
        ("torrc", tor.torrc_all),
        ("torrc.relay", tor.torrc_relay),
        ("torrc.client", tor.torrc_client),
    ):
        yield from (
            f"{table}: {key} {value}" for key, values in options.items() for value in values
        )
    yield from (f"consensus: {key}={value}" for key, value in tor.consensus_params.items())
    if tor.source:
        yield f"source: {tor.source}"
    if tor.ipsec:
        yield "ipsec: true"
    if tor.at_relays is not None:
        yield f"only at the relays {', '.join(tor.at_relays)}"
    if tor.parallel_circuits > 1:
        yield f"parallel_circuits: {tor.parallel_circuits}, stream_rule: {tor.stream_rule}"
    yield f"premise: the shared link has {tor.connection_rule.words}"


def patch_text(patch: Patch, directory: Path) -> str:
    """The patch as it was used, or a line that says that it is missing."""
    if (file := kept_patch(directory, patch)) is None:
        return f"{patch.path} is not here as it was used; its sha256 was {patch.sha256}."
    return file.read_text(encoding="utf-8", errors="replace")


def commands(runs: Sequence[Run], directory: Path) -> list[str]:
    """The commands that make these runs and their report again, in a clone of the testbed."""
    commits = {run.manifest.get("project", {}).get("commit") for run in runs}
    # Runs of several commits, or of an unknown one, can't be repeated in one checkout.
    checkout = [f"git checkout {commit}" for commit in commits if commit and len(commits) == 1]
    report = shlex.join(["./run.py", "report", str(directory)])
    return [*checkout, *(command(run.plan, run.summary.machine) for run in runs), report]


def command(plan: Plan, machine: str = "virtual") -> str:
    """The command that makes a run of this plan; users' own files are named without folders."""
    scenario = plan.unchanged_scenario
    scenario = scenario if scenario in names_in(SCENARIOS) else f"{scenario}.toml"
    words = ["./run.py", "scenario", scenario]
    for key, value in plan.changes.items():
        words += ["--set", f"{key}={value if isinstance(value, str) else shown(value)}"]
    words += ["--variant", as_typed(plan.variant)]
    if plan.traffic_overridden:
        words += ["--traffic", plan.traffic]
    words += ["--duration", f"{plan.duration_s:g}", "--seed", str(plan.seed)]
    if plan.tgen is not None:
        words += ["--tgen", plan.tgen.path]
    if machine != "virtual":
        words += ["--machine", machine]
    return shlex.join(words)
