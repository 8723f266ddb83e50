"""The table server of an arm: it is there when `start` returns, gone when `kill` does, and still while it is held."""

import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engram_remote.client import Client, ClientOptions
from engram_remote.native import RefusedError
from qualification.arms.serve import ArmFailedError
from qualification.arms.table_server import TableServer
from qualification.arms.tables import OTHER_SEED, SEED, make_shards
from qualification.runs.folder import RunError
from qualification.runs.platform import Arguments
from rehearsing import named, rehearse, simulator

MS = 1_000_000


@pytest.fixture
def server() -> Iterator[TableServer]:
    made = TableServer(f"shm://test-{secrets.token_hex(8)}")
    yield made
    made.close()


def test_its_life(server: TableServer, tmp_path: Path) -> None:
    one, two = (make_shards(tmp_path / str(seed), seed, 1) for seed in (SEED, OTHER_SEED))
    assert one.identity != two.identity
    folder = tmp_path / str(SEED)
    server.start(folder)
    assert server.identity == one.identity
    options = ClientOptions(folder, endpoint=server.endpoint, required=True, batch_rows_max=64)
    with Client(replace(options, timeout_ns=100 * MS, loss_ns=30_000 * MS)) as client:
        server.hold()
        late = client.wait(client.enqueue([(0, [1, 2, 3])], client.staging([3])))
        server.release()
    with Client(replace(options, timeout_ns=20_000 * MS)) as client:
        there = client.wait(client.enqueue([(0, [1, 2, 3])], client.staging([3])))
    assert [(each.outcome, each.reason) for each in (late, there)] == [
        ("local", "late"),
        ("remote", "remote"),
    ]
    server.kill()
    assert server.identity == ""
    with pytest.raises(RefusedError, match="nobody listens"):
        Client(options)
    server.start(tmp_path / str(OTHER_SEED))
    assert server.identity == two.identity
    with pytest.raises(RefusedError, match=two.identity):
        Client(options)


ARM = """
import os, signal, sys
from pathlib import Path
from qualification.arms.table_server import TableServer
server = TableServer(sys.argv[1])
server.start(Path(sys.argv[2]))
print(server._there().pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_arm_however_that_ends(tmp_path: Path) -> None:
    make_shards(tmp_path / "served", SEED, 1)
    command = [sys.executable, "-c", ARM, f"shm://test-{secrets.token_hex(8)}", str(tmp_path / "served")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as arm:
        assert arm.stdout is not None
        ended = os.pidfd_open(int(arm.stdout.readline()))
        assert not select.select([ended], [], [], 0)[0]
        arm.kill()
    assert select.select([ended], [], [], 30)[0]
    os.close(ended)


def test_one_that_cannot_be_is_told(server: TableServer, tmp_path: Path) -> None:
    with pytest.raises(ArmFailedError, match="ended before it was ready"):
        server.start(tmp_path)


def test_an_arm_without_the_library_ends_the_run_with_its_path(tmp_path: Path) -> None:
    library = str(tmp_path / "libengram.so")
    changed = {"every_arm": Arguments(environment={"ENGRAM_LIBRARY": library})}
    checks = named("table_rows_exact_and_fallback")
    with pytest.raises(RunError, match=f"the engine cannot be had: .*{library} cannot be loaded"):
        rehearse(tmp_path / "evidence", simulator().model_copy(update=changed), checks)
