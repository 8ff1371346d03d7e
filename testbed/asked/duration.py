"""The duration of a run, and the shortest that it can have."""

import math
from itertools import pairwise

from testbed.basics.errors import InputError
from testbed.basics.toml_file import shown
from testbed.basics.units import duration_s as read_duration_s
from testbed.inside.traffic.models import MODELS
from testbed.plan.model import Plan


def given_duration_s(duration: str | float) -> float:
    """The duration from the command line, where a bare number means seconds."""
    text = str(duration).strip()
    try:
        return read_duration_s(f"{text} s" if text[-1:].isdigit() else text)
    except ValueError as error:
        raise InputError(f"--duration {shown(duration)} {error}") from error


def check_duration(plan: Plan, subject: str) -> None:
    """Refuse a plan that is too short for one transfer of every client.

    Raises:
        InputError: it is; the message begins with the subject.
    """
    shortest_s = shortest_duration_s(plan)
    if plan.duration_s < shortest_s:
        raise InputError(
            f"{subject} {plan.duration_s:g} s is too short for one transfer of every client:"
            f" the links need at least {math.ceil(shortest_s * 10) / 10:g} s"
        )


def shortest_duration_s(plan: Plan) -> float:
    """The least time in which every client can complete one transfer, in seconds.

    It is two round trips (the stream's opening, then the request) plus the time in which the
    busiest link on the payload's route carries one transfer of each client that uses it in the same
    direction. It is a lower bound: headers, slow start, Tor's window and competing streams come on
    top. If the plan has no path for a client, the route is its access link.
    """
    shapes = {
        (here, there): shape for link in plan.links for here, there, shape in link.directions()
    }
    access = {link.ends[0]: link.ends for link in plan.links}
    load_bits = dict.fromkeys(shapes, 0.0)
    routes: list[list[tuple[str, str]]] = []
    for client in plan.clients:
        path = plan.paths.get(client)
        nodes = (client, *path, plan.server_of(client)) if path else access[client]
        model = MODELS[plan.traffic_by_client[client]]
        route = list(pairwise(nodes if model.upload else nodes[::-1]))
        for hop in route:
            load_bits[hop] += 8 * model.load_bytes
        routes.append(route)
    return max(
        max(load_bits[hop] / (shapes[hop].rate_bit_per_s or math.inf) for hop in route)
        + 2 * sum(2 * shapes[hop].delay_ms for hop in route) / 1000
        for route in routes
    )
