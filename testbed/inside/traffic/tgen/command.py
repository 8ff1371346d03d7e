"""TGen's handshake: the client's command line and the server's response line.

The grammar is that of TGen's protocol 2.0 (TGen 1.1.2). `sending` and `receiving` handle the
payload that follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.inside.traffic.tgen.markov import INTERNAL_PACKET_MODEL, MarkovModel, internal_model

# Each side sends this word first, to identify itself as TGen. It is part of the protocol, and not a
# secret.
WORD = b"T8nNx9L95LATtckJkR5n"
_MAJOR_VERSION = "2"
_VERSION = "2.0"
_LARGEST_MODEL_BYTES = 10 * 1024 * 1024


class CommandError(Exception):
    """Raised if the other side's line is not acceptable; `code` is TGen's name of the error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Command:
    """A client's request; sizes in bytes as the client sees them, None: until the model ends."""

    hostname: str
    transfer_id: str
    send_bytes: int | None
    receive_bytes: int | None
    model_name: str
    model_seed: int
    model_path: str | None
    model_bytes: int


def compose_command(
    hostname: str,
    transfer_id: str,
    send_bytes: int | None,
    receive_bytes: int | None,
    model: MarkovModel,
    send_model_path: bool,
) -> bytes:
    """Compose the client's first line, and the model's text unless the server reads a file."""
    fields = [
        WORD.decode(),
        f"PROTOCOL_VERSION={_VERSION}",
        f"HOSTNAME={hostname}",
        f"TRANSFER_ID={transfer_id}",
        f"SEND_SIZE={_size(send_bytes)}",
        f"RECV_SIZE={_size(receive_bytes)}",
        f"MODEL_NAME={model.name}",
        f"MODEL_SEED={model.seed}",
    ]
    if send_model_path and (model.path or model.name == INTERNAL_PACKET_MODEL):
        fields += ["MODEL_MODE=path", f"MODEL_PATH={model.path or model.name}"]
        return " ".join(fields).encode() + b"\n"
    text = model.graphml.encode()
    fields += ["MODEL_MODE=graphml", f"MODEL_SIZE={len(text)}"]
    return " ".join(fields).encode() + b"\n" + text


def compose_response(hostname: str, code: str) -> bytes:
    """Compose the server's first line; `code` is 'NONE' or the error in the command."""
    fields = f" PROTOCOL_VERSION={_VERSION} HOSTNAME={hostname} CODE={code}\n"
    return WORD + fields.encode()


def parse_command(line: bytes) -> Command:
    """Read a client's first line, without its newline.

    Raises:
        CommandError: AUTH or one of the HEADER errors.
    """
    found = _fields(line)
    mode = found.get("MODEL_MODE", "")
    if mode not in ("", "path", "graphml"):
        raise CommandError("HEADER_MODELMODE")
    wanted = {"HOSTNAME", "TRANSFER_ID", "SEND_SIZE", "RECV_SIZE", "MODEL_NAME", "MODEL_SEED"}
    wanted |= {"MODEL_MODE", "MODEL_PATH" if mode == "path" else "MODEL_SIZE"}
    if not wanted <= set(found):
        raise CommandError("HEADER_INCOMPLETE")
    try:
        model_bytes = 0 if mode == "path" else int(found["MODEL_SIZE"])
        command = Command(
            hostname=found["HOSTNAME"],
            transfer_id=found["TRANSFER_ID"],
            send_bytes=_parsed_size(found["SEND_SIZE"]),
            receive_bytes=_parsed_size(found["RECV_SIZE"]),
            model_name=found["MODEL_NAME"],
            model_seed=int(found["MODEL_SEED"]),
            model_path=found["MODEL_PATH"] if mode == "path" else None,
            model_bytes=model_bytes,
        )
    except ValueError:
        raise CommandError("HEADER_INCOMPLETE") from None
    if mode == "graphml" and not 0 < model_bytes <= _LARGEST_MODEL_BYTES:
        raise CommandError("HEADER_MODELSIZE")
    return command


def parse_response(line: bytes) -> str:
    """Read a server's first line, without its newline, and return the server's host name.

    Raises:
        CommandError: AUTH, one of the HEADER errors, or HEADER if the server reports an error.
    """
    found = _fields(line)
    if not {"HOSTNAME", "CODE"} <= set(found):
        raise CommandError("HEADER_INCOMPLETE")
    if found["CODE"] != "NONE":
        raise CommandError("HEADER")
    return found["HOSTNAME"]


def model_of(command: Command, text: bytes) -> MarkovModel:
    """Read a command's packet model from `text`, or from the file that the command names.

    Raises:
        CommandError: HEADER_MODELPATH or MODEL.
    """
    try:
        if command.model_path is None:
            return MarkovModel(command.model_name, command.model_seed, text.decode())
        if command.model_path == INTERNAL_PACKET_MODEL:
            return internal_model(INTERNAL_PACKET_MODEL, command.model_seed)
        return MarkovModel.from_path(Path(command.model_path), command.model_seed)
    except (InputError, UnicodeDecodeError):
        raise CommandError("MODEL" if command.model_path is None else "HEADER_MODELPATH") from None


def _fields(line: bytes) -> dict[str, str]:
    word, _, rest = line.partition(b" ")
    if word != WORD:
        raise CommandError("AUTH")
    pairs = (field.partition("=") for field in rest.decode("utf-8", "replace").split(" "))
    found = {key.upper(): value for key, separator, value in pairs if separator}
    version = found.pop("PROTOCOL_VERSION", "")
    if version and version.partition(".")[0] != _MAJOR_VERSION:
        raise CommandError("HEADER_VERSION")
    if not version:
        raise CommandError("HEADER_INCOMPLETE")
    return found


def _size(size_bytes: int | None) -> str:
    # To TGen 0 means "until the model ends", so "nothing" has its own sign.
    return "0" if size_bytes is None else "~" if size_bytes == 0 else str(size_bytes)


def _parsed_size(text: str) -> int | None:
    return 0 if text.startswith("~") else int(text) or None
