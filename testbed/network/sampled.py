"""Networks drawn from a consensus by a seed: relays of each class, users and servers by country.

The method is tornettools' (Jansen, Tracey, Goldberg: Once is Never Enough, USENIX Security 2021,
section 4): each class (guard, exit, both, neither) has the same share of relays as in the whole
network, and they come from bins of the relays sorted by weight. In tornettools each bin gives its
median relay, of a month's, whose weight is below the mean. Here it gives any of its relays; of
several sets drawn in this way, the one stays whose weight is nearest to the class's share.
Otherwise a network of few relays could have one slow exit, or one that has half of all weight.

Every draw is a hash of the seed and of its purpose, so nothing depends on the order of draws.
"""

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, combinations
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.basics.errors import InputError
from testbed.basics.seeds import derived_seed
from testbed.basics.toml_file import label, shown
from testbed.network.consensus import Consensus
from testbed.network.places import ROUND_TRIPS, Places
from testbed.network.positions import relay_classes
from testbed.network.routes import Routes
from testbed.plan.network import HOPS, RELAY_CLASSES, Flag, Kind, Link, Network, Node, Shape, Site
from testbed.plan.queue_disciplines import FIFO

SERVER_RATE_BIT_PER_S = 1_000_000_000
"""The rate of servers and authorities, as in tornettools, so they are no bottleneck."""

_LEAST_RATE_BIT_PER_S = 1000
"""The least rate of a relay, as of the links of other scenarios."""

_FRACTION_BITS = 53
"""The bits of a draw between 0 and 1: as many as a float holds."""

_SETS = 32
"""The sets of relays drawn for a class, of which one stays."""

_FLAGS: Mapping[int, tuple[Flag, ...]] = {1: ("guard",), 2: ("exit",), 3: ("guard", "exit"), 0: ()}
"""Flags by the numbers of `relay_classes`, in the order of `RELAY_CLASSES`."""

Key = TypeVar("Key")
Numbers = NDArray[np.int64]
Draw = Callable[..., float]
"""Draws a number in [0, 1) by the seed, for a purpose and the names of what it is for."""


def draw_network(
    consensus: Consensus,
    places: Places,
    *,
    relays: int,
    clients: int,
    servers: int,
    authorities: int = 1,
    relay_rates: float = 1.0,
    loss: float = 0.0,
    client_loss: float = 0.0,
    queue_discipline: str = FIFO,
    queue_packets: int = 1000,
    seed: int,
) -> Network:
    """Draw a network.

    Args:
        consensus: a consensus with the countries of its relays.
        relays, clients, servers, authorities: their numbers.
        relay_rates: the share of its rate that each relay has.
        loss: the share of packets lost in each direction of each link between two sites.
        client_loss: the same of clients' access links.
        queue_discipline: the discipline of the hosts' own links.
        queue_packets: the queue of each link.

    Raises:
        InputError: the consensus has too few relays, none that can be guard or exit, or no
            countries; the network has too few relays for a circuit, or a site without a route to
            another one; or a relay's rate would be too low.
    """

    def draw(purpose: str, *of: str) -> float:
        bits = derived_seed(seed, f"network {purpose}", *of, bits=_FRACTION_BITS)
        return float(bits / 2**_FRACTION_BITS)

    drawn_relays = _draw_relays(consensus, places, relays, relay_rates, draw)
    nodes = [
        *drawn_relays,
        *_draw_users(places, "client", clients, draw),
        *_draw_users(places, "server", servers, draw),
        *_draw_authorities(drawn_relays, authorities, draw),
    ]
    host_link = Shape(queue_discipline=queue_discipline, queue_packets=queue_packets)
    network = _linked(nodes, places, loss, client_loss, host_link)
    _check_routes(network, places)
    return network


def _linked(
    nodes: Sequence[Node], places: Places, loss: float, client_loss: float, host_link: Shape
) -> Network:
    """The network of these nodes: with sites, their routers, and all links.

    Args:
        host_link: the queue of the hosts' own links.
    """
    clients_link = host_link.model_copy(update={"loss": client_loss})
    codes = sorted({node.country for node in nodes if node.country})
    sites = [_site(places, code) for code in codes]
    routers = [
        Node(name=site.router, kind="router", site=site.name, country=site.country)
        for site in sites
    ]
    return Network(
        nodes=(*nodes, *routers),
        links=(
            *(
                _access_link(node, places, clients_link if node.kind == "client" else host_link)
                for node in nodes
            ),
            *_site_links(sites, places, loss, host_link.queue_packets),
        ),
        sites=tuple(sites),
    )


def traffic_by_client(
    shares: Mapping[str, float], clients: Sequence[str], seed: int
) -> dict[str, str]:
    """Each client's traffic model: exactly these shares of the clients, chosen by the seed.

    Args:
        shares: each model's share; they add up to 1.
    """
    counts = shared_out(len(clients), shares)
    shuffled = sorted(clients, key=lambda name: derived_seed(seed, "network traffic", name))
    models = [model for model, count in counts.items() for _ in range(count)]
    by_client = dict(zip(shuffled, models, strict=True))
    return {name: by_client[name] for name in clients}


def shared_out(count: int, shares: Mapping[Key, float], least: int = 0) -> dict[Key, int]:
    """Share out `count` things in whole numbers, one at a time to the key with most still due."""
    total = sum(shares.values())
    given = dict.fromkeys(shares, least)
    for _ in range(count - least * len(shares)):
        due = {key: count * share / total - given[key] for key, share in shares.items()}
        given[max(due, key=lambda key: due[key])] += 1
    return given


def drawable(consensus: Consensus, places: Places) -> pl.DataFrame:
    """The relays that may be drawn: those with a weight, in a country with a place."""
    return consensus.relays.filter(
        pl.col("weight") > 0, pl.col("country").is_in(list(places.countries))
    )


def _draw_relays(
    consensus: Consensus, places: Places, count: int, rates: float, draw: Draw
) -> list[Node]:
    relays = drawable(consensus, places)
    classes, weights = relay_classes(relays), relays["weight"].to_numpy().astype(np.int64)
    sizes = {number: int((classes == number).sum()) for number in _FLAGS}
    _check_relays(consensus, sizes, count)
    present = {number: float(size) for number, size in sizes.items() if size}
    drawn: list[tuple[int, int]] = []
    for number, of_class in shared_out(count, present, least=1).items():
        members = np.flatnonzero(classes == number)
        aim = weights[members].sum() * count / relays.height
        chosen = _draw_class(members, weights, of_class, aim, partial(draw, "relay", str(number)))
        drawn += [(number, one) for one in chosen]
    if sum(bool(_FLAGS[number]) for number, _ in drawn) < 2:
        raise InputError(
            f"relays = {count}: only one of those drawn is guard or exit, and a circuit has no"
            " relay twice: take more"
        )
    nodes: list[Node] = []
    for place, (number, one) in enumerate(drawn, start=1):
        country, weight = relays["country"][one], int(weights[one])
        rate = _relay_rate(places, weight, rates)
        nodes.append(_node("relay", place, country, rate, rate, _FLAGS[number], weight))
    return nodes


def _relay_rate(places: Places, weight: int, share: float) -> int:
    rate = round(share * places.relay_rate_bit_per_s(weight))
    if rate < _LEAST_RATE_BIT_PER_S:
        raise InputError(
            f"relay_rates = {100 * share:g} %: a relay of weight {weight} would have {rate} bit/s,"
            f" where {_LEAST_RATE_BIT_PER_S} is the least: write more"
        )
    return rate


def _draw_class(
    members: Numbers, weights: Numbers, count: int, aim: float, draw: Draw
) -> list[int]:
    """Draw a relay from each of `count` bins; of `_SETS` such sets, return the nearest to the aim.

    Args:
        members: the numbers of the class's relays.
        weights: the weights of all relays, by number.
        aim: the total weight that the class should have.
    """
    ordered = members[np.argsort(weights[members], kind="stable")[::-1]]
    bins = np.array_split(ordered, count)
    sets = [
        [int(one[int(draw(str(number), str(place)) * len(one))]) for place, one in enumerate(bins)]
        for number in range(_SETS)
    ]
    return min(sets, key=lambda chosen: abs(weights[chosen].sum() - aim))


def _check_relays(consensus: Consensus, sizes: Mapping[int, int], count: int) -> None:
    if consensus.relays["country"].null_count() == consensus.relays.height:
        raise InputError(
            f"consensus = {shown(consensus.name)}: has no relays' countries: make a file of it that"
            " has them by ./run.py distil --geoip FILE, and name that"
        )
    for flag, number in (("Guard", 1), ("Exit", 2)):
        if not sizes[number] and not sizes[3]:
            raise InputError(
                f"consensus = {shown(consensus.name)}: none of its relays is a {flag}: no circuit"
                " can be built; take another consensus"
            )
    if count > sum(sizes.values()):
        raise InputError(
            f"relays = {count}: the consensus {consensus.name} has {sum(sizes.values())} with a"
            " weight and a known country: take at most that many"
        )
    if count < (classes := sum(size > 0 for size in sizes.values())):
        raise InputError(
            f"relays = {count}: take at least {classes}, one of each class:"
            f" {', '.join(RELAY_CLASSES)}"
        )
    if count < HOPS:
        raise InputError(f"relays = {count}: a circuit has {HOPS} of them: take at least that many")


def _draw_users(places: Places, kind: Kind, count: int, draw: Draw) -> Iterator[Node]:
    """Draw clients or servers in the countries of Tor's users, by their shares."""
    countries = list(places.countries.values())
    ends = list(accumulate(country.users_share for country in countries))
    for number in range(1, count + 1):
        place = draw(kind, str(number)) * ends[-1]
        country = countries[min(bisect(ends, place), len(countries) - 1)]
        up, down = country.rate_up_bit_per_s, country.rate_down_bit_per_s
        if kind == "server":
            up = down = SERVER_RATE_BIT_PER_S
        yield _node(kind, number, country.code, up, down)


def _draw_authorities(relays: Sequence[Node], count: int, draw: Draw) -> Iterator[Node]:
    """Draw authorities, each in the country of one of the relays."""
    for number in range(1, count + 1):
        where = relays[int(draw("authority", str(number)) * len(relays))].country or ""
        yield _node("authority", number, where, SERVER_RATE_BIT_PER_S, SERVER_RATE_BIT_PER_S)


def _node(
    kind: Kind,
    number: int,
    country: str,
    up_bit_per_s: int,
    down_bit_per_s: int,
    flags: tuple[Flag, ...] = (),
    weight: int | None = None,
) -> Node:
    return Node(
        name=f"{kind}{number}",
        kind=kind,
        flags=flags,
        site=country,
        country=country,
        weight=weight,
        rate_up_bit_per_s=up_bit_per_s,
        rate_down_bit_per_s=down_bit_per_s,
    )


def _site(places: Places, code: str) -> Site:
    country = places.countries[code]
    return Site(
        name=code,
        router=f"router-{code}",
        country=code,
        latitude_deg=country.latitude_deg,
        longitude_deg=country.longitude_deg,
    )


def _access_link(node: Node, places: Places, shape: Shape) -> Link:
    """The link between a node and its site's router, with the node's rates."""
    delay_ms = _whole_us(places.access_delay_ms[node.country or ""])
    up, down = (
        shape.model_copy(update={"rate_bit_per_s": rate, "delay_ms": delay_ms})
        for rate in (node.rate_up_bit_per_s, node.rate_down_bit_per_s)
    )
    return Link(ends=(node.name, f"router-{node.country}"), there=up, back=down)


def _site_links(
    sites: Sequence[Site], places: Places, loss: float, queue_packets: int
) -> Iterator[Link]:
    """The links between the routers of sites with a known round trip; they have no rate."""
    for first, second in combinations(sites, 2):
        delay_ms = places.site_delay_ms(first.country, second.country)
        if delay_ms is not None:
            shape = Shape(delay_ms=_whole_us(delay_ms), loss=loss, queue_packets=queue_packets)
            yield Link(ends=(first.router, second.router), there=shape, back=shape)


def _whole_us(delay_ms: float) -> float:
    """The delay as netem takes it, in whole microseconds."""
    return round(delay_ms, 3)


def _check_routes(network: Network, places: Places) -> None:
    without = Routes(network).unreachable()
    if without is None:
        return
    first, second = (network.node(name).country for name in without)
    raise InputError(
        f'places = "{label(places.folder)}": {ROUND_TRIPS}: the site {first} has no route to'
        f" {second}: add a line {first},{second},… with the round trip between them in ms, or take"
        " another seed"
    )
