"""The shape of summary.json: the figures of one run, and the checks that say whether they count.

How they come about is said in summarising and checks.
"""

from pydantic import BaseModel, ConfigDict

from testbed.check import Check

SUMMARY = "summary.json"
ERROR = "error.txt"
"""What ended a failed run; a finished run has none."""


class _Part(BaseModel):
    """Plain data; a newer testbed's keys are passed over, a missing one is an error."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TransferCounts(_Part):
    """Transfers that began before measuring ended."""

    completed: int
    failed: int


class MeanAndDeviation(_Part):
    """Mean, and standard deviation of the sample (divided by n - 1); None of too few values."""

    mean: float | None
    sd: float | None


class Distribution(MeanAndDeviation):
    """The same, and the median."""

    median: float | None


class Tail(_Part):
    """Mean, median and 95th percentile (linear between ranks); None of no values."""

    mean: float | None
    median: float | None
    p95: float | None


class Streaming(_Part):
    """What a listener or viewer got of a paced model; see `streaming.judged_seconds`.

    Attributes:
        rate_mb_per_s: what arrived in each second that was judged.
        judged_s: how many seconds those were.
        short_s: in how many of them less than the model's rate arrived.
        stalls: how many times that happened in a row of them, or in one alone.
        stall_s: the lengths of the stalls.
    """

    rate_mb_per_s: Distribution
    judged_s: int
    short_s: int
    stalls: int
    stall_s: Tail


class WithoutOutliers(_Part):
    """A mean of the values between Tukey's fences, beside the plain mean of all of them.

    Attributes:
        outliers: how many values lie outside; see `values.between_fences`.
    """

    mean: float | None
    outliers: int


class Fairness(_Part):
    """How alike clients that do the same fare, by the mean throughput of each; None of one client.

    Attributes:
        jain_index: 1 if all get as much, 1/n if one of n gets all.
        largest_difference: between two clients, as a share of what the one with more gets.
    """

    jain_index: float
    largest_difference: float


class TrafficSummary(_Part):
    """The figures of the clients that run one traffic model.

    Attributes:
        clients: which these are.
        direction: of the payload, "download" or "upload".
        load_s: of transfers that begin together, from their begin to the last one's end, over the
            whole loads; None of models with one transfer at a time.
        throughput_without_outliers_mb_per_s, fairness: None of runs before these were made.
        stream_round_trip_ms: None of runs that did not record it.
        streaming: of a paced model; None of the others.
    """

    traffic: str
    clients: tuple[str, ...]
    direction: str = "download"
    transfers: TransferCounts
    throughput_mb_per_s: MeanAndDeviation
    throughput_without_outliers_mb_per_s: WithoutOutliers | None = None
    load_s: Tail | None = None
    fairness: Fairness | None = None
    time_to_first_byte_s: Tail
    time_to_last_byte_s: Tail
    stream_round_trip_ms: Distribution | None = None
    circuit_round_trip_ms: Distribution
    streaming: Streaming | None


class CompetingSummary(_Part):
    """What competing streams got, from the first second of measuring to the last.

    Attributes:
        stream_mb_per_s: of each stream, in the order of their ports.
    """

    sender: str
    receiver: str
    congestion_control: str
    stream_mb_per_s: tuple[float, ...]


class SharedLinkCounts(_Part):
    """What was seen on the shared link before measuring; None where it was not seen."""

    connections: int | None
    circuits: int | None


class RelaySummary(_Part):
    """What a relay held while the run measured, at its samples every two seconds.

    Attributes:
        connections, sockets: the most at a sample; see `probes.relays.RelaySample`.
        tor_memory_mb: the most, 1 MB = 10^6 bytes.
        socket_memory_mb: mean, as it comes and goes with the load.
    """

    relay: str
    connections: int
    sockets: int
    tor_memory_mb: float
    socket_memory_mb: float


class Cost(_Part):
    """What the run cost and what it delivered.

    Attributes:
        virtual_s: of the machine's clock.
        wall_s: on the host's clock.
        cpu_s: of the machine and all in it, user and system.
        delivered_mb: payload that came to the clients, 1 MB = 10^6 bytes; see
            `values.delivered_mb`.
    """

    virtual_s: float
    wall_s: float
    cpu_s: float
    delivered_mb: float


class Summary(_Part):
    """The figures of a run; units are in the names, 1 MB is 10^6 bytes.

    Transfers, throughput, times and round trips are those of the clients that run the model under
    test, which is `traffic`; `by_traffic` has each model's.

    Attributes:
        machine: "virtual" or "host".
        valid: whether no check failed; only valid runs go into averages.
        throughput_mb_per_s: of a transfer, its payload by its time to last byte; over the
            completed transfers.
        time_to_first_byte_s, time_to_last_byte_s: over the completed transfers.
        stream_round_trip_ms: of the completed transfers, see `values.stream_round_trip_ms`; None of
            runs that did not record it.
        circuit_round_trip_ms: over the answered probes.
        circuit_build_time_ms: of the circuits that carried the traffic, all clients'.
        relays: none of runs that did not record it.
        wire_bytes_per_byte: see `values.wire_bytes_per_byte`.
        notes: sentences that may explain a result.
    """

    scenario: str
    scenario_title: str
    variant: str
    variant_title: str
    traffic: str
    seed: int
    duration_s: float
    machine: str
    valid: bool
    checks: tuple[Check, ...]
    transfers: TransferCounts
    throughput_mb_per_s: MeanAndDeviation
    time_to_first_byte_s: Tail
    time_to_last_byte_s: Tail
    stream_round_trip_ms: Distribution | None = None
    circuit_round_trip_ms: Distribution
    circuit_build_time_ms: Distribution
    by_traffic: tuple[TrafficSummary, ...] = ()
    competing: tuple[CompetingSummary, ...] = ()
    shared_link: SharedLinkCounts
    relays: tuple[RelaySummary, ...] = ()
    wire_bytes_per_byte: float | None = None
    cost: Cost
    notes: tuple[str, ...]
