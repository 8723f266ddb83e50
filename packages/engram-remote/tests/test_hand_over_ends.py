"""A stream cannot be told of an error: a hand-over that neither server nor shard can serve ends the process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engram_remote.abi import HANDOVER_IDS_AT
from engram_remote.tables.manifest import read_manifest
from engram_service import built
from engram_tables import tiny_checkpoint

SCRIPT = f"""
import os, sys, time
from pathlib import Path
from engram_remote.client import Client, ClientOptions, aligned_bytes
folder, file, rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
client = Client(ClientOptions(folder))
block, staging = aligned_bytes({HANDOVER_IDS_AT} + 4 * 8), client.staging([8])
client.attach(block.ctypes.data, 8, 0, staging.number)
words = block.view("<u4")
if file:
    os.unlink(file)
words[1], words[0] = rows, 1
while words[16] != 1:
    time.sleep(0)
print("done", staging.planes([rows])[0][0].nbytes)
client.close()
"""


def run(folder: Path, file: str, rows: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", SCRIPT, str(folder), file, str(rows)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return built(tiny_checkpoint(tmp_path / "model"), tmp_path / "out")


def test_a_hand_over_with_rows_ends_as_it_should(tables: Path) -> None:
    ended = run(tables, "", 8)
    assert (ended.returncode, ended.stdout) == (0, "done 2048\n"), ended.stderr


def test_a_hand_over_that_nobody_can_serve_ends_the_process_with_its_sentence(tables: Path) -> None:
    file = str(tables / read_manifest(tables).shard(1, 0).file)
    ended = run(tables, file, 8)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "")
    assert (
        f"engram: layer 0 of a hand-over: the server gave no rows (no_server), and {file}: " in ended.stderr
    )
    assert "; the stream that waits cannot be told, so the process ends" in ended.stderr


def test_more_rows_than_were_attached_end_the_process_too(tables: Path) -> None:
    ended = run(tables, "", 9)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "")
    assert "engram: layer 0 of a hand-over: rows is 9, over the 8 it was attached with; " in ended.stderr
