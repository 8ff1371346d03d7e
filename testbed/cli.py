"""The commands that a user types, and the exit status of each.

Every command is a short function here; what it does is done elsewhere, in modules that it imports
itself: `setup` and `doctor` must not wait for the libraries of the others.
"""

import argparse
import errno
import json
import os
import select
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console
from rich.table import Table

from salsa import options as salsa_options
from testbed.ending import (
    BAD_INPUT,
    DIFFERS,
    FAILED,
    INTERRUPTED,
    PREMISE_FAILED,
    VALID,
    end_on_signals,
)
from testbed.errors import InputError, TestbedError, reason_of
from testbed.setup import kernel, releases
from testbed.setup.doctor import print_doctor
from testbed.setup.ready import ensure_ready, tor_need
from testbed.toml_file import PROJECT, names_in

if TYPE_CHECKING:
    from analysis.comparison import Compared
    from analysis.runs import Found
    from testbed.batch import Slurm
    from testbed.toml_file import Value

__all__ = ["BAD_INPUT", "DIFFERS", "FAILED", "INTERRUPTED", "PREMISE_FAILED", "VALID", "main"]

SETUP_VARIANTS = ("vanilla", "pctls")
"""The variants that `setup` builds ahead of their first run."""

_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""No fault of the program that a trace would help to find."""

_STATUS_HELP = "exit status: 0 valid, 1 failed, 2 bad input, 3 the run's premise failed"
_SCENARIO_HELP = "a name (see list) or a .toml file"
_VARIANT_HELP = "a name (see list) or a .toml file (default: vanilla)"
_DURATION_HELP = "instead of the scenario's, such as '90 s'; a bare number is seconds"
_BENCH_DURATION_HELP = "of the run that is measured (default: 60 s; with --network the scenario's)"
_SEED_HELP = "seed of the losses, the traffic and a drawn network (default: 1)"
_RUNS_HELP = "a directory with runs below it"


def main(arguments: Sequence[str]) -> int:
    """Carry out one command; its exit status."""
    end_on_signals()
    given = _parser().parse_args(arguments)
    messages = Console(stderr=True)
    try:
        status: int = given.command(given, messages)
        sys.stdout.flush()
    except TestbedError as error:
        messages.print(f"run.py: {error}", markup=False, highlight=False, soft_wrap=True)
        return error.exit_status
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return FAILED
        if error.errno not in _DISK_REFUSES:
            raise
        text = f"run.py: {reason_of(error, Path.cwd())}"
        messages.print(text, markup=False, highlight=False, soft_wrap=True)
        return FAILED
    except KeyboardInterrupt:
        messages.print("run.py: interrupted; nothing half-done was left", highlight=False)
        return INTERRUPTED
    return status


def _nobody_reads() -> bool:
    """Whether what we print goes to a pipe whose reader has seen enough, such as `head`.

    Then whatever is still to be printed is thrown away, so that it can't fail again at the end.
    """
    reader = select.poll()
    reader.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in reader.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _scenario(given: argparse.Namespace, messages: Console) -> int:
    from testbed import results, runner
    from testbed.plan import check_output, default_output, make_plan

    plan = make_plan(
        given.scenario,
        given.variant,
        seed=given.seed,
        duration=given.duration,
        traffic=given.traffic,
        tgen=given.tgen,
        changes=dict(given.set),
    )
    destination = given.out or default_output(plan, given.machine)
    check_output(destination)
    title = f"{plan.scenario}, {plan.variant}, seed {plan.seed}"
    progress = runner.ProgressBar.on(messages, title)
    with progress.bar:
        summary = runner.carry_out(
            plan,
            destination,
            messages,
            progress.show,
            machine=given.machine,
            captures=given.pcap,
        )
    if given.json:
        print(summary.model_dump_json(indent=1))
    else:
        results.print_summary(Console(), summary)
        digits = results.read_run(destination).shown_fingerprint
        told = f"results in {destination}, fingerprint {digits}"
        messages.print(told, markup=False, highlight=False, soft_wrap=True)
    return VALID if summary.valid else PREMISE_FAILED


def _compare(given: argparse.Namespace, messages: Console) -> int:
    from analysis import comparison
    from analysis.runs import read_runs
    from analysis.tables import as_csv, print_tables
    from testbed import repeats
    from testbed.plan import default_output

    plans = repeats.paired_plans(
        given.scenario,
        [given.first, *given.others],
        given.runs,
        duration=given.duration,
        traffic=given.traffic,
        changes=dict(given.set),
    )
    repeats.carry_out_each(repeats.missing(plans, mixed=given.mixed), messages)
    found = read_runs((default_output(plan) for plan in plans), mixed=given.mixed)
    plan, variants = plans[0], list(dict.fromkeys(plan.variant for plan in plans))
    compared = comparison.compare(found, variants)
    if given.json:
        content = {
            **{key: getattr(plan, key) for key in ("scenario", "traffic", "duration_s")},
            "comparisons": comparison.records(compared),
            "left_out": found.left_out,
        }
        print(json.dumps(content, indent=1))
    elif given.csv:
        print(as_csv(comparison.records_table(compared)), end="")
    else:
        title = f"{plan.scenario}, {plan.traffic}, {plan.duration_s:g} s"
        print_tables(Console(), comparison.comparison_tables(title, compared))
    if given.chart:
        _draw_chart(given.chart, f"{plan.scenario}, {plan.traffic}", compared, messages)
    _tell_left_out(found.left_out, messages)
    _tell_parts(found, messages)
    return PREMISE_FAILED if found.left_out else VALID


def _draw_chart(file: Path, title: str, compared: "Sequence[Compared]", messages: Console) -> None:
    from analysis.figures.differences import differences

    drawing = differences(title, file.stem, compared)
    if drawing is None:
        raise InputError(f"--chart {file}: nothing can be compared")
    drawing.save_as(file)
    messages.print(f"chart in {file}", markup=False, highlight=False, soft_wrap=True)


def _batch(given: argparse.Namespace, messages: Console) -> int:
    from testbed import batch
    from testbed.batch import show

    wanted = batch.read_batch(given.file)
    cluster = _cluster(given)
    at_once = (given.jobs or len(wanted.plans)) if cluster else (given.cores or batch.all_cores())
    directory = given.out or Path("results") / wanted.name
    if given.dry_run:
        show.print_dry_run(
            Console(),
            wanted,
            batch.look_up(wanted.plans, directory, mixed=given.mixed),
            batch.Estimator(batch.earlier_runs(Path("results"), directory)),
            at_once=at_once,
            again_invalid=given.retry_invalid,
        )
        return VALID
    ended = batch.carry_out(
        wanted,
        directory,
        messages,
        at_once=at_once,
        retries=given.retries,
        again_invalid=given.retry_invalid,
        mixed=given.mixed,
        cluster=cluster,
    )
    show.print_ended(Console(), ended)
    if any(one.run for one in ended.standings):  # there is no report on nothing
        _write_report(directory, None, messages, mixed=given.mixed)
    if ended.failures:
        return FAILED
    return PREMISE_FAILED if ended.invalid else VALID


def _cluster(given: argparse.Namespace) -> "Slurm | None":
    """Where a batch's runs go; None for this machine."""
    from testbed import batch

    of_slurm = ("jobs", "slurm_account", "slurm_partition", "time_limit")
    if given.executor == "local":
        for name in of_slurm:
            if getattr(given, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --executor slurm: add that")
        return None
    if given.cores is not None:
        raise InputError("--cores is for this machine: with --executor slurm say --jobs")
    return batch.Slurm(given.slurm_account, given.slurm_partition, given.time_limit)


def _tables(given: argparse.Namespace, messages: Console) -> int:
    from analysis.runs import find_runs
    from analysis.tables import as_csv, as_markdown, print_tables, run_tables
    from papers import TABLES

    found = find_runs(given.directory, mixed=given.mixed, whole=False)
    tables = run_tables(found, TABLES)
    if given.json:
        content = {"tables": [asdict(table) for table in tables], "left_out": found.left_out}
        print(json.dumps(content, indent=1))
    elif given.csv:
        print("\n".join(map(as_csv, tables)), end="")
    elif given.markdown:
        print("\n\n".join(map(as_markdown, tables)))
    else:
        print_tables(Console(), tables)
    _tell_left_out(found.left_out, messages)
    _tell_summaries(found, messages)
    _tell_parts(found, messages)
    return VALID


def _report(given: argparse.Namespace, messages: Console) -> int:
    _write_report(given.directory, given.out, messages, mixed=given.mixed)
    return VALID


def _write_report(directory: Path, out: Path | None, messages: Console, *, mixed: bool) -> None:
    from analysis.report import write_report
    from papers import TABLES

    file = out or directory / "report" / "report.html"
    found = write_report(directory, file, mixed=mixed, of_papers=TABLES)
    _tell_left_out(found.left_out, messages)
    _tell_parts(found, messages)
    messages.print(f"report in {file}", markup=False, highlight=False, soft_wrap=True)


def _tell_parts(found: "Found", messages: Console) -> None:
    for part in found.parts if found.apart else ():
        text = f"{part.count} runs stand apart, made by {part.made_by} (--mixed puts them together)"
        messages.print(text, markup=False, highlight=False, soft_wrap=True)


def _tell_summaries(found: "Found", messages: Console) -> None:
    of_all = (run for part in found.parts for runs in part.valid.values() for run in runs)
    if alone := sum(not run.is_whole for run in of_all):
        text = f"{alone} runs are summaries alone: a figure that needs a run's tables lacks them"
        messages.print(text, markup=False, highlight=False, soft_wrap=True)


def _tell_left_out(lines: Sequence[str], messages: Console) -> None:
    for line in lines:
        messages.print(f"left out: {line}", markup=False, highlight=False, soft_wrap=True)


def _verify(given: argparse.Namespace, messages: Console) -> int:
    from testbed import runner, verify

    progress = runner.ProgressBar.on(messages, f"making {given.run} again")
    with progress.bar:
        verified = verify.verify(given.run, messages, progress.show, out=given.out)
    if given.json:
        print(json.dumps(verify.record(verified), indent=1))
    else:
        verify.print_verified(Console(), verified)
    return VALID if verified.equal else DIFFERS


def _salsa(given: argparse.Namespace, messages: Console) -> int:
    from salsa import command

    command.carry_out(given, messages)
    return VALID


def _distil(given: argparse.Namespace, messages: Console) -> int:
    from testbed.network.distilled import distil

    made = distil(given.documents, given.out, policies=given.policies_from, countries=given.geoip)
    for path in made:
        messages.print(f"made {path}", markup=False, highlight=False, soft_wrap=True)
    return VALID


def _distil_places(given: argparse.Namespace, messages: Console) -> int:
    from testbed.network.distilled_places import Sources, distil_places

    names = Sources.__dataclass_fields__
    sources = Sources(**{name: getattr(given, name) for name in names})
    for path in distil_places(sources, given.out):
        messages.print(f"made {path}", markup=False, highlight=False, soft_wrap=True)
    return VALID


def _network(given: argparse.Namespace, messages: Console) -> int:
    from testbed.drawing import read_source
    from testbed.network import show
    from testbed.network.summary import over_seeds, summary
    from testbed.plan import check_seed

    check_seed(given.seed)
    if given.seeds and given.map:
        raise InputError("--map draws the network of one --seed: leave --seeds out")
    source = read_source(given.scenario)
    if given.seeds:
        rows = over_seeds([summary(source.draw(seed)) for seed in range(1, given.seeds + 1)])
        if given.json:
            print(json.dumps([asdict(row) for row in rows], indent=1))
        else:
            show.print_over_seeds(Console(), source.file.stem, given.seeds, rows)
        return VALID
    drawn = source.draw(given.seed)
    if given.map:
        from analysis.figures.network_map import network_map

        places = (drawn.network.nodes, drawn.places)
        network_map(drawn.scenario, drawn.seed, *places).save_as(given.map)
        messages.print(f"map in {given.map}", markup=False, highlight=False, soft_wrap=True)
    if given.json:
        content = {
            "summary": summary(drawn).record(),
            "traffic_by_client": drawn.traffic_by_client,
            "network": drawn.network.model_dump(mode="json"),
        }
        print(json.dumps(content, indent=1))
    else:
        show.print_summary(Console(), summary(drawn))
    return VALID


def _shell(given: argparse.Namespace, messages: Console) -> int:
    from testbed import runner
    from testbed.plan import make_plan

    plan = make_plan(given.scenario, given.variant, seed=given.seed, traffic=given.traffic)
    progress = runner.ProgressBar.on(messages, f"{plan.scenario}, {plan.variant}")
    with progress.bar:
        runner.open_shell(plan, messages, progress)
    return VALID


def _calibrate(given: argparse.Namespace, messages: Console) -> int:
    from testbed import runner
    from testbed.lab import calibration
    from testbed.plan import make_plan

    plan = make_plan(given.scenario, "vanilla", seed=given.seed)
    progress = runner.ProgressBar.on(messages, f"calibrating {plan.scenario}")
    with progress.bar:
        rows = runner.calibrate(plan, messages, progress.show)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return VALID if all(row.ok for row in rows) else PREMISE_FAILED
    return VALID if calibration.print_calibration(Console(), rows) else PREMISE_FAILED


def _bench(given: argparse.Namespace, messages: Console) -> int:
    from testbed import bench

    if given.network:
        return _bench_network(given, messages)
    measured = bench.run_bench(given.duration or bench.DURATION, messages)
    if given.json:
        print(json.dumps(measured.record(), indent=1))
    else:
        bench.print_bench(Console(), measured)
    return VALID


def _bench_network(given: argparse.Namespace, messages: Console) -> int:
    from testbed import bench_network

    cost = bench_network.run_network_bench(given.network, given.variant, given.duration, messages)
    if given.json:
        print(json.dumps(cost.record(), indent=1))
    else:
        bench_network.print_network_bench(Console(), cost)
    return VALID


def _list(_given: argparse.Namespace, _messages: Console) -> int:
    from testbed.network import distilled
    from testbed.scenario import SCENARIOS, scenario_title
    from testbed.traffic.models import MODELS
    from testbed.variant import TOR_CONFIGS, read_variant

    console = Console()
    table = Table("kind", "name", "what it is", box=None)
    for name in names_in(SCENARIOS):
        table.add_row("scenario", name, scenario_title(name))
    for name in names_in(TOR_CONFIGS):
        table.add_row("variant", name, read_variant(name).title)
    for model in MODELS.values():
        table.add_row("traffic", model.name, model.description)
    for name in distilled.names():
        table.add_row("consensus", name, "the live network of that day")
    console.print(table)
    return VALID


def _setup(_given: argparse.Namespace, messages: Console) -> int:
    _set_up(messages)
    for choice in (kernel.choice(), releases.chosen("tor")):
        messages.print(str(choice), markup=False, highlight=False, soft_wrap=True)
    return VALID


def _set_up(messages: Console) -> None:
    from testbed.variant import read_variant

    variants = [read_variant(name) for name in SETUP_VARIANTS]
    ensure_ready(messages, [tor_need(one.source, one.release, one.patches) for one in variants])


def _doctor(_given: argparse.Namespace, _messages: Console) -> int:
    return VALID if print_doctor(Console()) else FAILED


def _test(given: argparse.Namespace, messages: Console) -> int:
    """The checks of CI: format, lint, types, then the tests; the first that fails ends it."""
    _set_up(messages)
    checks = [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]]
    for check in [] if given.arguments else checks:
        if status := _run_tool(check):
            return status
    return _run_tool(["pytest", "-n", "auto", "--dist", "loadfile", *given.arguments])


def _python(given: argparse.Namespace, _messages: Console) -> int:
    """Become the environment's Python, which has the testbed on its path (`run.py`)."""
    os.execv(sys.executable, [sys.executable, *given.arguments])


def _run_tool(words: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", *words], cwd=PROJECT, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="run.py", description="Try changes to Tor in private networks on emulated links."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    scenario = commands.add_parser(
        "scenario", help="run a scenario with a variant of Tor", epilog=_STATUS_HELP
    )
    scenario.add_argument("scenario", help=_SCENARIO_HELP)
    scenario.add_argument("--variant", default="vanilla", help=_VARIANT_HELP)
    _add_run_options(scenario)
    scenario.add_argument(
        "--tgen",
        metavar="PROGRAM",
        help="a TGen instead of the bundled one: a path or a name on PATH",
    )
    scenario.add_argument(
        "--pcap",
        metavar="ROLE-ROLE",
        action="append",
        default=[],
        help="capture the links between two roles, such as exit-middle; may be repeated",
    )
    scenario.set_defaults(command=_scenario)

    compare = commands.add_parser(
        "compare",
        help="compare variants over several runs, and say which is better",
        description="Runs seeds 1 to N of each variant; runs that are there are not made again.",
        epilog=_STATUS_HELP,
    )
    compare.add_argument("scenario", help=_SCENARIO_HELP)
    compare.add_argument("first", metavar="A", help="the variant that the others are compared with")
    compare.add_argument("others", metavar="B", nargs="+", help="the others")
    compare.add_argument(
        "--runs", type=int, default=3, metavar="N", help="runs of each variant (default: 3)"
    )
    compare.add_argument("--traffic", help="a traffic model instead of the scenario's")
    compare.add_argument("--duration", help=_DURATION_HELP)
    _add_set(compare)
    compare.add_argument(
        "--chart", type=Path, metavar="FILE.svg", help="draw all differences, as SVG or PNG"
    )
    _add_mixed(compare)
    _add_formats(compare)
    compare.set_defaults(command=_compare)

    batch = commands.add_parser(
        "batch",
        help="carry out many runs, on all cores or on a cluster",
        description="Runs that are there and whole are not made again, so that the same command"
        " continues a batch that was stopped.",
        epilog=_STATUS_HELP,
    )
    batch.add_argument("file", metavar="FILE", help="a name in batches/ or a .toml file")
    batch.add_argument("--dry-run", action="store_true", help="say what would run, and how long")
    batch.add_argument(
        "--cores", type=_whole(1), metavar="N", help="runs at once (default: one for each core)"
    )
    batch.add_argument(
        "--retries",
        type=_whole(0),
        default=1,
        metavar="N",
        help="how often a run that failed is tried again (default: 1)",
    )
    batch.add_argument(
        "--retry-invalid", action="store_true", help="make runs again whose premise failed"
    )
    _add_mixed(batch)
    batch.add_argument(
        "--out", type=Path, metavar="DIR", help="where all runs go (default: results/<name>)"
    )
    batch.add_argument(
        "--executor",
        choices=["local", "slurm"],
        default="local",
        help="run on this machine (default), or on the cluster of which it is a login node",
    )
    batch.add_argument(
        "--jobs",
        type=_whole(1),
        metavar="N",
        help="jobs that wait or run at a time on a cluster (default: all)",
    )
    batch.add_argument(
        "--slurm-account", metavar="NAME", help="the account that jobs are charged to"
    )
    batch.add_argument("--slurm-partition", metavar="NAME", help="the partition that jobs run in")
    batch.add_argument(
        "--time-limit",
        type=_duration_s,
        metavar="TIME",
        help="of each job, such as '2 h' (default: by what the run is expected to take)",
    )
    batch.set_defaults(command=_batch)

    tables = commands.add_parser(
        "tables", help="make tables of many runs, beside the published figures"
    )
    tables.add_argument("directory", metavar="DIR", type=Path, help=_RUNS_HELP)
    _add_mixed(tables)
    _add_formats(tables).add_argument(
        "--markdown", action="store_true", help="print Markdown, for a document"
    )
    tables.set_defaults(command=_tables)

    report = commands.add_parser(
        "report", help="make a web page of many runs, with figures and tables"
    )
    report.add_argument("directory", metavar="DIR", type=Path, help=_RUNS_HELP)
    report.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: DIR/report/report.html)"
    )
    _add_mixed(report)
    report.set_defaults(command=_report)

    verify = commands.add_parser(
        "verify",
        help="make a run again and say whether it comes out equal",
        description="Makes the run again from the plan in its manifest, in a temporary place.",
        epilog="exit status: 0 equal, 1 failed, 2 no run that can be made again, 3 not equal",
    )
    verify.add_argument("run", metavar="RUN", type=Path, help="the run's directory")
    verify.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the new run there; must not exist"
    )
    verify.add_argument("--json", action="store_true", help="print JSON, not words")
    verify.set_defaults(command=_verify)

    salsa = commands.add_parser(
        "salsa",
        help="simulate how many links of the live network carry several circuits",
        description="Says how many links between relays carry more than one circuit at a time, in"
        " the network of a consensus. Starts no virtual machine.",
    )
    salsa_options.add_options(salsa)
    _add_formats(salsa)
    salsa.set_defaults(command=_salsa)

    distil = commands.add_parser(
        "distil",
        help="make small files of consensus documents, without addresses and names",
        description="consensuses/README.md says what such a file has.",
    )
    distil.add_argument(
        "documents", nargs="+", type=Path, metavar="DOCUMENT", help="of either flavour"
    )
    distil.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")
    distil.add_argument(
        "--policies-from",
        nargs="+",
        type=Path,
        default=[],
        metavar="DOCUMENT",
        help="with the exit policies that the others lack, joined by the relays' keys",
    )
    distil.add_argument(
        "--geoip", type=Path, metavar="FILE", help="Tor's geoip file, for the relays' countries"
    )
    distil.set_defaults(command=_distil)

    places = commands.add_parser(
        "distil-places",
        help="make the files of places/: users, rates and round trips by country",
        description="Reads files like those named in places/README.md.",
    )
    for option, what in (
        ("users", "JSON: the share of Tor's users of each country"),
        ("round-trips", "CSV: pings between countries, their number, mean and deviation"),
        ("access-rates", "JSON: the rates of users' access links, by country"),
        ("cities", "JSON: cities with population, for where a country is"),
        ("relays", "JSON: relays with their capacities"),
        ("consensus", "a document of the relays' time, for their weights"),
    ):
        places.add_argument(f"--{option}", type=Path, required=True, metavar="FILE", help=what)
    places.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")
    places.set_defaults(command=_distil_places)

    network = commands.add_parser(
        "network",
        help="show the network that a seed draws for a scenario",
        description='For scenarios with topology = "sampled". Starts no virtual machine.',
    )
    network.add_argument("scenario", help=_SCENARIO_HELP)
    seeds = network.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seed", type=int, default=1, help="the seed that draws the network (default: 1)"
    )
    seeds.add_argument(
        "--seeds",
        type=_whole(2),
        metavar="N",
        help="instead: each class's share of the weight over the networks of seeds 1 to N",
    )
    network.add_argument("--map", type=Path, metavar="FILE.svg", help="draw a map, as SVG or PNG")
    network.add_argument("--json", action="store_true", help="print all of it as JSON")
    network.set_defaults(command=_network)

    shell = commands.add_parser("shell", help="open a prompt in a scenario's network, in real time")
    shell.add_argument("scenario", help=_SCENARIO_HELP)
    shell.add_argument("--variant", default="vanilla", help=_VARIANT_HELP)
    shell.add_argument("--traffic", help="a traffic model instead of the scenario's")
    shell.add_argument("--seed", type=int, default=1, help=_SEED_HELP)
    shell.set_defaults(command=_shell)

    calibrate = commands.add_parser(
        "calibrate",
        help="measure the links of a scenario, without Tor",
        epilog="exit status: 0 all within their bounds, 1 failed, 2 bad input, 3 one is not",
    )
    calibrate.add_argument("scenario", help=_SCENARIO_HELP)
    calibrate.add_argument("--seed", type=int, default=1, help="seed of the losses (default: 1)")
    calibrate.add_argument("--json", action="store_true", help="print JSON, not a table")
    calibrate.set_defaults(command=_calibrate)

    bench_parser = commands.add_parser("bench", help="measure what a run costs this machine")
    bench_parser.add_argument("--duration", help=_BENCH_DURATION_HELP)
    bench_parser.add_argument(
        "--network", metavar="SCENARIO", help="measure the network of this scenario instead"
    )
    bench_parser.add_argument(
        "--variant", default="vanilla", help="with --network: the variant (default: vanilla)"
    )
    bench_parser.add_argument("--json", action="store_true", help="print JSON, not tables")
    bench_parser.set_defaults(command=_bench)

    for name, command, what in (
        ("list", _list, "show scenarios, variants, traffic models and consensuses"),
        ("setup", _setup, "install and build all that runs need"),
        ("doctor", _doctor, "show what is there, what is missing, and whether runs work here"),
    ):
        commands.add_parser(name, help=what).set_defaults(command=command)

    test = commands.add_parser("test", help="check format, lint and types, and run all tests")
    test.add_argument(
        "arguments",
        nargs="*",
        help="for pytest, behind --, such as -- tests/test_plan.py; only pytest runs then",
    )
    test.set_defaults(command=_test)

    python = commands.add_parser(
        "python",
        help="Python with the testbed's packages, for scripts that import hydra",
        add_help=False,
        prefix_chars="\0",  # no option is ours: all are Python's
    )
    python.add_argument("arguments", nargs="*")
    python.set_defaults(command=_python)
    return parser


def _whole(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number, not below the least."""

    def whole_number(text: str) -> int:
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{number} is below {least}")
        return number

    return whole_number


def _duration_s(text: str) -> float:
    """The type of an argument that is a duration, in seconds."""
    from testbed.units import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from error


def _change(text: str) -> tuple[str, "Value"]:
    """The type of an argument KEY=VALUE; the value is TOML's where it is TOML, else a text."""
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise argparse.ArgumentTypeError(f'"{text}" is not KEY=VALUE')
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        read = value.strip()
    if not isinstance(read, bool | int | float | str):
        raise argparse.ArgumentTypeError(f'"{text}": a number, a text, true or false can be set')
    return key.strip(), read


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        type=_change,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value of the scenario's file, such as 'links.middle-exit.loss=0.2 %%';"
        " may be repeated",
    )


def _add_mixed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="put runs together even if different Tors, kernels or testbeds made them",
    )


def _add_formats(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Other formats than tables for the terminal, at most one at a time."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, not tables")
    formats.add_argument("--csv", action="store_true", help="print CSV, not tables")
    return formats


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traffic", help="a traffic model instead of the scenario's")
    parser.add_argument("--duration", help=_DURATION_HELP)
    parser.add_argument("--seed", type=int, default=1, help=_SEED_HELP)
    _add_set(parser)
    parser.add_argument(
        "--out",
        type=Path,
        help="the run directory; must not exist (default: results/<scenario>/<variant>/seed-<n>)",
    )
    parser.add_argument(
        "--machine",
        choices=["virtual", "host"],
        default="virtual",
        help="run in virtual time (default), or in real time on this host, as root",
    )
    parser.add_argument("--json", action="store_true", help="print summary.json, not a table")


class _Parser(argparse.ArgumentParser):
    """argparse, with the testbed's way of telling errors: one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(InputError.exit_status, f"{self.prog}: {message} (see {self.prog} --help)\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
