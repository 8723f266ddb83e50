"""A client against its own process and its wire: threads that close it under others, questions that change."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engram_client_tools import RANK, RANKS, Looker, options_of, relayed, until
from engram_remote import native
from engram_remote.client import Client
from engram_service import Served, built, served
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1.layout import HEADER, OPEN, OPEN_LAYER, Op

RACES = 100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=5000)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="module")
def server(tables: Path) -> Iterator[Served]:
    with served(tables) as one:
        yield one


CLOSE_UNDER_OTHERS = """
import sys, threading
from pathlib import Path
import numpy as np
from engram_remote.client import Client, ClientOptions
from engram_remote.client_results import ClientClosedError

def look(client, staging, ids, began):
    try:
        while True:
            client.wait(client.enqueue([(0, ids)], staging))
            client.counters(), client.connected(), client.latency("local")
            began.release()
    except ClientClosedError:
        pass

for turn in range(int(sys.argv[2])):
    client = Client(ClientOptions(Path(sys.argv[1]), rank=0))
    began, ids = threading.Semaphore(0), np.arange(500, dtype=np.int32)
    threads = [threading.Thread(target=look, args=(client, client.staging([500]), ids, began)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        began.acquire()
    client.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
print("whole")
"""


def test_a_client_may_be_closed_while_other_threads_use_it(tables: Path) -> None:
    """Each of them ends with its rows or is told that the client was closed; none touches what is gone."""
    ended = subprocess.run(
        [sys.executable, "-c", CLOSE_UNDER_OTHERS, str(tables), str(RACES)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "whole\n"), ended.stderr


def changed_id(sent: bytearray) -> bytearray:
    """The last id of a LOOKUP names the row beside it."""
    if sent[HEADER.offsets["op"]] == Op.LOOKUP:
        sent[-4] ^= 1
    return sent


def other_layers(sent: bytearray) -> bytearray:
    """An OPEN names its two layers in the other order."""
    if sent[HEADER.offsets["op"]] == Op.OPEN:
        at = HEADER.size + OPEN.size
        first, second = (sent[begin : begin + OPEN_LAYER.size] for begin in (at, at + OPEN_LAYER.size))
        sent[at:] = second + first
    return sent


@pytest.mark.parametrize("ask", [changed_id, other_layers])
def test_with_checksums_a_question_that_changed_on_its_way_gives_no_rows(
    made: TinyCheckpoint, tables: Path, server: Served, ask: Callable[[bytearray], bytearray]
) -> None:
    """The server answers what reached it, in good faith and with a checksum that fits; it is not what was asked."""
    if why := native.missing("checksum"):
        pytest.skip(why)
    start = max(made.rank_rows(layer, RANK, RANKS)[0] for layer in (1, 14))
    for wire in ("tcp", "shm"):
        with relayed(wire, server.endpoints[wire]) as relay:
            relay.ask = ask
            with Client(options_of(tables, relay.endpoint, required=True, checksum=True)) as client:
                looker = Looker(client, made)
                reasons = set()
                for at in range(2):
                    until(lambda: client.connected()[0], "a connection")
                    reasons.add(looker.look([(at, np.arange(start, start + 24))]).reason)
                assert reasons == {"checksum"}
