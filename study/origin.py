"""Where the numbers of a page come from, in one line: runs, seeds, commit, versions and cost."""

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.runs import Found, Group
from study.printed import AllPrinted, Printed
from testbed.basics.toml_file import Value
from testbed.plan.model import Plan
from testbed.results import Run
from testbed.results.summary import Summary


def every_run(found: Found) -> list[Run]:
    """All runs that count."""
    return [run for part in found.parts for runs in part.valid.values() for run in runs]


def made_runs(found: Found) -> list[Run]:
    """All runs that count, and those whose premise failed."""
    return [*every_run(found), *found.invalid]


def processor_h(runs: Iterable[Run], printed: AllPrinted | None = None) -> float:
    """The hours of processor time that runs, and what was printed, took.

    Unlike wall time it doesn't count what else the machine had to do.
    """
    seconds = sum(run.summary.cost.cpu_s for run in runs)
    return (seconds + (printed.processor_s if printed else 0)) / 3600


def origin(found: Found, printed: AllPrinted) -> str:
    """The line at the end of a page, with the runs that don't count as their premise failed."""
    texts = [_of_runs(found)] if found.parts[0].valid or not printed.by_name else []
    if found.invalid:
        texts.append(_premises_failed(found.invalid))
    if printed.by_name:
        texts.append(_of_commands(list(printed.by_name.values())))
    return " ".join(texts)


def _of_commands(printed: Sequence[Printed]) -> str:
    """Which commands a page is made of, and what they took."""
    seconds = sum(one.processor_s for one in printed)
    time = f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.1f} hours"
    commits = _listed((one.commit or "unknown")[:7] for one in printed)
    made = "the command in study.toml" if len(printed) == 1 else "the commands in study.toml"
    return f"Made from what {made} printed at commit {commits}, in {time} of processor time."


def _of_runs(found: Found) -> str:
    runs = every_run(found)
    if not runs:
        return "No runs."
    commits = Counter(_commit(run) for run in runs).most_common()
    made = f"{len(runs)} runs at commit {commits[0][0]}"
    if len(commits) > 1:
        counts = ", ".join(f"{count} at {commit}" for commit, count in commits)
        made = f"{len(runs)} runs of several commits ({counts})"
    versions = [
        f"Tor {_listed(run.manifest['tor_version'] for run in runs)}",
        f"Linux {_listed((run.manifest.get('kernel') or {}).get('version', '?') for run in runs)}",
    ]
    others = len(found.left_out) - len(found.invalid)
    left_out = f"; {others} {'was' if others == 1 else 'were'} left out" if others else ""
    return (
        f"Made from {made}, seeds {_seeds(runs)}, with {' and '.join(versions)}{left_out}."
        f" They took {processor_h(runs):.1f} hours of processor time."
    )


def _premises_failed(invalid: Sequence[Run]) -> str:
    named = "; ".join(map(_premise, invalid))
    number = len(invalid)
    runs = "1 run doesn't count, as its" if number == 1 else f"{number} runs don't count, as their"
    return f"{runs} premise failed: {named}."


def _premise(run: Run) -> str:
    """Which run it is, and the first check that failed."""
    summary = run.summary
    failed = summary.failed_checks[0].name
    return f"{Group.of(run).label} with {summary.variant}, seed {summary.seed} ({failed})"


def lacking(found: Found, plans: Iterable[Plan]) -> str:
    """A sentence on the study's runs that are not made yet; nothing if there are none."""
    there = {_names(run.summary) for run in made_runs(found)}
    missing = Counter((plan.scenario, plan.variant) for plan in plans if _names(plan) not in there)
    if not missing:
        return ""
    by_scenario: dict[str, list[str]] = {}
    for scenario, variant in missing:
        by_scenario.setdefault(scenario, []).append(variant)
    kinds = "; ".join(f"{scenario}: {', '.join(ones)}" for scenario, ones in by_scenario.items())
    return f"{missing.total()} of the study's runs are not made yet ({kinds})."


def _names(one: Summary | Plan) -> tuple[str, str, str, int]:
    return one.scenario, one.variant, one.traffic, one.seed


def _commit(run: Run) -> str:
    return str((run.manifest.get("project") or {}).get("commit") or "unknown")[:7]


def _listed(values: Iterable[Value]) -> str:
    return ", ".join(sorted({str(value) for value in values}, reverse=True))


def _seeds(runs: Sequence[Run]) -> str:
    seeds = sorted({run.summary.seed for run in runs})
    if len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
