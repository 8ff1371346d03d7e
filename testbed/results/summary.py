"""The shape of summary.json: the figures of one run, and the checks that say whether they count.

`results.summarising` and `results.checks` make them.
"""

from pydantic import BaseModel, ConfigDict

from testbed.basics.check import Check

SUMMARY = "summary.json"
ERROR = "error.txt"
"""The file with the error that ended a failed run; a finished run has none."""


class _Part(BaseModel):
    """Plain data; a newer testbed's keys are ignored, a missing key is an error."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TransferCounts(_Part):
    """Transfers that began while the run measured."""

    completed: int
    failed: int


class MeanAndDeviation(_Part):
    """Mean, and standard deviation of the sample (divided by n - 1); None for too few values."""

    mean: float | None
    sd: float | None


class Distribution(MeanAndDeviation):
    """Mean, standard deviation and median."""

    median: float | None


class Tail(_Part):
    """Mean, median, 75th and 95th percentile (linear between ranks); None without values.

    Older summaries lack the 75th.
    """

    mean: float | None
    median: float | None
    p75: float | None = None
    p95: float | None


class Streaming(_Part):
    """A paced model as a listener or viewer has it; see `results.streaming.judged_seconds`.

    Attributes:
        rate_mb_per_s: what arrived in each judged second.
        judged_s: the number of judged seconds.
        short_s: in how many of them less than the model's rate arrived.
        stalls: the number of stalls, each one or several short seconds in a row.
        stall_s: the lengths of the stalls.
    """

    rate_mb_per_s: Distribution
    judged_s: int
    short_s: int
    stalls: int
    stall_s: Tail


class WithoutOutliers(_Part):
    """The mean of the values between Tukey's fences; the plain mean stands beside it.

    Attributes:
        outliers: how many values lie outside; see `results.values.between_fences`.
    """

    mean: float | None
    outliers: int


class Fairness(_Part):
    """How equally clients with the same traffic fare, by the mean throughput of each.

    Attributes:
        jain_index: 1 if all get the same, 1/n if one of n gets everything.
        largest_difference: between two clients, as a share of the larger value.
    """

    jain_index: float
    largest_difference: float


class TrafficSummary(_Part):
    """The figures of the clients that run one traffic model.

    Attributes:
        clients: their names.
        direction: of the payload, "download" or "upload".
        load_s: over the completed loads, from the start of a load's transfers to the last one's
            end; None for models with one transfer at a time.
        throughput_without_outliers_mb_per_s: None for runs made before it was computed.
        fairness: None for a single client, and for runs made before it was computed.
        stream_round_trip_ms: None for runs that did not record it.
        streaming: for a paced model; None for others.
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
    """The rates of competing streams, from the first second of measuring to the last.

    Attributes:
        stream_mb_per_s: of each stream, in the order of their ports.
    """

    sender: str
    receiver: str
    congestion_control: str
    stream_mb_per_s: tuple[float, ...]


class SharedLinkCounts(_Part):
    """Connections and circuits on the shared link before measuring; None if not observed."""

    connections: int | None
    circuits: int | None


class CircuitsOfClients(_Part):
    """The circuits of clients whose Tors choose paths, in the whole run with its warm-up.

    Attributes:
        made: how many circuits for streams each client built.
        used: on how many of them each client had streams of the traffic.
        build_time_ms: of those launched since there was traffic; None for older runs.
        streams_by_rule: how many streams each rule gave a circuit; empty without a rule.
        streams_by_liars: how many of them had a relay that lies; None without liars.
        probes: by which a policy measured its circuits.
        probe_bytes: what they put on each link of a circuit: two cells each.
    """

    made: Distribution
    used: Distribution
    build_time_ms: Distribution | None = None
    streams_by_rule: dict[str, int] = {}
    streams_by_liars: int | None = None
    probes: int = 0
    probe_bytes: int = 0


class RelaySummary(_Part):
    """A relay's connections and memory, by samples every two seconds while the run measured.

    Attributes:
        connections, sockets: the most in a sample; see `inside.rows.RelaySample`.
        tor_memory_mb: the most in a sample, 1 MB = 10^6 bytes.
        socket_memory_mb: the mean, as it varies with the load.
        sent_mb: the frames that it sent over its emulated links from then on until the last
            transfer had ended; older summaries lack it.
        scheduler_interval_ms: the mean time from one run of its scheduler to the next; None
            unless the variant counts them.
    """

    relay: str
    connections: int
    sockets: int
    tor_memory_mb: float
    socket_memory_mb: float
    sent_mb: float | None = None
    scheduler_interval_ms: float | None = None


class ProcessorSummary(_Part):
    """A processor that takes time, while the run measured.

    Attributes:
        busy_percent: of the time; `most_busy_percent` is that of its busiest second.
        read_mbit_per_s: what its node's programs read at its cost.
    """

    node: str
    busy_percent: float
    most_busy_percent: float
    read_mbit_per_s: float


class Cost(_Part):
    """The cost of the run, and what it delivered for that.

    Attributes:
        virtual_s: on the machine's clock.
        wall_s: on the host's clock.
        cpu_s: of the machine and everything in it, user and system.
        cores: how many cores its kernels had; None on the host machine.
        delivered_mb: payload, 1 MB = 10^6 bytes; see `results.values.delivered_mb`.
    """

    virtual_s: float
    wall_s: float
    cpu_s: float
    cores: int | None = 1
    delivered_mb: float


class Summary(_Part):
    """The figures of a run; units are in the names, 1 MB is 10^6 bytes.

    Transfers, throughput, times and round trips are those of the clients that run the model under
    test, which is `traffic`; `by_traffic` has each model's.

    Attributes:
        duration_s: how long the run measured; `warm_up_s`: how long the traffic went on before.
        machine: "virtual" or "host".
        valid: whether no check failed; only valid runs go into averages.
        throughput_mb_per_s: payload divided by time to last byte; over the completed transfers.
        time_to_first_byte_s, time_to_last_byte_s: over the completed transfers.
        stream_round_trip_ms: of the completed transfers, see `results.values.stream_round_trip_ms`;
            None for runs that did not record it.
        circuit_round_trip_ms: over the answered probes.
        circuit_build_time_ms: of the circuits that carried the traffic, all clients'.
        circuits_of_clients: None if Tor doesn't choose paths, and for older runs.
        relays: empty for runs that did not record it.
        processors: of the nodes that have one that takes time.
        wire_bytes_per_byte: see `results.values.wire_bytes_per_byte`.
        notes: sentences that may explain a result.
    """

    scenario: str
    scenario_title: str
    variant: str
    variant_title: str
    traffic: str
    seed: int
    duration_s: float
    warm_up_s: float = 0.0
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
    circuits_of_clients: CircuitsOfClients | None = None
    relays: tuple[RelaySummary, ...] = ()
    processors: tuple[ProcessorSummary, ...] = ()
    wire_bytes_per_byte: float | None = None
    cost: Cost
    notes: tuple[str, ...]

    @property
    def failed_checks(self) -> list[Check]:
        """The checks that did not hold; none in a valid run."""
        return [check for check in self.checks if check.failed]

    @property
    def traffic_s(self) -> float:
        """How long clients began transfers: the warm-up, and then while the run measured."""
        return self.warm_up_s + self.duration_s
