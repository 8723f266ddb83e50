"""An engine's drafter and the probe against a real worker process, over every wire that one host has, and with every
way in which the two may disagree about a key.
"""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ofl.keys import write_key
from spark_overlay import probe
from spark_overlay.rounds import RemoteDrafter
from wire_rig import PATIENCE_S, WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(params=["tcp", "shm"])
def listen(request: pytest.FixtureRequest) -> str:
    """Where to listen, over each wire; nobody else does there."""
    name = f"spark-overlay-test-{os.getpid()}-{secrets.token_hex(4)}"
    return {"tcp": "tcp://127.0.0.1:0", "shm": f"shm://{name}"}[request.param]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Starts worker processes, which end with the test."""
    started: list[WorkerProcess] = []

    def start(endpoint: str, key_file: Path | None = None) -> WorkerProcess:
        started.append(WorkerProcess(tmp_path, endpoint, key_file))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The key of the worker."""
    write_key(tmp_path / "key")
    return tmp_path / "key"


def key_settings(file: Path | None) -> dict[str, str]:
    return {"KEY_FILE": str(file)} if file is not None else {}


def connects(drafter: RemoteDrafter) -> bool:
    """One turn of the connecting thread; nothing failed and nothing is to be waited for."""
    return drafter.link.turn() == 0 and drafter.link.session is not None


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with the key"])
def test_a_worker_process_drafts_exactly_over_every_wire(
    listen: str, keyed: bool, start_worker: StartWorker, key: Path
) -> None:
    worker = start_worker(listen, key if keyed else None)
    drafter = worker.drafter(**key_settings(key if keyed else None))
    request = worker.request(drafter)
    try:
        assert drafter.start(PATIENCE_S), drafter.stats()
        for n_rows in (300, 7, 1, 5):
            request.drafts_exactly(n_rows)
        transport = drafter.stats()["transport"]
        assert isinstance(transport, dict)
        assert (transport["scheme"], transport["authenticated"]) == (listen.partition(":")[0], keyed)
        assert transport["wire"].startswith(transport["scheme"])
    finally:
        drafter.close()
    assert worker.stop() == 0
    assert any("session closed" in line and line.endswith(": goodbye\n") for line in worker.log)


def test_a_worker_that_is_killed_and_started_again_is_found_again_over_every_wire(
    listen: str, start_worker: StartWorker, key: Path
) -> None:
    worker = start_worker(listen, key)
    drafter = worker.drafter(**key_settings(key))
    request = worker.request(drafter)
    try:
        assert drafter.start(PATIENCE_S), drafter.stats()
        request.drafts_exactly(40)
        first = drafter.link.session
        worker.stop(signal.SIGKILL)
        lost = request.step(2)
        assert lost.reason in ("transport_error", "not_ready")
        assert not lost.drafts.any()
        start_worker(worker.endpoint, key)
        while drafter.link.session in (None, first):
            assert drafter.link.wait_ready(PATIENCE_S), drafter.stats()
        request.drafts_exactly(1)
        assert drafter.core.counters.resync_rounds >= 1
    finally:
        drafter.close()


def test_another_key_is_refused_and_tried_again_until_the_file_is_put_right(
    listen: str, start_worker: StartWorker, key: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = tmp_path / "ours"
    write_key(ours)
    worker = start_worker(listen, key)
    drafter = worker.drafter(**key_settings(ours))
    request = worker.request(drafter)
    try:
        delays = [drafter.link.turn(), drafter.link.turn()]
        assert delays == [1_000_000, 2_000_000], "as after every failed attempt"
        assert_refused(drafter, "the proof is wrong", attempts=2)
        assert caplog.text.count("the proof is wrong") == 2
        failed = request.step(3)
        assert (failed.reason, "the proof is wrong" in failed.detail) == ("not_ready", True)
        os.replace(key, ours)
        assert connects(drafter), drafter.link.last_failure
        request.drafts_exactly(2)
    finally:
        drafter.close()


@pytest.mark.parametrize(
    ("ours", "clause"),
    [
        (False, "this server wants proof: the client must use its key file"),
        (True, "this server has no key file, and the client asks for proof"),
    ],
    ids=["the engine has none", "the worker has none"],
)
def test_a_key_on_one_side_alone_is_refused_and_tried_again_until_the_worker_is_put_right(
    listen: str, ours: bool, clause: str, start_worker: StartWorker, key: Path
) -> None:
    worker = start_worker(listen, None if ours else key)
    drafter = worker.drafter(**key_settings(key if ours else None))
    request = worker.request(drafter)
    try:
        assert not connects(drafter)
        assert_refused(drafter, clause, attempts=1)
        assert worker.stop() == 0
        start_worker(worker.endpoint, key if ours else None)
        assert connects(drafter), drafter.link.last_failure
        request.drafts_exactly(2)
    finally:
        drafter.close()


def assert_refused(drafter: RemoteDrafter, clause: str, attempts: int) -> None:
    """Told as a failure to connect, and not as a final no."""
    link = drafter.link
    assert clause in link.last_failure
    assert (link.disabled, link.counters.connect_failures, link.counters.hellos) == ("", attempts, 0)


def test_a_key_file_that_went_away_is_told_and_tried_again(
    listen: str, start_worker: StartWorker, key: Path, tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    ours.write_bytes(key.read_bytes())
    ours.chmod(0o600)
    drafter = start_worker(listen, key).drafter(**key_settings(ours))
    away = ours.rename(tmp_path / "away")
    try:
        assert not connects(drafter)
        assert_refused(drafter, f"key file {ours} does not exist", attempts=1)
        away.rename(ours)
        assert connects(drafter), drafter.link.last_failure
    finally:
        drafter.close()


def test_the_probe_proves_the_key_over_every_wire_and_says_so(
    listen: str,
    start_worker: StartWorker,
    key: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "other"
    write_key(other)
    worker = start_worker(listen, key)
    asked = ["--endpoint", worker.endpoint, "--identity", worker.identity, "--step-rows", "16"]
    asked += ["--markov-identity", worker.markov_identity, "--timeout-s", f"{PATIENCE_S:g}"]
    asked += ["--no-metrics-check"]
    assert probe.main([*asked, "--key-file", str(key)]) == probe.EXIT_OK
    said = capsys.readouterr().out
    assert "authenticated: True\n" in said
    assert f"wire: {listen.partition(':')[0]}" in said
    assert "step_req_status: OK\n" in said
    assert probe.main([*asked, "--key-file", str(other)]) == probe.EXIT_UNREACHABLE
    assert "the proof is wrong" in capsys.readouterr().err
    assert probe.main(asked) == probe.EXIT_UNREACHABLE
    assert "this server wants proof" in capsys.readouterr().err
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_KEY_FILE", str(key))
    assert probe.main(asked) == probe.EXIT_OK, "the engine's own setting stands in for the option"
