"""The expected numbers of links in closed form: the mean over all draws of circuits.

A link's parts come from independent clients. Given a client's guard, its circuits are independent
too; each adds no part to the link, one (with probability s), or two (t). With K circuits a client,
the probabilities are

    u = sum over guards of P(guard) (1 - (1 - s - t)^K)             that a client has a part
    v = sum over guards of P(guard) K s (1 - s - t)^(K - 1)         that it has exactly one

so with C clients the link has no part with probability (1 - u)^C, and exactly one with
C v (1 - u)^(C-1). The expected number of links is the sum over pairs of relays of 1 - (1 - u)^C,
and that of shared links the sum of this less C v (1 - u)^(C-1). For K = 1 and t = 0 the latter is
the sum of 1 - (1-p)^N - N p (1-p)^(N-1).

For a directed link from a to b, a ≠ b, with g, m and l the probabilities as guard, middle and last:

    guard a: s = m_b + m_a l_b;  any other guard: s = m_a l_b;  t = 0

as a relay either is the middle or not. For an undirected link a circuit a-b-a has two parts:

    guard a: s = m_b (1 - l_a) + m_a l_b, t = m_b l_a;  guard b: likewise
    any other guard: s = m_a l_b + m_b l_a, t = 0

and for a relay's link to itself, directed or not:

    guard a: s = m_a (1 - l_a), t = m_a l_a;  any other guard: s = m_a l_a, t = 0

Relays with equal g, m and l are computed once: weights in a consensus have three digits, so 41
million pairs become some two million. Relays are independent here; rules that keep those of a
circuit apart have no such form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from salsa.links import MOST_PARTS
from salsa.positions import Positions
from testbed.basics.errors import InputError
from testbed.network.positions import Floats

_NEVER_CERTAIN = 1 - 1e-16
"""Replaces a probability of 1, as the complement of that has no logarithm."""

_NEGLIGIBLE_LINKS = 1e-6
"""The expected number of links with so many parts at which the distribution ends."""


@dataclass(frozen=True, eq=False)
class ExpectedLinks:
    """The expected values of `salsa.links.LinkCounts`.

    Attributes:
        links, guard_middle, middle_exit: the numbers of links and, of these, of shared ones.
        by_parts: the numbers of links with 0 (none), 1, 2, … parts, up to `MOST_PARTS`; None with
            several circuits a client.
        circuits_with_one, circuits_with_two: the numbers of circuits with so many parts on shared
            links; None with several circuits a client. Given its middle, a circuit's two parts are
            taken as independent, which is wrong by a share of about N times a path's probability.
    """

    links: tuple[float, float]
    guard_middle: tuple[float, float]
    middle_exit: tuple[float, float]
    by_parts: Floats | None
    circuits_with_one: float | None
    circuits_with_two: float | None


def expected(
    positions: Positions, circuits: int, *, per_client: int, undirected: bool, guards: int = 1
) -> ExpectedLinks:
    """Compute the mean of what `count_links` counts over all draws.

    Raises:
        InputError: the case keeps relays of a circuit apart, or a client has several guards.
    """
    if guards > 1:
        raise InputError(
            f"--expected is for one guard of a client: leave --guards {guards} out, or --expected"
        )
    if positions.kept_apart:
        raise InputError(
            "--expected is for independent relays: leave the rules out that keep relays of a"
            " circuit apart (no-relay-twice, no-same-16, no-same-family), or leave --expected out"
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
    """Groups of relays with the same three probabilities; arrays have an entry for each group.

    Attributes:
        size: the number of relays in each.
    """

    size: Floats
    guard: Floats
    middle: Floats
    last: Floats


class _Kind(NamedTuple):
    """The parts that a circuit adds to links, given that its guard is of one kind.

    Attributes:
        probability: the probability of such a guard.
        one, two: the probabilities that the circuit adds one part (s) and two (t).
    """

    probability: Floats
    one: Floats
    two: Floats


class _Pairs(NamedTuple):
    """Links between relays of any two groups (a matrix), or of relays with themselves (an array).

    Attributes:
        number: the number of such links.
        kinds: the kinds of a circuit's guard; their probabilities add up to 1.
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
        first, second: whether the first and the second parts of circuits count.
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
        if per_client == 1:  # then no two circuits depend on each other by their guard
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
    """The expected numbers of links by their number of parts, with one circuit a client.

    The probabilities are the coefficients of (1 - s - t + s x + t x²)^N, each computed from the two
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
            # Where circuits are many, few parts are as rare as many are: the middle comes first.
            if np.all(last <= before) and np.sum(number * last) < _NEGLIGIBLE_LINKS:
                break
    return np.trim_zeros(found, "b")


def _circuits_by_shared(
    groups: _Groups, pairs: tuple[_Pairs, _Pairs], circuits: int, *, undirected: bool
) -> tuple[float, float]:
    """The expected numbers of circuits with one and with two parts on a shared link.

    For each middle b, a circuit's first part is on no shared link if no other circuit has a part of
    that link, and if its own second part is on another link, as it is but in circuits b-b-b and,
    where links are undirected, a-b-a. The same holds for its second part and for both.
    """
    size, guard, middle, last = groups
    alone, alone_itself = (_no_part(kinds, circuits - 1) for _, kinds in pairs)

    def sum_over(weights: Floats, probabilities: Floats) -> Floats:
        """The sum for each middle over all other relays at the link's other end."""
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
