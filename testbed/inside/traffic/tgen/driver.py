"""Walks the action graph, opens its streams, serves other generators' streams, and counts.

`options` has the meaning of an action's options, `stream` the work of a stream.
"""

from __future__ import annotations

import os
import random
import socket
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.traffic.tgen.action_graph import Action, ActionGraph
from testbed.inside.traffic.tgen.log import Log
from testbed.inside.traffic.tgen.loop import READ, Loop
from testbed.inside.traffic.tgen.markov import (
    END,
    INTERNAL_FLOW_MODEL,
    INTERNAL_PACKET_MODEL,
    INTERNAL_STREAM_MODEL,
    MarkovModel,
    internal_model,
)
from testbed.inside.traffic.tgen.options import Peer, StreamOptions
from testbed.inside.traffic.tgen.stream import Stream
from testbed.inside.traffic.tgen.stream_state import Surroundings
from testbed.inside.traffic.tgen.transport import MakeSocket, Proxy, Transport, new_socket

# Upstream continues at once after a failed stream. If the server refuses, that is a busy loop, in
# which virtual time stands still.
FAILURE_PAUSE_US = 1_000_000

_SOCKS_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@#&?!"
_SOCKS_WORD_LENGTH = 7
_LARGEST_SEED = 2**32 - 1


class Driver:
    """One generator: client, server, or both, as its configuration says.

    All random choices follow from the start action's `markovmodelseed`, or from an action's own if
    it sets one. Without a seed they differ from run to run.
    """

    def __init__(
        self,
        graph: ActionGraph,
        loop: Loop,
        log: Log,
        hostname: str,
        make_socket: MakeSocket = new_socket,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Make a generator for a configuration.

        Args:
            graph: the configuration.
            loop: event loop, which generators may share.
            log: where to write log lines.
            hostname: its name towards its peers.
            make_socket: makes its sockets, in another network namespace than this process's, say.
            on_end: called when it has nothing more to do; by default the loop's `stop`.
        """
        self.loop = loop
        self.log = log
        self.make_socket = make_socket
        self._on_end = on_end or loop.stop
        self.choice = random.Random(graph.options.seed)
        self._graph = graph
        self._hostname = hostname.replace(" ", "_")
        self.surroundings = Surroundings(loop, log, self._hostname, self._count_bytes)
        self._start_us = 0
        self._listener: socket.socket | None = None
        self._streams_made = 0
        self._seeds: dict[tuple[str, str], random.Random] = {}
        self._pending: deque[Action] = deque()
        self._walking = False
        self._client_ended = not graph.start.followers and not graph.start.weighted
        self._total: Counter[str] = Counter()
        self._since_heartbeat: Counter[str] = Counter()
        self._bytes_read = self._bytes_read_before = 0
        self._bytes_written = self._bytes_written_before = 0

    def start(self) -> None:
        """Listen if a port is set, and begin the walk after the start action's delay.

        Raises:
            TestbedError: it can't listen on the port.
        """
        options = self._graph.options
        if options.heartbeat_us:
            self._beat_after(self.loop.now_us + options.heartbeat_us)
        if options.server_port is not None:
            self._listen(options.server_port)
        if not self._client_ended:
            self.loop.after(options.delay_us, self._begin_walk)
        elif options.server_port is None:
            self._on_end()

    def count(self, event: str) -> None:
        """Count an event such as 'streams-created' for the heartbeat."""
        self._total[event] += 1
        self._since_heartbeat[event] += 1

    # --- the server ---------------------------------------------------------------------------

    def _listen(self, port: int) -> None:
        listener = self.make_socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        address = os.environ.get("TGENIP", "0.0.0.0")
        try:
            listener.bind((address, port))
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            raise TestbedError(f"tgen: port {port} of {address}: {error.strerror}") from None
        self._listener = listener
        self.log.write("message", "server new", f"server listening at {address}:{port}")
        self.loop.register(listener.fileno(), READ, self._on_peer)

    def _on_peer(self, _events: int) -> None:
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except OSError:
            return
        transport = Transport.accepted(self.loop, sock, Peer(*address))
        self.count("streams-created")
        Stream(
            self.surroundings,
            self.next_stream_number(),
            "passive-stream",
            self._graph.defaults,
            transport,
            None,
            self._on_passive_complete,
        )

    def _on_passive_complete(self, succeeded: bool) -> None:
        self.count("streams-succeeded" if succeeded else "streams-failed")

    def next_stream_number(self) -> int:
        """Return the next number of a stream, from 0."""
        self._streams_made += 1
        return self._streams_made - 1

    # --- the walk -----------------------------------------------------------------------------

    def _begin_walk(self) -> None:
        self._start_us = self.loop.now_us
        text = f"starting client using action graph '{self._graph.path}'"
        self.log.write("message", "driver start", text)
        self.go_on(self._graph.start)

    def go_on(self, action: Action) -> None:
        """Perform the actions that follow a finished one."""
        self._pending.extend(action.next_actions(self.choice))
        if self._walking:
            return
        self._walking = True
        while self._pending and not self._client_ended:
            self._perform(self._pending.popleft())
        self._walking = False

    def _perform(self, action: Action) -> None:
        if action.kind == "start":
            self.go_on(action)
        elif action.kind == "pause":
            self._pause(action)
        elif action.kind == "end":
            self._end(action)
        else:
            Generator(self, action, action.kind, lambda: self.go_on(action)).start()

    def _pause(self, action: Action) -> None:
        if not action.pause_times_us:
            if action.visited_by_all():
                self.go_on(action)
            return
        pause_us = self.choice.choice(action.pause_times_us)
        if pause_us:
            self.loop.after(pause_us, lambda: self.go_on(action))
        else:
            self.go_on(action)

    def _end(self, action: Action) -> None:
        options = action.end
        assert options is not None
        completed = self._total["streams-succeeded"] + self._total["streams-failed"]
        reached = (
            (options.time_us, self.loop.now_us - self._start_us, "microseconds passed"),
            (options.count, completed, "streams completed"),
            (options.send_bytes, self._bytes_written, "bytes sent"),
            (options.receive_bytes, self._bytes_read, "bytes received"),
        )
        for limit, value, what in reached:
            if limit is not None and value >= limit:
                text = f"TGen will end because of {value} {what}, the limit was {limit}"
                self.log.write("message", "driver end", text)
                self._client_ended = True
        if self._client_ended:
            self._on_end()
        else:
            self.go_on(action)

    def seed_for(self, action: Action, purpose: str, seed: int | None) -> int:
        """Draw a seed from an action's own sequence if `seed` is set, else from the driver's."""
        if seed is None:
            return self.choice.randint(0, _LARGEST_SEED)
        source = self._seeds.setdefault((action.name, purpose), random.Random(seed))
        return source.randint(0, _LARGEST_SEED)

    # --- the heartbeat ------------------------------------------------------------------------

    def _count_bytes(self, read: int, written: int) -> None:
        self._bytes_read += read
        self._bytes_written += written

    def _beat_after(self, deadline_us: int) -> None:
        def beat() -> None:
            self._beat()
            self._beat_after(deadline_us + self._graph.options.heartbeat_us)

        self.loop.at(deadline_us, beat)

    def _beat(self) -> None:
        fields = [
            f"bytes-read={self._bytes_read - self._bytes_read_before}",
            f"bytes-written={self._bytes_written - self._bytes_written_before}",
        ]
        recent = self._since_heartbeat
        kinds = [f"{what}-{how}" for what in _COUNTED for how in ("created", "succeeded", "failed")]
        fields += [f"{key}={recent[key]}" for key in kinds if recent[key]]
        for what in _COUNTED:
            created, succeeded, failed = (
                self._total[f"{what}-{how}"] for how in ("created", "succeeded", "failed")
            )
            counts = {"created": created, "succeeded": succeeded, "failed": failed}
            counts["pending"] = created - succeeded - failed
            fields += [f"total-{what}-{how}={n}" for how, n in counts.items() if n]
        text = f"[driver-heartbeat] [{','.join(fields)}]"
        self.log.write("message", "driver heartbeat", text)
        self._since_heartbeat.clear()
        self._bytes_read_before = self._bytes_read
        self._bytes_written_before = self._bytes_written


_COUNTED = ("streams", "flows", "traffics")


class Generator:
    """Makes the streams of an action: one stream, streams by a model, or flows by a model.

    It is over when its model has ended and all its streams are complete. As upstream, one stream
    counts as a flow of one.

    Args:
        driver: the generator to which it belongs.
        action: the action with the options.
        kind: 'stream', 'flow' or 'traffic'.
        on_complete: called once, when it is over.
    """

    def __init__(
        self, driver: Driver, action: Action, kind: str, on_complete: Callable[[], None]
    ) -> None:
        assert action.stream is not None
        self._driver = driver
        self._action = action
        self._options: StreamOptions = action.stream
        self._on_complete = on_complete
        self._children = "flow" if kind == "traffic" else "stream"
        self._counted = "traffics" if kind == "traffic" else "flows"
        self._model = self._generating_model(kind)
        self._made = 0
        self._completed = 0
        self._failed = False
        self._exhausted = False
        self._over = False
        self._credentials = self._socks_credentials()
        driver.count(f"{self._counted}-created")

    def start(self) -> None:
        """Make the first child."""
        if self._model is not None:
            self._next()
            return
        self._exhausted = True
        if not self._make_stream():
            self._failed = True
            self._driver.loop.after(FAILURE_PAUSE_US, self._check_over)

    def _generating_model(self, kind: str) -> MarkovModel | None:
        if kind == "stream":
            return None
        path, name = {
            "flow": (self._action.stream_model_path, INTERNAL_STREAM_MODEL),
            "traffic": (self._action.flow_model_path, INTERNAL_FLOW_MODEL),
        }[kind]
        return self._new_model(path, name)

    def _new_model(self, path: Path | None, name: str) -> MarkovModel:
        # The start action's seed is the driver's, from which other actions' seeds are drawn.
        has_own = "markovmodelseed" in self._action.attributes
        own = self._options.markov_model_seed if has_own else None
        seed = self._driver.seed_for(self._action, "models", own)
        return internal_model(name, seed) if path is None else MarkovModel.from_path(path, seed)

    def _socks_credentials(self) -> tuple[str | None, str | None]:
        if self._options.socks_auth_seed is None or self._children == "flow":
            return self._options.socks_username, self._options.socks_password
        seed = self._driver.seed_for(self._action, "socks", self._options.socks_auth_seed)
        word = "".join(random.Random(seed).choices(_SOCKS_LETTERS, k=_SOCKS_WORD_LENGTH))
        return word, word

    def _next(self) -> None:
        assert self._model is not None
        observation, delay_us = self._model.next_observation()
        if observation == END:
            self._exhausted = True
            self._check_over()
            return
        if self._children == "flow":
            self._made += 1
            Generator(self._driver, self._action, "flow", self._on_child).start()
        else:
            self._make_stream()
        self._driver.loop.after(delay_us, self._next)

    def _make_stream(self) -> bool:
        driver, options, choice = self._driver, self._options, self._driver.choice
        username, password = self._credentials
        model = self._new_model(options.packet_model_path, INTERNAL_PACKET_MODEL)
        peer = choice.choice(options.peers)
        proxy = None
        if options.socks_proxies:
            proxy = Proxy(choice.choice(options.socks_proxies), username, password)
        try:
            transport = Transport.connect(driver.loop, peer, proxy, driver.make_socket)
        except OSError as error:
            text = f"failed to begin stream '{self._action.name}' to {peer.host}: {error}"
            driver.log.write("warning", "generator new", text)
            return False
        self._made += 1
        driver.count("streams-created")
        Stream(
            driver.surroundings,
            driver.next_stream_number(),
            self._action.name,
            options,
            transport,
            model,
            self._on_stream,
        )
        return True

    def _on_stream(self, succeeded: bool) -> None:
        self._driver.count("streams-succeeded" if succeeded else "streams-failed")
        if succeeded:
            self._on_child()
        else:
            self._driver.loop.after(FAILURE_PAUSE_US, self._on_child)

    def _on_child(self) -> None:
        self._completed += 1
        self._check_over()

    def _check_over(self) -> None:
        if self._over or not self._exhausted or self._completed < self._made:
            return
        self._over = True
        parent = self._counted.removesuffix("s")
        self._driver.log.write(
            "message",
            "generator status",
            f"Generator status for action '{self._action.name}': completed {self._completed} of "
            f"{self._made} {self._children}s, {parent} is complete",
        )
        self._driver.count(f"{self._counted}-{'failed' if self._failed else 'succeeded'}")
        self._on_complete()
