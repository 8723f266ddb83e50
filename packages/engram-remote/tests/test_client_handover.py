"""Hand-over blocks give exact rows round after round, whatever happens to the server in between.

The stream is a thread of this process, or, with ENGRAM_STREAM, the C++ program `engram_client_stream` of the unit
tests, which sanitizers can watch (ENGRAM_STREAM_OFL: their libofl.so) and which makes 100,000 rounds.
"""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import ofl.native
import pytest
from engram_client_tools import MS, RANK, RANKS, ids_of, options_of, until
from engram_process import serving
from engram_remote.abi import HANDOVER_IDS_AT
from engram_remote.client import Client, aligned_bytes
from engram_remote.native import InvalidError
from engram_remote.tables.manifest import read_manifest
from engram_service import built
from engram_tables import POISON, TinyCheckpoint, tiny_checkpoint

WIRES = ("tcp", "shm")
REQUEST, ROWS, DONE = 0, 1, 16
"""Words of a block, as engram.h lays it out."""
ROWS_MAX = 288
ROUNDS = 3_000
STREAM = os.environ.get("ENGRAM_STREAM", "")
STREAM_ROUNDS = int(os.environ.get("ENGRAM_STREAM_ROUNDS", "100000"))
STREAM_SECONDS = 900
LIVES = 5


def order(kind: str, word: np.ndarray) -> None:
    """Tell ThreadSanitizer, where its runtime is loaded, of an order that it cannot see: NumPy's stores and loads are
    none of its own, while the sets and copies around them are.  kind: release or acquire.
    """
    function = getattr(ctypes.CDLL(None), f"__tsan_{kind}", None)
    if function is not None:
        function(ctypes.c_void_p(word.ctypes.data))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=5000)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(params=WIRES)
def endpoint(request: pytest.FixtureRequest) -> str:
    """One that a server can take again after its predecessor died."""
    if request.param == "shm":
        return f"shm://engram-{secrets.token_hex(6)}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


class Stream:
    """One layer's block and staging, and what a GPU stream does with them.  rounds: that were exact."""

    def __init__(self, client: Client, made: TinyCheckpoint, layer: int) -> None:
        self.made, self.layer, self.rounds = made, layer, 0
        self.memory = aligned_bytes(HANDOVER_IDS_AT + 4 * ROWS_MAX)
        self.words = self.memory.view("<u4")
        self.ids = self.memory[HANDOVER_IDS_AT:].view("<i4")
        self.staging = client.staging([ROWS_MAX])
        where = client.position(layer)
        client.attach(self.memory.ctypes.data, ROWS_MAX, where, self.staging.number)

    def round(self, turn: int) -> None:
        """Rows, ids, request; then done, and back to 0."""
        start, end = self.made.rank_rows(self.layer, RANK, RANKS)
        count = ROWS_MAX if turn % 50 == 0 else turn % 25
        ids = np.random.default_rng(turn).integers(start - 3, end + 3, count).astype("<i4")
        self.staging.memory[:] = POISON
        self.ids[:count] = ids
        self.words[ROWS] = count
        order("release", self.words[REQUEST:])
        self.words[REQUEST] = 1
        while self.words[DONE] != 1:
            time.sleep(0)
        order("acquire", self.words[DONE:])
        assert self.words[REQUEST] == 0
        self.words[DONE] = 0
        values, scales = self.staging.planes([count])[0]
        wanted = self.made.expected_of_rank(self.layer, RANK, RANKS, ids)
        np.testing.assert_array_equal(values, wanted[0])
        np.testing.assert_array_equal(scales, wanted[1])
        self.rounds += 1


def patient(tables: Path, endpoint: str) -> Client:
    options = options_of(
        tables, endpoint, timeout_ns=150 * MS, loss_ns=2_000 * MS, connect_timeout_ns=1_000 * MS
    )
    return Client(options)


def test_blocks_of_every_layer_stay_exact_while_the_server_is_killed_frozen_and_restarted(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, endpoint: str
) -> None:
    with patient(tables, endpoint) as client:
        streams = [Stream(client, made, layer) for layer in client.layers]
        failures: list[BaseException] = []

        def run() -> None:
            try:
                for turn in range(1, ROUNDS + 1):
                    streams[turn % 2].round(turn)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)

        def reached(part: float) -> bool:
            return bool(failures) or sum(one.rounds for one in streams) >= part * ROUNDS

        with serving(tables, tmp_path, "--listen", endpoint) as one:
            one.ready()
            until(lambda: client.connected()[0], "a connection")
            thread.start()
            until(lambda: reached(0.2), "a fifth")
            one.process.send_signal(signal.SIGSTOP)
            until(lambda: client.counters()["fallbacks_late"] > 0, "a late lookup")
            one.process.send_signal(signal.SIGCONT)
            until(lambda: client.counters()["opens"] > 1, "the second connection")
            until(lambda: reached(0.4), "two fifths")
            one.process.kill()
            one.end()
            until(lambda: client.counters()["fallbacks_not_connected"] > 0 or reached(1), "a local lookup")
        with serving(tables, tmp_path, "--listen", endpoint) as one:
            one.ready()
            thread.join()
        counters = client.counters()
    assert not failures, failures
    assert sum(stream.rounds for stream in streams) == counters["handovers"] == ROUNDS
    assert counters["lookups_remote"] > ROUNDS // 5
    assert counters["lookups_local"] > 0
    assert counters["lookups_failed"] == 0


def test_tickets_are_served_beside_blocks(made: TinyCheckpoint, tables: Path) -> None:
    with Client(options_of(tables)) as client:
        stream = Stream(client, made, 14)
        for turn in range(1, 200):
            ids = ids_of(made, 1, 7, turn)
            values, _ = client.lookup(ids, layer=1)
            np.testing.assert_array_equal(values, made.expected_of_rank(1, RANK, RANKS, ids)[0])
            stream.round(turn)


def test_what_cannot_be_a_block_is_refused_by_name(tables: Path) -> None:
    with Client(options_of(tables, batch_rows_max=100)) as client:
        block, staging = aligned_bytes(4096), client.staging([100])
        address = block.ctypes.data
        for place, words in (
            ((address + 4, 10, 0, staging.number), "block"),
            ((address, 101, 0, staging.number), "rows_max"),
            ((address, 0, 0, staging.number), "rows_max"),
            ((address, 10, 2, staging.number), "layer"),
            ((address, 10, 0, 9), "staging 9"),
        ):
            with pytest.raises(InvalidError, match=words):
                client.attach(*place)
        client.attach(address, 100, 0, staging.number)
        with pytest.raises(InvalidError, match="in use"):
            client.attach(address + 2048, 100, 0, staging.number)
        with pytest.raises(InvalidError, match="in use"):
            client.enqueue([(0, [1])], staging)


class StreamProcess:
    """`engram_client_stream`: how many rounds it has made, and how many lookups were remote."""

    def __init__(self, words: list[str]) -> None:
        env = os.environ | {
            "OFL_LIBRARY": os.environ.get("ENGRAM_STREAM_OFL") or str(ofl.native.library_path())
        }
        self.process = subprocess.Popen(
            [STREAM, *words], text=True, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.rounds, self.remote, self.lines = 0, 0, list[str]()
        self._ended = False
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                first, second = line.split()
                if first.isdigit():
                    with self._told:
                        self.rounds, self.remote = int(first), int(second)
                        self._told.notify_all()
                else:
                    self.lines.append(line)
        finally:
            with self._told:
                self._ended = True
                self._told.notify_all()

    def more(self, remote: int = 0, rounds: int = 0) -> None:
        """Wait for so many more remote lookups, and so many more rounds."""
        with self._told:
            remote_then, rounds_then = self.remote + remote, self.rounds + rounds

            def made() -> bool:
                return self.remote >= remote_then and self.rounds >= rounds_then

            assert self._told.wait_for(lambda: made() or self._ended, STREAM_SECONDS)
            assert made(), "the stream ended"

    def end(self) -> dict[str, int]:
        """Its counters; fails where a row was wrong, or a sanitizer spoke."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(STREAM_SECONDS) == 0
        self._reader.join()
        self.process.stdout.close()
        return {name: int(count) for name, count in (line.split() for line in self.lines)}


def _five_lives(stream: StreamProcess, tables: Path, tmp_path: Path, endpoint: str) -> None:
    """In each life the server is there, frozen, there again, and killed; then nobody is there."""
    each = STREAM_ROUNDS // (4 * LIVES)
    for _ in range(LIVES):
        with serving(tables, tmp_path, "--listen", endpoint) as one:
            one.ready()
            stream.more(remote=each)
            one.process.send_signal(signal.SIGSTOP)
            stream.more(rounds=each)
            one.process.send_signal(signal.SIGCONT)
            stream.more(remote=each)
            one.process.kill()
            one.end()
            stream.more(rounds=each)


@pytest.mark.skipif(
    not STREAM, reason="ENGRAM_STREAM names no engram_client_stream (ENGRAM_UNIT_TESTS builds it)"
)
def test_a_hundred_thousand_rounds_of_a_native_stream_are_exact(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, endpoint: str
) -> None:
    manifest = read_manifest(tables)
    shard = manifest.shard(14, RANK)
    values, scales = made.expected(14, np.arange(shard.row_start, shard.row_end))
    rows = tmp_path / "rows"
    rows.write_bytes(np.concatenate([values, scales], axis=1).tobytes())
    where = endpoint.replace("://", ",").replace(":", ",")
    words = [str(rows), str(tables / shard.file), where, manifest.identity, manifest.layer(14).source_sha256]
    shape = (
        14,
        RANK,
        RANKS,
        manifest.columns,
        manifest.scales,
        shard.row_start,
        shard.row_end,
        STREAM_ROUNDS,
    )
    stream = StreamProcess([*words, *map(str, shape)])
    try:
        _five_lives(stream, tables, tmp_path, endpoint)
        counters = stream.end()
    finally:
        stream.process.kill()
    assert counters["wrong"] == 0
    assert counters["handovers"] >= STREAM_ROUNDS
    assert counters["lookups_remote"] >= STREAM_ROUNDS // 2
    assert counters["opens"] >= 2 * LIVES
    assert counters["fallbacks_late"] >= LIVES
    assert counters["lookups_failed"] == 0
    print(f"{endpoint}: {counters}")
