"""A real worker process over every wire that one host has, and who may connect to it."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_twin import entry, right_draft, step
from mock_process import ANYWHERE, TIMEOUT_S, WireEngine, WorkerProcess, figures
from ofl.contract.dspark_v1 import StepReply
from ofl.errors import ConnectRefusedError, PeerLostError
from ofl.keys import write_key

NOBODY_HERE = "192.0.2.0/24"
"""A prefix that is for documentation alone."""


@pytest.fixture
def name() -> str:
    """An endpoint in shared memory that nobody else uses."""
    return f"shm://x86-worker-test-{os.getpid()}-{secrets.token_hex(4)}"


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    """The worker's key, and another."""
    files = {"right": tmp_path / "right", "wrong": tmp_path / "wrong"}
    for file in files.values():
        write_key(file)
    return files


@pytest.fixture
def keyed(tmp_path: Path, name: str, keys: dict[str, Path]) -> Iterator[WorkerProcess]:
    """A worker with a key that listens over TCP and in shared memory."""
    process = WorkerProcess(tmp_path, "--key-file", str(keys["right"]), listen=[ANYWHERE, name])
    yield process
    process.kill()


def assert_drafts(engine: WireEngine) -> None:
    """A session opens and drafts exactly, a long prefill included."""
    engine.opened()
    engine.ask(step(entry(0, 0, 200, reset=True, n_out=0)))
    sent = entry(0, 200, 3)
    reply = engine.ask(step(sent))
    assert isinstance(reply, StepReply), reply
    assert reply.entries[0].drafts == right_draft(sent).drafts
    engine.close()


def status(endpoint: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "x86_worker", "status", endpoint, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_one_worker_listens_on_several_wires_and_drafts_over_each(tmp_path: Path, name: str) -> None:
    worker = WorkerProcess(tmp_path, listen=[ANYWHERE, name])
    try:
        assert worker.endpoints[1] == name
        assert worker.endpoints[0].startswith("tcp://127.0.0.1:")
        assert f"listens on {worker.endpoints[0]}, {name} for clients without a key\n" in worker.log
        engines = [WireEngine(endpoint) for endpoint in worker.endpoints]
        assert [engine.client.peer.wire.partition(",")[0] for engine in engines] == ["tcp", "shm"]
        for engine in engines:
            assert_drafts(engine)
        assert worker.stop() == 0
    finally:
        worker.kill()


@pytest.mark.parametrize("wire", [0, 1], ids=["tcp", "shm"])
def test_an_engine_with_the_key_is_served_and_one_with_another_or_none_is_not(
    keyed: WorkerProcess, keys: dict[str, Path], wire: int
) -> None:
    endpoint = keyed.endpoints[wire]
    for file, clause in ((keys["wrong"], "the proof is wrong"), (None, "this server wants proof")):
        with pytest.raises(ConnectRefusedError, match=clause):
            WireEngine(endpoint, key_file=file)
    engine = WireEngine(endpoint, key_file=keys["right"])
    assert engine.client.peer.authenticated
    assert_drafts(engine)


@pytest.mark.parametrize("wire", [0, 1], ids=["tcp", "shm"])
def test_status_proves_the_key_and_counts_who_did_not(
    keyed: WorkerProcess, keys: dict[str, Path], wire: int
) -> None:
    endpoint = keyed.endpoints[wire]
    for options, clause in (
        (["--key-file", str(keys["wrong"])], "the proof is wrong"),
        ([], "this server wants proof"),
    ):
        refused = status(endpoint, *options)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert clause in refused.stderr
    shown = status(endpoint, "--key-file", str(keys["right"]), "--json")
    assert shown.returncode == 0, shown.stderr
    answer = json.loads(shown.stdout)
    assert (answer["wire"].partition(",")[0], answer["authenticated"]) == (("tcp", "shm")[wire], True)
    assert answer["figures"]["transport"]["auth_failures"] == 2
    assert "proved by both sides" in status(endpoint, "--key-file", str(keys["right"])).stdout
    assert f"for clients that hold the key of {keys['right']}\n" in keyed.log


def test_a_key_that_the_worker_does_not_have_is_refused_as_such(
    tmp_path: Path, keys: dict[str, Path]
) -> None:
    worker = WorkerProcess(tmp_path)
    try:
        with pytest.raises(ConnectRefusedError, match="this server has no key file"):
            WireEngine(worker.endpoints[0], key_file=keys["right"])
        assert_drafts(WireEngine(worker.endpoints[0]))
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("allowed", "let_in"),
    [
        ([NOBODY_HERE], False),
        ([NOBODY_HERE, "127.0.0.0/8"], True),
        (["127.0.0.1"], True),
    ],
    ids=["elsewhere", "a prefix", "an address"],
)
def test_the_list_of_addresses_is_for_tcp_and_says_nothing_of_shared_memory(
    tmp_path: Path, name: str, allowed: list[str], let_in: bool
) -> None:
    options = [word for one in allowed for word in ("--allow", one)]
    worker = WorkerProcess(tmp_path, *options, listen=[ANYWHERE, name])
    try:
        assert f"for clients without a key, from {', '.join(allowed)}\n" in worker.log
        if let_in:
            assert_drafts(WireEngine(worker.endpoints[0]))
        else:
            with pytest.raises(PeerLostError):
                WireEngine(worker.endpoints[0])
        assert_drafts(WireEngine(name))
        counters = figures(name)["transport"]
        assert counters["not_allowed"] == (0 if let_in else 1)
    finally:
        worker.kill()
