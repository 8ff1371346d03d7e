"""`verify`: equal runs, first differences, changed software, and runs that can't be made again.

Only the last test runs a machine; in the others `command_line` has stand-ins.
"""

import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    RUN,
    VARIANT,
    FakeMachine,
    Panicking,
    StoppedClock,
    machine_runs,
    status_of,
    with_machine,
)
from machine import run_scenario
from made_record import socket_sample

from testbed.basics import cache
from testbed.basics.ending import BAD_INPUT, DIFFERS, FAILED, PREMISE_FAILED, VALID
from testbed.machines.watching import Usage
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S, Plan
from testbed.results import read_run
from testbed.runs import runner
from testbed.setup.ready import Ready, TorNeed
from testbed.setup.tor import tree_sha256

Edit = Callable[[dict[str, Any]], None]

PATCH = "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"


@pytest.fixture(autouse=True)
def _own_cache(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "experiment" not in request.keywords:
        monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with_machine(monkeypatch, folder, FakeMachine)
    assert status_of(RUN) == VALID
    return folder / "run"


class OtherRtt(FakeMachine):
    """A machine whose run has one other sample."""

    changed = {  # noqa: RUF012
        "sockets": [
            socket_sample(LEAST_SAMPLE_INTERVAL_S * number, node) | {"rtt_ms": 20.5}
            for number in range(20)
            for node in ("middle1", "exit1")
        ]
    }


def edited(run: Path, edit: Edit, name: str = "manifest.json") -> None:
    content = json.loads((run / name).read_text())
    edit(content)
    (run / name).write_text(json.dumps(content))


def verified(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = status_of(["verify", "run", *options])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


# Equal or not.


def test_an_equal_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fingerprint = read_run(run).shown_fingerprint
    before = sorted(run.parent.rglob("*"))
    status, out, err = verified(capsys)
    assert status == VALID == 0
    assert out == (
        f"equal: all 12 tables, summary.json among them; fingerprint {fingerprint}\n"
        "Both ran with the same software, as far as is recorded.\n"
    )
    assert err == ""
    assert sorted(run.parent.rglob("*")) == before
    assert list(cache.subfolder("runs").iterdir()) == []


def test_the_first_difference_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_runs(monkeypatch, OtherRtt)
    status, out, _ = verified(capsys)
    assert status == DIFFERS == 3
    assert out.splitlines()[:2] == [
        "not equal: sockets, row 1, rtt_ms: 20.0 then, 20.5 now",
        "11 of 12 tables are equal",
    ]


def test_for_programs(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_runs(monkeypatch, OtherRtt)
    status, out, _ = verified(capsys, "--json")
    said = json.loads(out)
    assert status == DIFFERS
    assert said["equal"] is False
    assert said["fingerprint"] == read_run(run).fingerprint != said["fingerprint_now"]
    assert said["differing"] == [
        {"table": "sockets", "row": 1, "column": "rtt_ms", "one": "20.0", "other": "20.5"}
    ]
    assert said["changed"] == []


def test_what_it_ran_with_then_and_now(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def another(manifest: dict[str, Any]) -> None:
        manifest["libraries"] = {"libcrypto.so.3": "libssl3 1.0", "libz.so.1": "zlib1g 1"}
        manifest["kernel"]["key"] = "another"
        manifest["packages"] |= {"stem": "1.0"}
        del manifest["debian"]

    edited(run, another)
    status, out, _ = verified(capsys, "--json")
    assert status == VALID
    changed = {one["what"]: (one["then"], one["now"]) for one in json.loads(out)["changed"]}
    assert changed.pop("Debian packages")[0] == "not recorded"
    assert changed == {
        "kernel": ("0.4.9.11, build another", "0.4.9.11, build None"),
        "OpenSSL": ("libssl3 1.0", "not recorded"),
        "other libraries": ("libz.so.1 zlib1g 1", "not recorded"),
        "Python packages: stem": ("1.0", metadata.version("stem")),
    }
    _, out, _ = verified(capsys)
    assert "libssl3 1.0" in out


def test_the_run_made_again_can_be_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(capsys, "--out", "again")[0] == VALID
    assert read_run(Path("again")).fingerprint == read_run(run).fingerprint
    status, _, err = verified(capsys, "--out", "again")
    assert status == BAD_INPUT
    assert "the output again exists" in err


def test_a_run_that_fails_this_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_runs(monkeypatch, Panicking)
    status, _, err = verified(capsys)
    assert status == FAILED
    assert "the guest's kernel panicked" in err
    (kept,) = cache.subfolder("runs").iterdir()
    assert str(kept) in err


def test_an_invalid_run_can_be_verified(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, StoppedClock)
    assert status_of(RUN) == PREMISE_FAILED
    assert verified(capsys)[0] == VALID


# From the manifest alone.


def test_it_is_the_manifests_plan_that_is_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scenario's file may have changed meanwhile."""
    Path("Mine.toml").unlink()
    assert verified(capsys)[0] == VALID


class Listening(FakeMachine):
    """A machine that records its plans and options."""

    plans: list[Plan] = []  # noqa: RUF012
    commands: list[str] = []  # noqa: RUF012

    @classmethod
    def run(cls, _kernel: Path, _command: object, staging: Path, **_options: object) -> Usage:
        cls.plans.append(Plan.model_validate_json((staging / "plan.json").read_text()))
        cls.commands.append(str(_command))
        return super().run(_kernel, _command, staging)


def test_a_patch_is_the_one_that_was_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[TorNeed] = []
    with_machine(monkeypatch, folder, Listening)
    plain = vars(runner)["ensure_ready"]

    def ready(messages: object, needs: list[TorNeed]) -> Ready:
        assert [patch.read_text() for need in needs for patch in need.patches] == [PATCH]
        built.extend(needs)
        made: Ready = plain(messages, needs)
        return made

    monkeypatch.setattr(runner, "ensure_ready", ready)
    (folder / "mine-variant.toml").write_text(VARIANT)
    (folder / "faster.patch").write_text(PATCH)
    assert status_of([*RUN, "--variant", "./mine-variant.toml"]) == VALID
    (folder / "faster.patch").write_text("another")
    assert verified(capsys)[0] == VALID
    assert len(built) == 2
    assert Listening.plans[-1].key == Listening.plans[-2].key
    (folder / "run" / "patches" / "faster.patch").unlink()
    status, _, err = verified(capsys)
    assert status == BAD_INPUT
    assert "it has not kept its patch faster.patch" in err


def test_what_was_captured_is_captured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, Listening)
    assert status_of([*RUN, "--pcap", "middle-exit"]) == VALID
    assert verified(capsys)[0] == VALID
    assert "--capture=middle-exit" in Listening.commands[-1]


# Directories without a run, and runs that can't be repeated.


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a run is refused before anything starts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(runner, "ensure_ready", lambda *_: pytest.fail("it was started"))
        status, out, err = verified(capsys)
    assert (status, out, err.count("\n")) == (BAD_INPUT, "", 1)
    return err


def test_no_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "run is not a directory" in refused(capsys)
    (folder / "run").mkdir()
    assert "there is no run to verify" in refused(capsys)
    (folder / "run" / "error.txt").write_text("over\n")
    assert "run is a failed run: see its error.txt" in refused(capsys)


def test_a_damaged_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "links.parquet").write_bytes((run / "sockets.parquet").read_bytes())
    assert "its SHA-256 is not the one in manifest.json" in refused(capsys)


def test_a_run_whose_numbers_were_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(run, lambda summary: summary.update(seed=4), "summary.json")
    edited(run, lambda manifest: manifest.pop("sha256"))
    assert "its tables or its summary were changed" in refused(capsys)


def test_a_run_in_real_time(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(run, lambda summary: summary.update(machine="host"), "summary.json")
    edited(run, lambda manifest: manifest.pop("sha256"))
    assert "it ran on the host machine, in real time, which nothing repeats" in refused(capsys)


def test_a_plan_of_another_testbed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(run, lambda manifest: manifest["plan"].pop("nodes"))
    assert "plan.nodes: Field required: not a plan of this testbed" in refused(capsys)


def test_a_generator_that_is_gone_or_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tgen = folder / "tgen"
    tgen.write_text("#!/bin/sh\n")
    tgen.chmod(0o755)
    with_machine(monkeypatch, folder, FakeMachine)
    assert status_of([*RUN, "--tgen", "./tgen"]) == VALID
    assert verified(capsys)[0] == VALID
    tgen.write_text("#!/bin/bash\n")
    assert f"its generator {tgen} is another program now" in refused(capsys)
    tgen.unlink()
    assert f"its generator was {tgen}: No such file" in refused(capsys)


def test_a_tree_that_is_gone_or_another(
    folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "x.c").write_text("int x;\n")
    sources = [{"name": "tree", "sha256": tree_sha256(tree)}]
    edited(run, lambda manifest: manifest["plan"]["tor"].update(source=str(tree)))
    edited(run, lambda manifest: manifest["tor"].update(sources=sources))
    assert verified(capsys)[0] == VALID
    (tree / "x.c").write_text("int y;\n")
    assert f"its Tor was built from {tree}, which was changed since" in refused(capsys)
    shutil.rmtree(tree)
    assert f"its Tor was built from {tree}, which is gone" in refused(capsys)


def test_a_run_of_before_there_were_fingerprints(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("fingerprint", "libraries", "debian", "captures"):
        edited(run, lambda manifest, key=key: manifest.pop(key))  # type: ignore[misc]
    edited(run, lambda manifest: manifest["project"].pop("files"))
    status, out, _ = verified(capsys, "--json")
    assert status == VALID
    changed = {one["what"]: one["then"] for one in json.loads(out)["changed"]}
    assert changed == dict.fromkeys(("testbed: files", "Debian packages"), "not recorded")


# For real.


@pytest.mark.experiment
def test_a_real_run_is_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_scenario(tmp_path, "One", "vanilla", 5)
    status = status_of(["verify", str(tmp_path / "run"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["changed"] == []
    assert (status, said["equal"], said["differing"]) == (VALID, True, [])
