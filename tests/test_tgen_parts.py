"""Parts of the bundled traffic generator: quantities, payload digest, commands, Markov models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tgen_over_loopback import (
    LOOPBACK,
    markov_of,
)

from testbed.basics.errors import InputError
from testbed.inside.traffic.tgen.command import WORD, parse_command, parse_response
from testbed.inside.traffic.tgen.markov import (
    END,
    INTERNAL_PACKET_MODEL,
    MarkovModel,
    internal_model,
)
from testbed.inside.traffic.tgen.options import (
    parse_bytes,
    parse_peers,
    parse_time_us,
)
from testbed.inside.traffic.tgen.payload import PayloadDigest


def test_quantities() -> None:
    assert parse_bytes("", "5 mb") == 5_000_000
    assert parse_bytes("", "5 MiB") == 5_242_880
    assert parse_bytes("", "12") == 12
    assert parse_time_us("", "2") == 2_000_000
    assert parse_time_us("", "1500 nsec") == 1
    assert parse_time_us("", "2 minutes") == 120_000_000
    assert parse_peers("", "localhost:1,b:2")[0].address == (LOOPBACK, 1)
    for bad in ("", "-1", "1.5", "5  ", "mb"):
        with pytest.raises(InputError):
            parse_bytes("sendsize", bad)


def test_digest_of_one_letter_and_of_others() -> None:
    """The digest is MD5's for any data in pieces of any size (values by md5sum)."""
    cases = {
        b"a" * 1000: "cabe45dcc9ae5b66ba86600cca6b8ba8",
        b"a" * 10 + b"b" * 10: "59b6589fc51c22f38cc267331dd7011b",
        b"message digest": "f96b697d7cb7938d525a2f31aaf161d0",
    }
    for data, expected in cases.items():
        for step in (1, 7, len(data)):
            digest = PayloadDigest()
            for begin in range(0, len(data), step):
                digest.update(memoryview(data)[begin : begin + step])
            assert digest.hexdigest() == expected


def test_upstreams_commands_are_understood() -> None:
    command = parse_command(
        WORD + b" PROTOCOL_VERSION=2.0 HOSTNAME=host TRANSFER_ID=stream SEND_SIZE=~ "
        b"RECV_SIZE=5242880 MODEL_NAME=m MODEL_SEED=42 MODEL_MODE=graphml MODEL_SIZE=10 NEW=1"
    )
    assert (command.send_bytes, command.receive_bytes) == (0, 5_242_880)
    assert (command.model_seed, command.model_bytes, command.model_path) == (42, 10, None)
    assert parse_response(WORD + b" PROTOCOL_VERSION=2.1 HOSTNAME=s CODE=NONE") == "s"


def test_markov_models_with_the_same_seed_are_equal() -> None:
    first, second = (internal_model(INTERNAL_PACKET_MODEL, 5) for _ in range(2))
    sequence = [first.next_observation() for _ in range(200)]
    assert sequence == [second.next_observation() for _ in range(200)]
    assert {observation for observation, _ in sequence} == {"+", "-"}
    assert {delay_us for _, delay_us in sequence} == {0}
    assert first.is_immediate
    with pytest.raises(InputError, match="not GraphML"):
        MarkovModel("m", 1, "<nothing")


def test_a_markov_model_stays_at_its_end_until_reset(tmp_path: Path) -> None:
    model = MarkovModel.from_path(markov_of(1, tmp_path / "one.graphml"), 1)
    assert not model.is_immediate
    assert model.next_observation() == ("+", 20_000)
    assert model.next_observation()[0] == END
    assert model.next_observation() == (END, 0)
    model.reset()
    assert model.next_observation() == ("+", 20_000)
