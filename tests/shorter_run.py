"""`run.py` in a folder where a test carries out what a document shows: it has less to do there.

It notes what it is called with, makes that short by the rules below, and lets the real `run.py`
carry it out. What a loop calls again with other words is only noted. No run is made twice: one of
the same plan is taken from where it was made.
"""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
LOG = ".calls.jsonl"
NUMBER = "SHOWN_NUMBER"
"""The variable that says which of its block's commands a call is."""
POOL = "SHOWN_POOL"
"""The variable that names the folder of the runs that were made already."""

# The rules.

LEAST = "5 s"
"""A short run whose premise holds: two clients get a file each, over a shared link with loss, and
both before as many seconds again are over."""
LONGER = {
    "IdleLink": "20 s",
    "mctor-video": "10 s",
    "mctor-upload": "20 s",
    "./Files.toml": "30 s",
    "web": "15 s",
    "--network": "10 s",
}
"""What needs more, by a word: more files at once, slower links, clients that pause, pages behind a
queue of seconds, and a MB for the bench to divide by."""

MADE = ("scenario", "compare", "batch", "study")
LIKE_OTHERS = (
    *("--variant", "--duration", "--traffic", "--seed", "--set", "--out", "--runs", "--chart"),
)
"""The commands that make runs, and with which options a run is like any other of its plan."""

ALWAYS: Mapping[str, Mapping[str, str]] = {
    "scenario": {"--duration": LEAST},
    "compare": {"--duration": LEAST, "--runs": "1"},
    "bench": {"--duration": LEAST},
    "torflow": {"--times": "1"},
}
IF_GIVEN: Mapping[str, Mapping[str, str]] = {
    "network": {"--seeds": "2"},
    "torflow": {"--clients": "2"},
    "salsa": {"--seeds": "1", "--circuits": "20000"},
}
"""The values that options have instead of those shown, by command."""

FIGURES = ("2021-11-30", "--seeds", "1")
"""What is added to --figures: one consensus."""

COMPARED = 2
"""So many variants are compared, the first ones."""

SCENARIO = {
    r'^(topology = "sampled")$(?!(?s:.*)^warm_up = )': r'\1\nwarm_up = "2 s"',
    r"^relays( *)= \d+": r"relays\1= 4",
    r"^clients( *)= \d+": r"clients\1= 4",
    r"^servers( *)= \d+": r"servers\1= 1",
    r'^(topology = "eight_clients")$(?!\nparameters)': r"\1\nparameters.clients = 2",
}
BATCH = {
    r'^("network\.clients" = )\[.*': r"\1[4]",
    r"--clients \d+": "--clients 2",
    r"(?s)(^\[\[runs\]\].*?)^\[\[runs\]\].*(?=^\[\[runs\]\])": r"\1",
    r"(?<== )\[\s*([^,\]]+?)\s*(,[^\]]*)?\]": r"[\1]",
    r"^duration = .*$": 'duration = "LEAST"',
    r'^command = "salsa --tables"$': 'command = "salsa 2021-11-30 --tables --seeds 1"',
}
"""What is replaced in the files of scenarios: the warm-up that they have by default, larger
networks; and in those of batches: tables between the first and the last one, lists by their first
values, and what a study's commands simulate and measure."""

CALIBRATION = {
    r"^LOSSY_PACKETS = .*": "LOSSY_PACKETS = 5_000",
    r"^(RATE|LOSSLESS)_PACKETS = .*": r"\1_PACKETS = 2_000",
    r"^LOAD_SAMPLES = .*": "LOAD_SAMPLES = 20",
    r"^LEAST_LOAD_WARM_UP_S = .*": "LEAST_LOAD_WARM_UP_S = 0.3",
    r"^WARM_UP_EMPTYINGS = .*": "WARM_UP_EMPTYINGS = 1",
    r"^PAIRS = .*": "PAIRS = 1",
}
SALSA = {r"^LEAST_CIRCUITS = .*": "LEAST_CIRCUITS = 1"}
MODULES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "calibrate": ("testbed/inside/calibration/*.py", CALIBRATION),
    "salsa": ("salsa/observed.py", SALSA),
}
"""The same in modules, by command: fewer packets and a load of half a second; and circuits as few
as a small network has."""

COLLECTED = "--collect-only -q"
"""What pytest is told, unless -k names a few tests: to find them, and not to run them again."""
ONCE = ("bench",)
"""Commands that take long and leave nothing: the same words aren't carried out twice."""


def main(words: Sequence[str]) -> int:
    """Carry out a call, or only note it; its exit status."""
    number = os.environ[NUMBER]
    first = number not in {call["number"] for call in calls(FOLDER)}
    with (FOLDER / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"number": number, "words": words, "carried_out": first}) + "\n")
    if not first:
        return 0
    short = shorter(words)
    wanted = destinations(short)
    taken = take_known(wanted)
    if words[0] == "scenario" and taken:
        return 0
    status = carried_out(short)
    if status == 0:
        keep_new(wanted)
    if words[0] == "compare" and wanted:
        stand_in(next(iter(wanted)), words)
    return status


def calls(folder: Path) -> list[dict[str, Any]]:
    """What was called in a folder so far."""
    log = folder / LOG
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def real(folder: Path) -> Path:
    """The real `run.py`, which finds the project where it is itself."""
    return folder / "real_run.py"


def carried_out(words: Sequence[str]) -> int:
    """Let the real `run.py` carry a command out; its exit status."""
    mark = pool() / digest(json.dumps(words))
    if words[0] in ONCE and mark.exists():
        return 0
    variables = dict(os.environ)
    if words[0] == "test" and "-k" not in words:
        variables["PYTEST_ADDOPTS"] = COLLECTED
    status = subprocess.run([real(FOLDER), *words], env=variables, check=False).returncode
    if words[0] in ONCE and status == 0:
        mark.touch()
    return status


# What is shorter.


def shorter(words: Sequence[str]) -> list[str]:
    """A call that has less to do; the files that it names are made smaller."""
    words = [re.sub("^/tmp/", f"{FOLDER}/tmp/", word) for word in words]
    command = words[0]
    if {"--dry-run", "--kept"} & {*words}:
        return words
    for option, value in ALWAYS.get(command, {}).items():
        words = with_option(words, option, least(words) if option == "--duration" else value)
    for option, value in IF_GIVEN.get(command, {}).items():
        words = with_option(words, option, value) if option in words else words
    if command == "flashflow" and len(operands_of(words)) > 1:
        words = with_option(with_option(words, "--seconds", "4"), "--sockets", "12")
    if "--figures" in words:
        words = [*words, *FIGURES]
    if command == "compare":
        operands = operands_of(words)
        words = [*operands[: 2 + COMPARED], *words[len(operands) :]]
    for file in files_of(words):
        replace(file, BATCH if "[[runs]]" in file.read_text(encoding="utf-8") else SCENARIO)
    for modules, rules in (MODULES[command],) if command in MODULES else ():
        for module in FOLDER.glob(modules):
            replace(module, rules)
    return words


def with_option(words: Sequence[str], option: str, value: str) -> list[str]:
    """Words in which an option has this value, whether it was given or not."""
    if option not in words:
        return [*words, option, value]
    place = words.index(option) + 1
    return [*words[:place], value, *words[place + 1 :]]


def least(words: Sequence[str] | str) -> str:
    """How long runs are at least, by words of the call or a batch's file."""
    return next((longer for word, longer in LONGER.items() if word in words), LEAST)


def operands_of(words: Sequence[str]) -> list[str]:
    """The command, and what comes before the first option."""
    return list(itertools.takewhile(lambda word: not word.startswith("--"), words))


def values_of(words: Sequence[str], option: str) -> list[str]:
    """The values of an option."""
    return [value for word, value in itertools.pairwise(words) if word == option]


def files_of(words: Sequence[str]) -> list[Path]:
    """The files that say how much a call has to do."""
    command, *names = operands_of(words)
    if command == "flashflow" and len(names) != 1:
        return []
    if command in ("scenario", "compare", "calibrate", "shell", "flashflow", "torflow"):
        return [named("scenarios", names[0])]
    if command == "bench":
        names = ["SharedDropping", *values_of(words, "--network")]
        return [named("scenarios", name) for name in names]
    if command in ("batch", "study") and names:
        of_study = FOLDER / "studies" / names[0] / "study.toml"
        file = of_study if of_study.exists() else Path(names[0])
        own = file.parent.glob("[A-Z]*.toml")  # a study's scenarios
        return [*(FOLDER / "scenarios").glob("*.toml"), *own, file]
    return []


def named(folder: str, name: str) -> Path:
    """The file that is meant by a name, or a path."""
    in_project = FOLDER / folder / f"{name}.toml"
    return in_project if in_project.exists() else Path(name)


def replace(file: Path, rules: Mapping[str, str]) -> None:
    """Replace what a file says."""
    text = file.read_text(encoding="utf-8")
    for pattern, replacement in rules.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    file.write_text(text.replace('"LEAST"', f'"{least(text)}"'), encoding="utf-8")


# Runs that were made already.


def pool() -> Path:
    """The folder in which they are kept."""
    return Path(os.environ[POOL])


def digest(text: str) -> str:
    """A name for what a text says."""
    return hashlib.sha256(text.encode()).hexdigest()


def destinations(words: Sequence[str]) -> dict[Path, Path]:
    """Where each run of a call goes, and where it is kept if it was made already."""
    if words[0] not in MADE or {word for word in words if word[:2] == "--"} - {*LIKE_OTHERS}:
        return {}
    sys.path.insert(0, str(FOLDER))
    from commands.__main__ import parser
    from testbed import batch
    from testbed.asked.output import default_output
    from testbed.asked.plans import make_plan
    from testbed.results.made_by import files_sha256
    from testbed.runs import repeats

    given = parser(words).parse_args(words)
    if words[0] in ("batch", "study"):
        name = given.file if words[0] == "batch" else given.name
        if name is None:
            return {}
        read = batch.read_batch(name)
        directory = given.out or Path("results") / read.name
        plans = {directory / folder: plan for folder, plan in read.plans.items()}
    else:
        said = {"duration": given.duration, "traffic": given.traffic, "changes": dict(given.set)}
        if words[0] == "compare":
            variants = [given.first, *given.others]
            wanted = repeats.paired_plans(given.scenario, variants, given.runs, **said)
            plans = {default_output(plan): plan for plan in wanted}
        else:
            plan = make_plan(given.scenario, given.variant, seed=given.seed, **said)
            plans = {given.out or default_output(plan): plan}
    return {folder: kept(plan.key, files_sha256()) for folder, plan in plans.items()}


def kept(plan_key: str, files: str) -> Path:
    """Where a run is kept, by its plan, and the testbed's files and the kernel that made it."""
    return pool() / digest(f"{plan_key} {files} {os.environ.get('HYDRA_KERNEL')}")


def take_known(wanted: Mapping[Path, Path]) -> list[Path]:
    """Put the runs that are kept where they would go; the places."""
    free = [folder for folder, known in wanted.items() if known.exists() and not folder.exists()]
    for folder in free:
        shutil.copytree(wanted[folder], folder)
    return free


def keep_new(made: Mapping[Path, Path]) -> None:
    """Keep the runs that were made for others."""
    for folder, known in made.items():
        if not known.exists():
            shutil.copytree(folder, known)


def stand_in(run: Path, words: Sequence[str]) -> None:
    """Let a run stand in for all that a comparison left out: later lines may read them."""
    from testbed.asked.variant import read_variant

    seeds = int(values_of(words, "--runs")[0])
    for variant in operands_of(words)[2:]:
        for seed in range(1, seeds + 1):
            folder = run.parent.parent / read_variant(variant).name / f"seed-{seed}"
            if not folder.exists():
                shutil.copytree(run, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
