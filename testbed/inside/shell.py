"""The lab by hand: a prompt for commands on any node of a bootstrapped network, in real time.

It runs inside the machine; `inside.experiment` carries out runs without a user.
"""

import subprocess
from cmd import Cmd
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from stem import ControllerError

from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import suggestion
from testbed.inside.experiment import ready_network
from testbed.inside.generators import playing_traffic
from testbed.inside.lab.network import Lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.bootstrap import NETWORK
from testbed.inside.tor.network import TorNetwork
from testbed.plan.model import Plan

AT_PROMPT, ENDING = "at the prompt", "ending the lab"
"""The steps at which the shell takes the user's terminal, and returns it."""

_WELCOME = """\
{title}. Everything is in real time; no traffic yet.
A node's name and a command run the command there: client1 ping guard1
`help` names the other commands, `exit` or Ctrl-D ends the lab. The logs are in
{logs}"""


def run_shell(
    plan: Plan,
    tor: Path,
    tgen: list[str],
    directory: Path,
    state: Path,
    *,
    kept: Path | None,
    shown_as: Path,
    piped: bool,
) -> None:
    """Build the plan's lab, start its network, and carry out what the user types.

    Args:
        shown_as: where users find the directory.
        piped: whether commands come from a pipe: then there is no prompt, and no echo.

    For the others and the errors see `inside.experiment.run_experiment`.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with (
        Record(directory / "raw") as record,
        ready_network(plan, tor, state, logs, record, kept) as (lab, network, _circuits),
        ExitStack() as stack,
    ):
        playing = partial(playing_traffic, lab, tgen, state, logs, record)
        shell = LabShell(lab, network, playing, piped)
        stack.callback(shell.close)
        if piped:
            subprocess.run(["stty", "-echo", "-onlcr"], check=True)
        else:
            title = f"{plan.scenario}, {plan.variant}, seed {plan.seed}"
            print(_WELCOME.format(title=title, logs=shown_as / "logs"))
        record.step(AT_PROMPT)
        shell.run()
        record.step(ENDING)


class LabShell(Cmd):
    """The shell's commands.

    Mininet's own prompt doesn't fit: it passes everything typed while a command runs to the node's
    shell, including commands from a pipe, and it doesn't know our nodes' addresses.
    """

    def __init__(
        self,
        lab: Lab,
        network: TorNetwork,
        playing: Callable[[], AbstractContextManager[object]],
        piped: bool,
    ) -> None:
        super().__init__()
        self.prompt = "" if piped else "lab> "
        self.use_rawinput = not piped  # line editing
        self.doc_header = "Commands (help COMMAND says more), beside NODE COMMAND:"
        self._piped = piped
        self._lab = lab
        self._network = network
        self._playing = playing
        self._traffic = ExitStack()
        self._addresses = {
            node.name: str(node.address or node.management_address) for node in lab.plan.nodes
        }
        self._console = Console(force_terminal=not piped)

    def run(self) -> None:
        """Carry out commands until the user exits."""
        while True:
            try:
                self.cmdloop()
                return
            except KeyboardInterrupt:
                print()

    def close(self) -> None:
        """End the traffic that the user has started and not stopped."""
        self._traffic.close()

    def onecmd(self, line: str) -> bool:
        """Carry out one command; an error is printed, and doesn't end the shell."""
        try:
            return super().onecmd(line)
        except (TestbedError, ControllerError) as error:
            print(error)
            return False

    def default(self, line: str) -> None:
        """Run the rest of a line on the node that it begins with."""
        name, _, command = line.partition(" ")
        if name not in self._addresses:
            print(f"{name} is neither a node nor a command: {suggestion(name, self._names())}")
        elif not command.strip():
            print(f"{name} needs a command, such as: {name} ip addr")
        else:
            words = (self._addresses.get(word, word) for word in command.split(" "))
            self._lab.run_here(name, " ".join(words), keyboard=not self._piped)

    def do_nodes(self, _line: str) -> None:
        """List the nodes and their addresses; in commands a node's name stands for its address."""
        table = Table("node", "address", "management", box=None)
        for node in self._lab.plan.nodes:
            table.add_row(node.name, node.address, node.management_address)
        self._console.print(table)

    def do_links(self, _line: str) -> None:
        """List the emulated links: the interfaces at both ends, and what each direction does."""
        table = Table("interfaces", "", "Mbit/s", "delay, ms", "loss, %", "queue", box=None)
        for direction in self._lab.directions[::2]:
            shape = direction.shape
            table.add_row(
                direction.interface,
                direction.receiving_interface,
                f"{shape.rate_bit_per_s / 1e6:g}" if shape.rate_bit_per_s else "",
                f"{shape.delay_ms:g}",
                f"{shape.loss * 100:g}",
                f"{shape.queue_packets}" + (f" ({shape.queue_kind})" if shape.queue_kind else ""),
            )
        self._console.print(table)

    def do_circuits(self, _line: str) -> None:
        """List each client's circuits, with their relays and their numbers of streams."""
        table = Table("client", "circuit", "status", "path", "streams", box=None)
        for client in self._lab.plan.clients:
            controller = self._network[client].controller
            streams = [stream.circ_id for stream in controller.get_streams()]
            for circuit in controller.get_circuits():
                path = " ".join(nickname for _, nickname in circuit.path)
                carried = streams.count(circuit.id)
                table.add_row(client, circuit.id, str(circuit.status), path, str(carried))
        self._console.print(table)

    def do_tor(self, line: str) -> None:
        """Send a command to a Tor's control port, such as: tor exit1 GETINFO orconn-status."""
        name, _, command = line.partition(" ")
        tors = self._network.tors
        if name not in tors or not command.strip():
            print(f"tor NODE COMMAND, where NODE is one of: {', '.join(tors)}")
        else:
            print(tors[name].controller.msg(command))

    def do_traffic(self, line: str) -> None:
        """Run the scenario's clients and competing streams: traffic start, traffic stop."""
        if line not in ("start", "stop"):
            print("traffic start, or traffic stop")
            return
        self._traffic.close()
        if line == "start":
            self._traffic.enter_context(self._playing())
            models = self._lab.plan.traffic_by_client.items()
            print(", ".join(f"{client}: {model}" for client, model in models))

    def do_exit(self, _line: str) -> bool:
        """End the lab, as Ctrl-D does."""
        return True

    def do_EOF(self, _line: str) -> bool:
        """End the lab."""
        return True

    def emptyline(self) -> bool:
        """Do nothing; Cmd by itself would repeat the last command."""
        return False

    def get_names(self) -> list[str]:
        """The names of methods, including commands; without EOF, which no user would type."""
        return [name for name in super().get_names() if name != "do_EOF"]

    def completenames(self, text: str, *_ignored: object) -> list[str]:
        """The words that a line can begin with."""
        return [name for name in self._names() if name.startswith(text)]

    def _names(self) -> list[str]:
        commands = [name[3:] for name in self.get_names() if name.startswith("do_")]
        return [*commands, *self._addresses]


def main() -> None:
    """Run as `python -m testbed.inside.shell` by a machine, with a plan in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument("--shown-as", type=Path, required=True)
    parser.add_argument("--piped", action="store_true")
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_reported(given.directory):
        run_shell(
            plan,
            given.tor,
            given.tgen,
            given.directory,
            given.state,
            kept=given.network and given.network / NETWORK,
            shown_as=given.shown_as,
            piped=given.piped,
        )


if __name__ == "__main__":
    main()
