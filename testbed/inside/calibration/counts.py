"""A calibration's counts, as they are written and read."""

from testbed.plan.model import PlannedLink
from testbed.plan.network import Shape
from testbed.plan.programs import PlanPart

CALIBRATION_FILE = "calibration.jsonl"
"""File in a directory's `raw/`: a line per direction, written once all are measured."""


class LoadCounts(PlanPart):
    """Counts of one direction of a link under TCP's full load.

    Attributes:
        queue_delays_ms: length of the queue at each sample, as the time that the link takes to send
            it.
        datagram_delays_ms: one-way delays of another flow's datagrams that arrived.
        window_s: duration of the measurement.
        sent_bytes: sent by the link in `window_s`, as whole frames.
        dropped_by_queue: packets, or bundles, in that time.
    """

    queue_delays_ms: tuple[float, ...]
    datagram_delays_ms: tuple[float, ...]
    window_s: float
    sent_bytes: int
    dropped_by_queue: int


class CalibratedDirection(PlanPart):
    """Counts of one direction of a link, not judged yet.

    Attributes:
        sender, receiver: the direction's ends.
        link: the link as planned.
        delays_ms: one-way delays of the datagrams that arrived on the idle link.
        rate_window_s, rate_packets: full-size packets that arrived in a time under overload.
        sent_segments: segments that the sender's TCP counts, including retransmissions.
        passed_segments, passed_bundles: those that passed the link's loss and queue.
        lost_by_link, dropped_by_queue: packets, or bundles if they cross as one.
        arrived_packets: packets on the receiver's interface, before segments are joined.
        bundled_segments: segments that crossed the link as part of a bundle.
        load: counts under a full load; on one link of each kind.
    """

    sender: str
    receiver: str
    link: PlannedLink
    delays_ms: tuple[float, ...]
    rate_window_s: float
    rate_packets: int
    sent_segments: int
    passed_segments: int
    passed_bundles: int
    lost_by_link: int
    dropped_by_queue: int
    arrived_packets: int
    bundled_segments: int
    load: LoadCounts | None = None

    @property
    def shape(self) -> Shape:
        """The planned shape of the direction."""
        return self.link.shape_from(self.sender)


def link_name(link: PlannedLink) -> str:
    """Name a link by its ends, such as "middle1-exit1"."""
    return "-".join(link.ends)
