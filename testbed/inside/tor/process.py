"""One Tor of the lab: its keys, its start and its end."""

import os
import re
import socket
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.lab.network import Lab
from testbed.inside.tor.configuration import (
    AUTHORITY_DIR_PORT,
    AUTHORITY_OR_PORT,
    AuthorityIdentity,
    TorFiles,
    torrc,
)
from testbed.inside.tor.control import ControlConnection, connected
from testbed.inside.waiting import wait_until
from testbed.plan.model import PlannedNode

LAST_WORDS = 5
"""The number of log lines in the error that reports the end of a Tor."""
START_TIMEOUT_S = 30.0


@dataclass
class RunningTor:
    """A Tor process and its control connection."""

    node: PlannedNode
    files: TorFiles
    process: subprocess.Popen[bytes]
    controller: ControlConnection

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None


def make_authority_keys(node: PlannedNode, files: TorFiles, binary: Path) -> None:
    """Make an authority's keys, before any Tor starts, as all Tors must know the authority."""
    keys = files.data / "keys"
    keys.mkdir(mode=0o700)
    generate: list[str | Path] = [
        *(binary.with_name("tor-gencert"), "--create-identity-key", "--passphrase-fd", "0"),
        *("-m", "12", "-a", f"{node.management_address}:{AUTHORITY_DIR_PORT}"),
    ]
    subprocess.run(generate, cwd=keys, input=b"lab\n", check=True, capture_output=True)


def authority_identity(node: PlannedNode, files: TorFiles, binary: Path) -> AuthorityIdentity:
    """Read the identity by which other Tors know an authority."""
    certificate = (files.data / "keys" / "authority_certificate").read_text()
    show: list[str | Path] = [
        *(binary, "--list-fingerprint", "--quiet", "-f", "/dev/null", "--ignore-missing-torrc"),
        *("--defaults-torrc", "/dev/null"),
        *("--DataDirectory", files.data, "--Nickname", node.name, "--SocksPort", "0"),
        *("--Address", str(node.management_address), "--ORPort", str(AUTHORITY_OR_PORT)),
        *("--DirAuthority", "placeholder 127.0.0.1:1 " + "0" * 40),
    ]
    listed = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    v3_identity = re.search(r"^fingerprint ([0-9A-F]{40})$", certificate, re.MULTILINE)
    fingerprint = re.search(r"(?:[0-9A-F]{4} ?){10}", listed)
    if not v3_identity or not fingerprint:
        raise TestbedError(f"{binary} printed no fingerprint for the authority: {listed!r}")
    return AuthorityIdentity(v3_identity[1], fingerprint[0].replace(" ", ""))


def known_options(binary: Path) -> frozenset[str]:
    """The torrc options that a Tor knows, as it lists them itself, in lower case."""
    listing: list[str | Path] = [binary, "--list-torrc-options"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    return frozenset(listed.lower().split())


def started(
    lab: Lab,
    node: PlannedNode,
    files: TorFiles,
    identities: Mapping[str, AuthorityIdentity],
    binary: Path,
    options: Collection[str],
) -> RunningTor:
    """Start a Tor with its torrc, and connect to its control port.

    Raises:
        TestbedError: it ended at once; the message has the end of its log.
    """
    files.torrc.write_text(torrc(lab.plan, node, files, identities, options))
    command: list[str | Path] = [
        *(binary, "--hush", "-f", files.torrc),
        *("--defaults-torrc", "/dev/null"),
    ]
    environment = os.environ | {"HOME": str(files.data)}
    # Until it has read its torrc, Tor has no log, and warns on its standard output.
    early_log = files.directory / "output"
    with early_log.open("wb") as output:
        process = lab.start(node.name, command, output=output, environment=environment)

    def missing() -> list[str]:
        if process.poll() is not None:
            ended = f"{node.name}: Tor ended at once (status {process.returncode})"
            words = _last_words(files.log if files.log.exists() else early_log)
            raise TestbedError("\n  ".join([ended, *words]))
        return [] if _answers(files.control_socket) else [f"{node.name}'s control socket"]

    wait_until(missing, START_TIMEOUT_S, "starting Tor", interval_s=0.01)
    return RunningTor(node, files, process, connected(node.name, files.control_socket))


def _answers(control_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(control_socket)) == 0


def _last_words(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    warnings = [line for line in lines if "[warn]" in line or "[err]" in line]
    return (warnings or lines)[-LAST_WORDS:]


def end(tor: RunningTor) -> None:
    """Kill a Tor, which has nothing to save; on SIGTERM a relay would wait for its clients."""
    tor.process.kill()
    tor.process.wait()
    tor.controller.close()
