"""Memory that a client does not take is its owner's again at once: the library keeps no pointer to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ofl.native
import pytest
from engram_client_tools import RANK
from engram_service import Served, built, served
from engram_tables import TinyCheckpoint, tiny_checkpoint

STANDS_BEFORE_LIBOFL = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OFL_LIMIT 8

int refusals = 0;
int seen = 0;
void* bases[64];
void* ofl_buffer_base(void* buffer);

int32_t ofl_client_register(void* client, void* buffer, char* text, size_t text_bytes) {
  if (seen < 64) bases[seen++] = ofl_buffer_base(buffer);
  if (refusals > 0) {
    --refusals;
    snprintf(text, text_bytes, "no more memory may be locked");
    return OFL_LIMIT;
  }
  int32_t (*next)(void*, void*, char*, size_t) = dlsym(RTLD_NEXT, "ofl_client_register");
  return next(client, buffer, text, text_bytes);
}
"""
"""libofl in which registering memory can be made to fail, as RDMA makes it where too little may be locked."""

ASKS = """
import ctypes, json, os, sys, weakref
from pathlib import Path
from engram_remote.client import Client, ClientOptions, aligned_bytes
from engram_remote.native import EngramError

before = ctypes.CDLL(os.environ["OFL_LIBRARY"])
refusals, seen = (ctypes.c_int.in_dll(before, name) for name in ("refusals", "seen"))
bases = (ctypes.c_void_p * 64).in_dll(before, "bases")
tables, endpoint, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
options = ClientOptions(
    tables, rank, endpoint, required=True, timeout_ns=10**10, connect_timeout_ns=5 * 10**9, loss_ns=5 * 10**9
)
with Client(options) as client:
    refusals.value = 1
    memory = aligned_bytes(client.staging_bytes([64]))
    kept = weakref.ref(memory)
    try:
        client.staging([64], memory)
        said = ""
    except EngramError as error:
        said = str(error)
    registered = seen.value
    del memory
    freed = kept() is None
    staging = client.staging([64])
    shard = client.manifest.shard(client.layers[0], rank)
    result = client.wait(client.enqueue([(0, list(range(shard.row_start, shard.row_start + 64)))], staging))
    later = bases[registered : seen.value]
print(json.dumps({
    "said": said, "freed": freed, "number": staging.number, "outcome": result.outcome, "rows": result.rows,
    "registered_later": later == [staging.memory.ctypes.data],
}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=2000)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="module")
def server(tables: Path) -> Iterator[Served]:
    with served(tables) as one:
        yield one


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library before libofl: what it does not have itself is found in the one that it needs."""
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / "before.c").write_text(STANDS_BEFORE_LIBOFL)
    real = ofl.native.library_path()
    words = [
        "-shared",
        "-fPIC",
        "-D_GNU_SOURCE",
        "-o",
        "before.so",
        "before.c",
        str(real),
        f"-Wl,-rpath,{real.parent}",
    ]
    subprocess.run([os.environ.get("CC", "cc"), *words, "-ldl"], cwd=folder, check=True, timeout=60)
    return folder / "before.so"


@pytest.mark.parametrize("way", ["tcp", "shm"])
def test_memory_that_cannot_be_registered_is_not_kept_and_the_next_is_taken(
    tables: Path, server: Served, stand_in: Path, way: str
) -> None:
    command = [sys.executable, "-c", ASKS, str(tables), server.endpoints[way], str(RANK)]
    env = {**os.environ, "OFL_LIBRARY": str(stand_in)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "said": "staging 0 cannot be registered: no more memory may be locked",
        "freed": True,
        "number": 0,
        "outcome": "remote",
        "rows": 64,
        "registered_later": True,
    }
