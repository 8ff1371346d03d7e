"""The paths of one circuit under plain TCP, without Tor, for the bench."""

import socket
import threading
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from testbed.inside.lab.network import running_lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.plan.model import Plan

SENDING, SENT = "sending over links", "sent over links"
PATH_MB = 50
"""What each path carries."""

_PORT = 9000
_BLOCK = bytes(250_000)


def main() -> None:
    """Run as `python -m testbed.inside.over_links` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with (
        errors_reported(given.directory),
        Record(given.directory / "raw") as record,
        running_lab(plan) as lab,
    ):
        paths = list(pairwise(a_circuit(plan)))
        accepting = [
            lab.inside(other, partial(socket.create_server, (_address(plan, other), _PORT)))
            for _, other in paths
        ]
        sending = [lab.inside(one, socket.socket) for one, _ in paths]
        record.step(SENDING)
        threads = [threading.Thread(target=_receive, args=(one,)) for one in accepting]
        threads += [
            threading.Thread(target=_send, args=(one, _address(plan, other)))
            for one, (_, other) in zip(sending, paths, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        record.step(SENT)


def a_circuit(plan: Plan) -> Sequence[str]:
    """The nodes of a circuit from server to client: the first client's, or the first relays."""
    client = plan.clients[0]
    if client in plan.paths:
        guard, middle, last = plan.paths[client]
    else:
        relays = plan.of_kind("relay")
        last = next(one.name for one in relays if "exit" in one.flags)
        guard = next(one.name for one in relays if "guard" in one.flags and one.name != last)
        middle = next(one.name for one in relays if one.name not in (guard, last))
    return plan.server_of(client), last, middle, guard, client


def _address(plan: Plan, node: str) -> str:
    return str(plan.node(node).address)


def _send(connection: socket.socket, address: str) -> None:
    with connection:
        connection.connect((address, _PORT))
        for _ in range(PATH_MB * 1_000_000 // len(_BLOCK)):
            connection.sendall(_BLOCK)


def _receive(listener: socket.socket) -> None:
    with listener, listener.accept()[0] as connection:
        while connection.recv(len(_BLOCK)):
            pass


if __name__ == "__main__":
    main()
