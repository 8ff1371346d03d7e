"""Measures a plan's links one after the other, inside the machine."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from testbed.basics.seeds import derived_seed
from testbed.inside.calibration.counts import CALIBRATION_FILE, CalibratedDirection, link_name
from testbed.inside.calibration.link_under_test import LinkUnderTest
from testbed.inside.lab.network import Lab, running_lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.plan.model import Plan, PlannedLink
from testbed.plan.network import Shape

PAIRS = 4
"""Pairs of hosts of each kind that are measured in networks with sites."""


def run_calibration(plan: Plan, directory: Path, gso_max_segs: int = 1) -> None:
    """Measure every direction of every link of a plan, inside the machine.

    Links are measured one at a time, so all TCP segments that a node sends cross the measured link.

    - Delay: of datagrams on the idle link, from the sender's clock to the receiver's, which are the
      same clock. It is the link's delay alone: a datagram's 50 bytes are within what HTB lets pass
      back to back, so serialisation adds nothing.
    - Rate: UDP offers both directions at once 5 % more than they carry. The packets that arrive are
      counted as whole Ethernet frames, as the rate is.
    - Loss: TCP streams in both directions at once, because it is TCP that bundles segments. Their
      windows together stay below the queue, so a FIFO drops no packet. All segments count,
      including acknowledgements. A packet that the queue drops does not count as lost.
    - Bundles: HTB counts how often it sent something, netem how many segments that were. Links with
      the queue in the sender carry bundles in a run, but not here, unless bundles cross as one.
    - Queue under a full load, on the first link of each kind, one direction after the other: TCP
      streams with unlimited windows. The kernel reports how much waits in the queue, which excludes
      the delay line. Datagrams of another flow show how long they have to wait.

    A queue must hold what a sender gives it in one millisecond, the interval at which iperf3 paces
    its stream: 8 packets at 100 Mbit/s. A shorter one drops packets that the link had time for.

    Args:
        plan: its links are measured; variant, traffic and duration don't matter.
        directory: gets `raw/calibration.jsonl` and `logs/`.
        gso_max_segs: largest bundle; more than 1 shows that a calibration finds bundles.

    Raises:
        TestbedError: a link carries nothing at all.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    rows: list[CalibratedDirection] = []
    with Record(directory / "raw") as record, running_lab(plan) as lab:
        _bundle(lab, gso_max_segs)
        measured = list(calibrated_links(plan))
        for number, link in enumerate(measured, start=1):
            record.step(f"calibrating {link_name(link)} ({number} of {len(measured)})")
            with (logs / f"iperf3-{link_name(link)}.log").open("wb") as log:
                first = next(one for one in measured if _kind(one) == _kind(link))
                test = LinkUnderTest(lab, link, log.fileno())
                rows += test.counts(with_load=link is first and link in plan.links)
        record.step("done")
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    (directory / "raw" / CALIBRATION_FILE).write_text(lines, encoding="utf-8")


def calibrated_links(plan: Plan) -> Iterator[PlannedLink]:
    """Yield the links to measure: all, or in networks with sites the paths of some pairs of hosts.

    The seed chooses `PAIRS` pairs of each kind that communicate. The links of a path are combined
    into one.
    """
    if not plan.of_kind("router"):
        yield from plan.links
        return
    exits = [relay for relay in plan.of_kind("relay") if "exit" in relay.flags]
    for kind, firsts, seconds in (
        ("client-relay", plan.of_kind("client"), plan.of_kind("relay")),
        ("relay-relay", plan.of_kind("relay"), plan.of_kind("relay")),
        ("relay-server", exits, plan.of_kind("server")),
    ):
        pairs = [(one.name, other.name) for one in firsts for other in seconds if one != other]
        pairs.sort(key=lambda ends: derived_seed(plan.seed, "calibration", *ends))
        for ends in pairs[:PAIRS]:
            yield PlannedLink(
                ends=ends,
                roles=(kind, kind),
                there=_whole(plan, *ends),
                back=_whole(plan, *ends[::-1]),
                netem_seeds=(0, 0),
            )


def _whole(plan: Plan, sender: str, receiver: str) -> Shape:
    """Combine the shapes of the links between two hosts."""
    shapes = {(one, other): shape for link in plan.links for one, other, shape in link.directions()}
    router = {one: other for one, other in shapes if plan.node(other).kind == "router"}
    nodes = dict.fromkeys((sender, router[sender], router[receiver], receiver))
    whole, *others = (shapes[hop] for hop in pairwise(nodes))
    for shape in others:
        whole = whole.then(shape)
    return whole


def _bundle(lab: Lab, segments: int) -> None:
    for direction in lab.directions:
        if direction.shape.bundles:
            continue
        lab.set_bundle(direction, segments)


def _kind(link: PlannedLink) -> PlannedLink:
    """Return a link without its ends and seeds, equal for all links of a kind."""
    return link.model_copy(update={"ends": link.roles, "netem_seeds": (0, 0)})


def main() -> None:
    """Run as `python -m testbed.inside.calibration` by a machine, with a plan in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument(
        "--gso-max-segs",
        type=int,
        default=1,
        help="largest bundle; above 1 the calibration must fail",
    )
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_reported(given.directory):
        run_calibration(plan, given.directory, given.gso_max_segs)


if __name__ == "__main__":
    main()
