"""What a run's streams tell adversaries who watch both ends of circuits: relays, or countries.

Relays are malicious afterwards, on paper: a run has none. Streams are the traffic's, of the whole
run with its warm-up.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import fmean, median

from testbed.plan.malicious import malicious_relays
from testbed.results import Run
from testbed.results.circuits_of_clients import carried_streams

MALICIOUS = 0.1
"""The share of the guards' weight, and of the exits', that is malicious."""
DRAWS = 10
PARTS = 4
"""Into how many parts a run is divided where something is told over its length."""
MOST_ENUMERATED = 16
"""The most relays on one side of a client's circuits whose subsets are enumerated."""

Ends = tuple[str, str]
"""The guard and the exit of a circuit."""


@dataclass(frozen=True)
class Stream:
    """A stream that a circuit carried: its client, its relays from guard to exit, its server."""

    client: str
    path: tuple[str, ...]
    server: str

    @property
    def ends(self) -> Ends:
        """Guard and exit."""
        return self.path[0], self.path[-1]


@dataclass(frozen=True)
class Seen:
    """What adversaries see of a run's streams; shares are of all streams, entropies in bits.

    Attributes:
        expected: the share with a malicious guard and a malicious exit that is to be expected.
        deviation: the standard deviation of that share over all choices of malicious relays.
        draws: that share in each of ten draws.
        clients: the share of clients of which some stream is to be expected to be seen; None if a
            client has used too many relays to tell exactly.
        one_country: the share of which one country sees both ends.
        guards_bit, exits_bit: the entropy of the streams' guards and exits.
        circuits_bit: that of a client's circuits, on average over clients.
    """

    streams: int
    expected: float
    deviation: float
    draws: tuple[float, ...]
    clients: float | None
    one_country: float | None
    guards_bit: float
    exits_bit: float
    circuits_bit: float

    @property
    def mean_of_draws(self) -> float:
        """The mean of the ten draws."""
        return fmean(self.draws)

    @property
    def median_of_draws(self) -> float:
        """Their median, which is what *Circuit selection* gives."""
        return median(self.draws)


@cache
def seen(run: Run) -> Seen | None:
    """What adversaries see of a run; None if no circuit carried a stream."""
    streams = list(streams_of(run))
    if not streams:
        return None
    pairs = Counter(stream.ends for stream in streams)
    expected, deviation = share_of_streams(pairs)
    relays = run.plan.of_kind("relay")
    weights = {
        flag: {one.name: one.weight or 0 for one in relays if flag in one.flags}
        for flag in ("guard", "exit")
    }
    draws = (
        share_seen(
            pairs,
            malicious_relays(weights["guard"], MALICIOUS, run.plan.seed, "guard", str(number)),
            malicious_relays(weights["exit"], MALICIOUS, run.plan.seed, "exit", str(number)),
        )
        for number in range(1, DRAWS + 1)
    )
    return Seen(
        streams=len(streams),
        expected=expected,
        deviation=deviation,
        draws=tuple(draws),
        clients=share_of_clients(streams),
        one_country=share_of_one_country(streams, countries_of(run)),
        guards_bit=entropy_bit(Counter(stream.ends[0] for stream in streams)),
        exits_bit=entropy_bit(Counter(stream.ends[1] for stream in streams)),
        circuits_bit=fmean(
            entropy_bit(Counter(stream.path for stream in of))
            for of in _by_client(streams).values()
        ),
    )


def streams_of(run: Run) -> Iterator[Stream]:
    """The traffic's streams of a run whose circuits' relays are known."""
    rows = carried_streams(run).drop_nulls("path").select("client", "path")
    for client, path in rows.iter_rows():
        yield Stream(client, tuple(path.split(",")), run.plan.server_of(client))


def clients_over_time(run: Run, parts: int = PARTS) -> list[float | None]:
    """`share_of_clients` from the traffic's start to the end of each of so many equal parts of it.

    Clients without a stream until then count, as they have none that is seen. The last part also
    has the streams that were opened after it.
    """
    rows = carried_streams(run).drop_nulls("path").select("time_s", "client", "path")
    start_s = run.measuring_start_s - run.plan.warm_up_s
    opened = [
        ((time_s - start_s) / run.plan.traffic_s, client, tuple(path.split(",")))
        for time_s, client, path in rows.iter_rows()
    ]
    found: list[float | None] = []
    for number in range(1, parts + 1):
        streams = [
            Stream(client, path, run.plan.server_of(client))
            for at, client, path in opened
            if at < number / parts or number == parts
        ]
        with_streams = len({stream.client for stream in streams})
        share = share_of_clients(streams) if streams else 0.0
        found.append(None if share is None else share * with_streams / len(run.plan.clients))
    return found


def countries_of(run: Run) -> dict[str, str]:
    """The country of each node that has one."""
    return {node.name: node.country for node in run.plan.nodes if node.country}


def share_of_streams(
    pairs: Mapping[Ends, int], malicious: float = MALICIOUS
) -> tuple[float, float]:
    """The expected share of streams with a malicious guard and exit, and its standard deviation.

    Each guard is malicious with a chance that is the malicious share of the weight, so that this
    share is what is to be expected, whatever the weights; and each exit likewise, independently of
    that. A pair is malicious with the product of both, so the expected share is the same for all
    runs. The variance is the sum over all pairs of pairs, which share both relays, one, or none.
    """
    all_of_them = sum(pairs.values())
    guards, exits = Counter[str](), Counter[str]()
    for (guard, last), number in pairs.items():
        guards[guard] += number
        exits[last] += number
    same_pair = sum(number**2 for number in pairs.values())
    same_guard = sum(number**2 for number in guards.values()) - same_pair
    same_exit = sum(number**2 for number in exits.values()) - same_pair
    apart = all_of_them**2 - same_pair - same_guard - same_exit
    squared = (
        malicious**2 * same_pair + malicious**3 * (same_guard + same_exit) + malicious**4 * apart
    )
    variance = squared / all_of_them**2 - malicious**4
    return malicious**2, math.sqrt(max(variance, 0.0))


def share_of_clients(streams: Iterable[Stream], malicious: float = MALICIOUS) -> float | None:
    """The expected share of clients with some stream whose guard and exit are both malicious."""
    chances = []
    for of in _by_client(streams).values():
        chance = chance_of_any({stream.ends for stream in of}, malicious)
        if chance is None:
            return None
        chances.append(chance)
    return fmean(chances)


def chance_of_any(pairs: Collection[Ends], malicious: float = MALICIOUS) -> float | None:
    """The chance that some of the pairs are malicious, with relays as in `share_of_streams`.

    It is summed over all sets of malicious relays of the side that has fewer; None if that has more
    than `MOST_ENUMERATED`.
    """
    ways = [pairs, [(last, guard) for guard, last in pairs]]
    fewer = min(ways, key=lambda way: len({one for one, _ in way}))
    others = {one: {other for each, other in fewer if each == one} for one, _ in fewer}
    if len(others) > MOST_ENUMERATED:
        return None
    none = 0.0
    for chosen in product((False, True), repeat=len(others)):
        marked = [
            set_of for set_of, is_marked in zip(others.values(), chosen, strict=True) if is_marked
        ]
        reached = len(set().union(*marked))
        chance = malicious ** len(marked) * (1 - malicious) ** (len(others) - len(marked))
        none += chance * (1 - malicious) ** reached
    return 1 - none


def share_seen(pairs: Mapping[Ends, int], guards: Collection[str], exits: Collection[str]) -> float:
    """The share of streams that have one of the guards and one of the exits."""
    both = sum(
        number for (guard, last), number in pairs.items() if guard in guards and last in exits
    )
    return both / sum(pairs.values())


def share_of_one_country(streams: Sequence[Stream], countries: Mapping[str, str]) -> float | None:
    """The share of which one country has client or guard, and exit or server.

    Networks between them are not counted. None without countries.
    """
    if not countries:
        return None

    def both(stream: Stream) -> bool:
        guard, last = stream.ends
        there = {countries.get(stream.client), countries.get(guard)}
        return bool(there & {countries.get(last), countries.get(stream.server)} - {None})

    return fmean(map(both, streams))


def entropy_bit(counts: Mapping[object, int]) -> float:
    """The entropy of a distribution, in bits."""
    all_of_them = sum(counts.values())
    shares = (number / all_of_them for number in counts.values() if number)
    return math.fsum(-share * math.log2(share) for share in shares)


def _by_client(streams: Iterable[Stream]) -> dict[str, list[Stream]]:
    by_client: dict[str, list[Stream]] = {}
    for stream in streams:
        by_client.setdefault(stream.client, []).append(stream)
    return by_client
