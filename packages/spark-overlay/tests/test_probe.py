"""The probe asks as an engine of its own, says what it learnt, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ofl
import pytest
from click.testing import CliRunner
from ofl.contract.dspark_v1 import (
    Envelope,
    Hello,
    Kind,
    Op,
    Policy,
    RequestStatus,
    StatsReply,
    Status,
    decode_request,
    encode_reply,
    peek,
)
from small_shape import SMALL_SHAPE as SHAPE
from spark_overlay import probe
from spark_overlay.cli import main
from spark_overlay.probe import Options
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker

IDENTITIES = ["--identity", SHAPE.identity.hex(), "--markov-identity", SHAPE.markov_identity.hex()]


class WorkerWithStats(SimulatedWorker):
    """As the simulated one, with figures, and a memory of who asked."""

    hellos: list[Hello]

    def answer(self, body: Any) -> bytes:
        head = peek(body, Kind.REQUEST)
        _, request = decode_request(body, self.shape)
        if isinstance(request, Hello):
            self.__dict__.setdefault("hellos", []).append(request)
        if head.op is Op.STATS:
            envelope = Envelope(Op.STATS, head.epoch, head.round)
            return b"".join(encode_reply(envelope, StatsReply('{"steps": 3}'), request))
        return super().answer(body)


class Clock:
    """Every look at it is 10 microseconds later."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10_000
        return self.now_ns


def ask(worker: SimulatedWorker, **changes: Any) -> tuple[int, dict[str, Any], SimulatedWire]:
    wire = SimulatedWire(worker.answer)
    options = replace(Options("tcp://w:1", SHAPE.identity, SHAPE.markov_identity), **changes)
    code, results = probe.probe(options, wire.connect, Clock())
    return code, results, wire


def test_a_worker_that_would_serve_is_described() -> None:
    worker = WorkerWithStats(SHAPE)
    code, results, wire = ask(worker, step_rows=8)
    assert code == probe.EXIT_OK
    assert results["hello_status"] == "OK"
    assert (results["wire"], results["authenticated"]) == ("simulated", False)
    assert results["worker_identity"] == SHAPE.identity.hex()
    assert results["ping_us"] == 20.0, "two looks at the clock: for the deadline and at the end"
    assert results["worker_stats"] == '{"steps": 3}'
    assert (results["step_status"], results["step_req_status"]) == ("OK", "OK")
    assert results["step_worker_us"] == 43.0
    assert results["step_rows"] == 8
    assert wire.connections[0].closed
    assert peek(wire.connections[0].requests[-1], Kind.REQUEST).op is Op.GOODBYE


def test_it_asks_under_its_own_engine_id_and_as_a_probe() -> None:
    worker = WorkerWithStats(SHAPE)
    ask(worker)
    ask(worker)
    assert {hello.policy for hello in worker.hellos} == {Policy.PROBE}
    assert len({hello.engine_id for hello in worker.hellos}) == 2, "one id a run"
    assert worker.hellos[-1].shape.max_slots == 1, "it takes as little room as it can"


def test_the_life_is_the_one_that_an_engine_hears_of_and_changes_with_the_process() -> None:
    worker = WorkerWithStats(SHAPE)
    _, first, wire = ask(worker, hello=False)
    assert first["worker_life"] == f"{worker.boot_nonce:016x}"
    assert worker.boot_nonce != wire.connections[0].peer.boot_nonce, "the transport has a life of its own"
    worker.boot_nonce += 1
    assert ask(worker, hello=False)[1]["worker_life"] != first["worker_life"]


def test_a_good_hello_asks_once_for_the_sizes_and_then_takes_them() -> None:
    worker = WorkerWithStats(SHAPE)
    ask(worker)
    assert [hello.shape.vocabulary for hello in worker.hellos] == [1, SHAPE.vocabulary]
    assert worker.hellos[1].shape == replace(SHAPE, max_slots=1)


def test_without_hello_no_session_is_opened() -> None:
    worker = WorkerWithStats(SHAPE)
    code, results, _ = ask(worker, hello=False)
    assert code == probe.EXIT_OK
    assert "hello_status" not in results
    assert "hellos" not in vars(worker)


@pytest.mark.parametrize("name", ["identity", "markov_identity"])
def test_another_identity_is_refused_with_both(name: str) -> None:
    code, results, _ = ask(WorkerWithStats(SHAPE), **{name: b"x" * 32})
    assert code == probe.EXIT_REFUSED
    assert results["hello_status"] == "MISMATCH"
    assert (b"x" * 32).hex() in results["error"]
    assert getattr(SHAPE, name).hex() in results["error"]


def test_an_unreachable_worker_has_its_own_exit_status() -> None:
    wire = SimulatedWire(bytes, refuse=True)
    code, results = probe.probe(Options("tcp://w:1", b"", b""), wire.connect, Clock())
    assert code == probe.EXIT_UNREACHABLE
    assert "nobody listens" in str(results["error"])


def test_a_refused_step_is_said_with_its_status() -> None:
    worker = WorkerWithStats(SHAPE)
    worker.refuse_with = Status.DRAINING
    code, results, _ = ask(worker, step_rows=4)
    assert code == probe.EXIT_REFUSED
    assert results["step_status"] == "DRAINING"
    assert "as the test asks" in results["error"]


def test_a_failed_drafter_is_said_with_its_status() -> None:
    worker = WorkerWithStats(SHAPE)
    worker.fail_slots.add(0)
    code, results, _ = ask(worker, step_rows=4)
    assert code == probe.EXIT_REFUSED
    assert results["step_req_status"] == RequestStatus.DRAFTER.name


def test_garbage_from_the_port_is_a_refusal_and_not_a_traceback() -> None:
    wire = SimulatedWire(lambda body: b"SSH-2.0-OpenSSH_9.2\r\n" * 3)
    code, results = probe.probe(Options("tcp://w:1", SHAPE.identity, b""), wire.connect, Clock())
    assert code == probe.EXIT_REFUSED
    assert "broke the contract: header." in str(results["error"])


def test_more_rows_than_the_worker_has_positions_are_cut_and_said() -> None:
    code, results, _ = ask(WorkerWithStats(SHAPE), step_rows=10_000)
    assert code == probe.EXIT_OK
    assert results["step_rows"] == SHAPE.max_positions - 1


@pytest.mark.parametrize(
    ("arguments", "clause"),
    [
        (["--endpoint", "tcp://h:1"], "--identity"),
        (["--endpoint", "h:1", *IDENTITIES], "it has no scheme"),
        (["--endpoint", "tcp://h:1", "--identity", "ab", "--markov-identity", "cd"], "64 lower-case"),
        (["--endpoint", "tcp://h:1", *IDENTITIES, "--step-rows", "-1"], "a number of rows"),
        (["--endpoint", "tcp://h:1", *IDENTITIES, "--timeout-s", "nan"], "seconds above 0"),
        (
            ["--endpoint", "tcp://h:1", *IDENTITIES, "--key-file", "/nowhere/key"],
            "/nowhere/key does not exist",
        ),
        (["--endpoint", "tcp://h:1", *IDENTITIES, "--key-file", "/"], "is not a regular file"),
        (
            ["--endpoint", "tcp://h:1", *IDENTITIES, "--key-file", ""],
            "--key-file: the path of the key file is empty",
        ),
    ],
)
def test_wrong_usage_is_said_in_a_sentence(
    arguments: list[str], clause: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit) as caught:
        probe.main(arguments)
    assert caught.value.code == probe.EXIT_USAGE
    assert clause in capsys.readouterr().err


def test_the_command_prints_lines_or_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ofl import client

    wire = SimulatedWire(WorkerWithStats(SHAPE).answer)
    monkeypatch.setattr(client, "connect", wire.connect)
    arguments = ["--endpoint", "tcp://h:1", *IDENTITIES, "--hello", "--no-metrics-check"]
    assert probe.main(arguments) == 0
    assert "hello_status: OK" in capsys.readouterr().out
    result = CliRunner().invoke(main, ["probe", *arguments, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["worker_name"] == "simulated"


def test_the_engines_own_settings_stand_in_for_the_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ofl import client

    wire = SimulatedWire(WorkerWithStats(SHAPE).answer)
    monkeypatch.setattr(client, "connect", wire.connect)
    monkeypatch.setenv("VLLM_DSPARK_REMOTE", "tcp://h:1")
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_IDENTITY", IDENTITIES[1])
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_MARKOV_IDENTITY", IDENTITIES[3])
    assert probe.main(["--hello", "--no-metrics-check"]) == 0
    assert "hello_status: OK" in capsys.readouterr().out
    wrong = ["--hello", "--no-metrics-check", "--identity", "f" * 64]
    assert probe.main(wrong) == 1, "an option goes before the setting"
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_IDENTITY", "")
    with pytest.raises(SystemExit):
        probe.main(["--hello", "--no-metrics-check"])


def test_it_runs_with_the_standard_library_and_ofl_alone() -> None:
    """numpy, pydantic, click and rich are hidden; an import of one would end it."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['numpy', 'pydantic', 'click', 'rich', 'torch']))"
    code = f"{hide}; from spark_overlay.probe import main; main(['--help'])"
    sources = [str(Path(probe.__file__).parents[1]), str(Path(ofl.__file__).parents[1])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "disturbs no other" in " ".join(done.stdout.split())
