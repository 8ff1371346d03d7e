"""The lines of documents that test_shown_commands doesn't carry out: why, and which test does.

A line is as it stands in the document, without its comment. A test that is named here takes its
lines from `lines_of`, which is called with the test's own name; that it does is tested.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """Some lines.

    Attributes:
        why: they can't be carried out by whoever runs the tests.
        test: which one carries them out, below `tests`; empty if none can.
    """

    lines: tuple[str, ...]
    why: str
    test: str = ""


ON_HOST = "sudo ./run.py scenario SharedDropping --variant pctls --machine host"

ELSEWHERE = (
    Elsewhere(
        lines=(ON_HOST, f"vagrant ssh -c 'cd /vagrant && {ON_HOST}'"),
        why="needs root, and a kernel with netem",
        test="test_host_for_real.py::test_what_the_documents_show",
    ),
    Elsewhere(
        lines=("./run.py calibrate --processor",),
        why="keeps what it measured for this host",
        test="test_relay_costs.py::test_what_the_document_shows",
    ),
    Elsewhere(
        lines=("vagrant up",),
        why="needs a hypervisor, and a box from the network",
    ),
    Elsewhere(
        lines=(
            "./run.py batch docs/examples/smoke.toml --executor slurm --dry-run",
            "./run.py batch docs/examples/smoke.toml --executor slurm",
            "./run.py batch hydra --executor slurm --jobs 40 --slurm-account project"
            " --slurm-partition short",
        ),
        why="needs a Slurm, whose daemons are root's",
        test="test_slurm.py::test_what_the_document_shows",
    ),
    Elsewhere(
        lines=(
            "export HYDRA_CACHE=/shared/you/hydra-cache",
            "git clone … /shared/you/hydra-testbed",
            "cd /shared/you/hydra-testbed",
        ),
        why="a cluster's folders, which aren't here",
    ),
    Elsewhere(
        lines=("srun ./run.py setup",),
        why="needs a cluster whose nodes reach the network: docs/cluster.md says it wasn't tried",
    ),
    Elsewhere(
        lines=("time HYDRA_CACHE=$(mktemp -d) ./run.py setup",),
        why="builds all from nothing, as a new machine's first call does",
    ),
)


def lines_of(test: str) -> list[str]:
    """The lines that a test carries out."""
    (found,) = [one for one in ELSEWHERE if one.test == test]
    return list(found.lines)
