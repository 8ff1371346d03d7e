"""The expected numbers of links in closed form: what drawing circuits gives on average.

A link's parts come from independent clients. Given a client's guard, its circuits are independent
too; each adds no part to the link, one (with probability s), or two (t). With K circuits a client

    u = sum over guards of P(guard) (1 - (1 - s - t)^K)             a client has a part of the link
    v = sum over guards of P(guard) K s (1 - s - t)^(K - 1)         it has exactly one

and C clients leave the link without a part with (1 - u)^C, with exactly one with C v (1 - u)^(C-1).
The expected links are the sum over pairs of relays of 1 - (1 - u)^C, and the shared ones of that
less C v (1 - u)^(C-1). For K = 1 and t = 0 this is the sum of 1 - (1-p)^N - N p (1-p)^(N-1).

For a directed link from a to b, a ≠ b, with g, m and l the probabilities as guard, middle and last:

    guard a: s = m_b + m_a l_b;  any other guard: s = m_a l_b;  t = 0

as a relay is the middle or it isn't. For an undirected one a circuit a-b-a has two parts of it:

    guard a: s = m_b (1 - l_a) + m_a l_b, t = m_b l_a;  guard b: likewise
    any other guard: s = m_a l_b + m_b l_a, t = 0

and for a relay's link to itself, with either direction:

    guard a: s = m_a (1 - l_a), t = m_a l_a;  any other guard: s = m_a l_a, t = 0

Relays that are alike in g, m and l are treated once: weights in a consensus have three digits, so
that 41 million pairs become some two million. Relays are independent here: rules that keep those of
a circuit apart have no such form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from salsa.links import MOST_PARTS
from salsa.positions import Positions
from testbed.errors import InputError
from testbed.network.positions import Floats

_NEVER_CERTAIN = 1 - 1e-16
"""What a probability of 1 is taken for, whose complement has no logarithm."""

_NEGLIGIBLE_LINKS = 1e-6
"""Where the distribution ends: fewer links than that are expected to have so many parts."""


@dataclass(frozen=True, eq=False)
class ExpectedLinks:
    """Expected numbers, as `salsa.links.Links` counts them.

    Attributes:
        links, guard_middle, middle_exit: numbers of links and, of these, of shared ones.
        by_parts: how many links have 0 (always 0), 1, 2, … parts, up to `MOST_PARTS`; None with
            several circuits a client.
        circuits_with_one, circuits_with_two: how many circuits have so many parts on shared links;
            None with several circuits a client. A circuit's two parts are taken as independent,
            given its middle: that is wrong by a share of about N times a path's probability.
    """

    links: tuple[float, float]
    guard_middle: tuple[float, float]
    middle_exit: tuple[float, float]
    by_parts: Floats | None
    circuits_with_one: float | None
    circuits_with_two: float | None


def expected(
    positions: Positions, circuits: int, *, per_client: int, undirected: bool
) -> ExpectedLinks:
    """What `draw` and `count_links` give on average.

    Raises:
        InputError: the case keeps relays of a circuit apart.
    """
    if positions.kept_apart:
        raise InputError(
            "--expected is for independent relays: leave the rules out that keep relays of a"
            " circuit apart (no-relay-twice, no-same-16, no-same-family), or draw"
        )
    groups = _groups(positions)
    pairs = _pairs(groups, undirected=undirected)
    by_parts = with_one = with_two = None
    if per_client == 1:
        by_parts = _by_parts(pairs, circuits)
        with_one, with_two = _circuits_by_shared(groups, pairs, circuits, undirected=undirected)
    return ExpectedLinks(
        links=_links(pairs, circuits, per_client),
        guard_middle=_links(
            _pairs(groups, undirected=undirected, second=False), circuits, per_client
        ),
        middle_exit=_links(
            _pairs(groups, undirected=undirected, first=False), circuits, per_client
        ),
        by_parts=by_parts,
        circuits_with_one=with_one,
        circuits_with_two=with_two,
    )


class _Groups(NamedTuple):
    """Relays that are alike in all three probabilities; arrays with one entry a group.

    Attributes:
        size: how many relays there are in it.
    """

    size: Floats
    guard: Floats
    middle: Floats
    last: Floats


class _Kind(NamedTuple):
    """What a circuit adds to links, given that its guard is of one kind.

    Attributes:
        probability: of such a guard.
        one, two: the probabilities of adding one part (s) and two (t).
    """

    probability: Floats
    one: Floats
    two: Floats


class _Pairs(NamedTuple):
    """Links between relays of any two groups (a matrix), or of relays with themselves (an array).

    Attributes:
        number: how many links these are.
        kinds: by the circuit's guard; their probabilities sum up to 1.
    """

    number: Floats
    kinds: Sequence[_Kind]


def _groups(positions: Positions) -> _Groups:
    columns = np.stack([positions.guard, positions.middle, positions.last], axis=1)
    alike, sizes = np.unique(columns, axis=0, return_counts=True)
    return _Groups(sizes.astype(np.float64), *alike.T)


def _pairs(
    groups: _Groups, *, undirected: bool, first: bool = True, second: bool = True
) -> tuple[_Pairs, _Pairs]:
    """The links between different relays, and those of relays with themselves.

    Args:
        first, second: whether circuits' first parts count, and their second ones.
    """
    size, g_b, m_b, l_b = groups
    g_a, m_a, l_a = g_b[:, None], m_b[:, None], l_b[:, None]
    onward = second * m_a * l_b
    if undirected:
        back = second * m_b * l_a
        two_a, two_b = (first and second) * m_b * l_a, (first and second) * m_a * l_b
        kinds = [
            _Kind(g_a, first * m_b + onward + back - 2 * two_a, two_a),
            _Kind(g_b, first * m_a + onward + back - 2 * two_b, two_b),
            _Kind(1 - g_a - g_b, onward + back, np.zeros(1)),
        ]
    else:
        kinds = [
            _Kind(g_a, first * m_b + onward, np.zeros(1)),
            _Kind(1 - g_a, onward, np.zeros(1)),
        ]
    ordered = size[:, None] * size - np.diag(size)
    two = (first and second) * m_b * l_b
    itself = (
        _Kind(g_b, first * m_b + second * m_b * l_b - 2 * two, two),
        _Kind(1 - g_b, second * m_b * l_b, np.zeros(1)),
    )
    return _Pairs(ordered / 2 if undirected else ordered, kinds), _Pairs(size, itself)


def _links(pairs: Sequence[_Pairs], circuits: int, per_client: int) -> tuple[float, float]:
    """The expected numbers of links and of shared links."""
    clients, circuits_of_last = divmod(circuits, per_client)
    links = shared = 0.0
    for number, kinds in pairs:
        if per_client == 1:  # a circuit's guard doesn't matter to any other then
            kinds = [_Kind(np.ones(1), *_whatever_guard(kinds))]
        none, one = _none_and_one(kinds, clients, per_client)
        if circuits_of_last:
            none_of_last, one_of_last = _none_and_one(kinds, 1, circuits_of_last)
            none, one = none * none_of_last, none * one_of_last + one * none_of_last
        links += float(np.sum(number * (1 - none)))
        shared += float(np.sum(number * (1 - none - one)))
    return links, shared


def _none_and_one(kinds: Sequence[_Kind], clients: int, per_client: int) -> tuple[Floats, Floats]:
    """The probabilities that a link has no part of these clients' circuits, and exactly one."""
    some_part, one_part = np.zeros(1), np.zeros(1)
    for probability, one, two in kinds:
        log_none = _log_complement(one + two)
        some_part = some_part - probability * np.expm1(per_client * log_none)
        one_part = one_part + probability * per_client * one * np.exp((per_client - 1) * log_none)
    log_none = _log_complement(some_part)
    one_of_all = clients * one_part * np.exp((clients - 1) * log_none)
    return np.exp(clients * log_none), one_of_all


def _log_complement(probability: Floats) -> Floats:
    return np.asarray(np.log1p(-np.minimum(probability, _NEVER_CERTAIN)))


def _whatever_guard(kinds: Sequence[_Kind]) -> tuple[Floats, Floats]:
    """The probabilities that a circuit adds one part and two."""
    one = sum((kind.probability * kind.one for kind in kinds), np.zeros(1))
    two = sum((kind.probability * kind.two for kind in kinds), np.zeros(1))
    return one, two


def _by_parts(pairs: Sequence[_Pairs], circuits: int) -> Floats:
    """The expected numbers of links by their parts, with one circuit a client.

    The probabilities are the coefficients of (1 - s - t + s x + t x²)^N, each of them by the two
    before it (Knuth, The Art of Computer Programming 2, section 4.7, on powers of a series).
    """
    found = np.zeros(MOST_PARTS + 1)
    for number, kinds in pairs:
        one, two = _whatever_guard(kinds)
        none = 1 - np.minimum(one + two, _NEVER_CERTAIN)
        before, last = np.zeros(1), np.exp(circuits * _log_complement(one + two))
        for parts in range(1, MOST_PARTS + 1):
            of_one = (circuits - parts + 1) * one * last
            of_two = (2 * circuits - parts + 2) * two * before
            before, last = last, (of_one + of_two) / (parts * none)
            found[parts] += np.sum(number * last)
            if parts > 2 and np.sum(number * last) < _NEGLIGIBLE_LINKS:
                break
    return np.trim_zeros(found, "b")


def _circuits_by_shared(
    groups: _Groups, pairs: tuple[_Pairs, _Pairs], circuits: int, *, undirected: bool
) -> tuple[float, float]:
    """The expected numbers of circuits with one and with two parts on a shared link.

    For each middle b: a circuit's first part is on no shared link if no other circuit has a part of
    that link and its own second part isn't of it, which it is in circuits b-b-b, and a-b-a where
    links are undirected. Likewise its second part, and both.
    """
    size, guard, middle, last = groups
    alone, alone_itself = (_no_part(kinds, circuits - 1) for _, kinds in pairs)

    def sum_over(weights: Floats, probabilities: Floats) -> Floats:
        """For each middle, over all relays at a link's other end; one is the middle itself."""
        others = probabilities @ (size * weights)
        return np.asarray(others - weights * np.diagonal(probabilities))

    first = sum_over(guard, alone.T) + guard * alone_itself
    second = sum_over(last, alone) + last * alone_itself
    returning = guard * last * alone_itself
    returning_squared = guard * last * alone_itself**2
    if undirected:
        returning = returning + sum_over(guard * last, alone)
        returning_squared = returning_squared + sum_over(guard * last, alone**2)
    weights = size * middle
    neither = float(weights @ (first * second - returning_squared))
    not_first, not_second = (float(weights @ (one - returning)) for one in (first, second))
    with_one = not_first + not_second - 2 * neither
    with_two = 1 - not_first - not_second + neither
    return circuits * with_one, circuits * with_two


def _no_part(kinds: Sequence[_Kind], circuits: int) -> Floats:
    one, two = _whatever_guard(kinds)
    return np.asarray(np.exp(circuits * _log_complement(one + two)))
