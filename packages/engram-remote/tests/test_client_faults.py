"""Whatever happens to server, wire or shard, a lookup gives exact rows or says that it has none."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engram_client_tools import HOLD_SECONDS, MS, Looker, ids_of, options_of, relayed, until
from engram_process import ServeProcess, engram, serving
from engram_remote import native
from engram_remote.client import Client
from engram_remote.client_results import ClientShardError, RowsError
from engram_remote.tables.manifest import read_manifest
from engram_service import Served, built, served
from engram_tables import POISON, TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1.layout import HEADER, LOOKUP_REPLY, REPLY_HEAD_BYTES, Status

WIRES = ("tcp", "shm")
LONG_ROWS = int(os.environ.get("ENGRAM_LONG_ROWS", "0"))
"""Rows to check while the server is killed, frozen and restarted again and again; 0: some 100,000 a wire."""


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


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fixed_endpoint(wire: str) -> str:
    """One that a server can take again after its predecessor died."""
    if wire == "shm":
        return f"shm://engram-{secrets.token_hex(6)}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


class Mixed:
    """Lookups of both layers in sizes of decode and prefill, counted by where they came from."""

    def __init__(self, looker: Looker) -> None:
        self.looker, self.turn = looker, 0
        self.outcomes: dict[str, int] = {"remote": 0, "local": 0}

    def look(self) -> str:
        size = (288, 24, 4096, 1, 1000)[self.turn % 5]
        layers = self.looker.client.layers
        both = [(at, ids_of(self.looker.made, layers[at], size, self.turn + at)) for at in range(2)]
        result = self.looker.look(both if self.turn % 3 == 0 else both[self.turn % 2 :][:1])
        self.turn += 1
        self.outcomes[result.outcome] += 1
        return result.reason

    def until_remote(self) -> None:
        until(lambda: self.look() == "remote", "a remote lookup")

    def rows(self, count: int) -> None:
        limit = self.looker.rows + count
        while self.looker.rows < limit:
            self.look()


def freeze(one: ServeProcess) -> None:
    one.process.send_signal(signal.SIGSTOP)
    until(lambda: "T" in Path(f"/proc/{one.process.pid}/stat").read_text().rsplit(")", 1)[1][:3], "the stop")


def test_rows_stay_exact_while_the_server_is_killed_frozen_and_restarted(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, wire: str
) -> None:
    endpoint = fixed_endpoint(wire)
    options = options_of(
        tables, endpoint, timeout_ns=200 * MS, loss_ns=2_000 * MS, connect_timeout_ns=1_000 * MS
    )
    rows_each = max(LONG_ROWS // len(WIRES), 60_000)
    reasons: set[str] = set()
    with Client(options) as client:
        mixed = Mixed(Looker(client, made))
        lives = 0
        while mixed.looker.rows < rows_each or lives < 2:
            lives += 1
            with serving(tables, tmp_path, "--listen", endpoint) as one:
                one.ready()
                mixed.until_remote()
                mixed.rows(rows_each // 8)
                freeze(one)
                reasons |= {mixed.look() for _ in range(4)}
                one.process.send_signal(signal.SIGCONT)
                mixed.until_remote()
                mixed.rows(rows_each // 8)
                one.process.kill()
                reasons |= {mixed.look() for _ in range(4)}
                one.end()
            mixed.rows(2_000)
        counters = client.counters()
    assert mixed.outcomes["remote"] > 0
    assert mixed.outcomes["local"] > 0
    assert counters["lookups_failed"] == 0
    assert counters["opens"] >= 2 * lives
    assert {"late", "not_connected"} <= reasons
    assert mixed.looker.rows >= rows_each
    print(f"{wire}: {mixed.looker.rows} rows exact over {lives} lives of the server, {counters}")


def test_a_late_reply_changes_nothing_once_the_local_rows_were_written(
    made: TinyCheckpoint, tables: Path, server: Served, wire: str
) -> None:
    ids = ids_of(made, 1, 4096)
    with relayed(wire, server.endpoints[wire]) as relay:
        options = options_of(tables, relay.endpoint, timeout_ns=150 * MS, required=True)
        with Client(options) as client:
            looker = Looker(client, made)
            assert looker.look([(0, ids)]).outcome == "remote"
            go = threading.Event()

            def held(body: bytearray) -> bytearray:
                go.wait(HOLD_SECONDS)
                return bytearray(body[:REPLY_HEAD_BYTES]) + bytearray(
                    b"\xee" * (len(body) - REPLY_HEAD_BYTES)
                )

            relay.change = held
            result = looker.look([(0, ids)])
            assert (result.outcome, result.reason) == ("local", "late")
            assert result.elapsed_ns >= 150 * MS
            before = looker.staging.memory.copy()
            relayed_before = relay.relayed
            go.set()
            until(lambda: relay.relayed > relayed_before, "the late reply")
            relay.change = lambda body: body
            until(lambda: client.counters()["opens"] >= 2, "a new connection")
            np.testing.assert_array_equal(looker.staging.memory, before)
            until(lambda: looker.look([(0, ids)]).outcome == "remote", "a remote lookup")
            counters = client.counters()
    assert counters["fallbacks_late"] == 1
    assert counters["connections_ended"] >= 1


Change = Callable[[bytearray], bytearray]


def _with_byte(at: int, value: int) -> Change:
    def change(body: bytearray) -> bytearray:
        body[at] ^= value
        return body

    return change


BAD_REPLIES: dict[str, Change] = {
    "another magic": _with_byte(HEADER.offsets["magic"], 1),
    "another version": _with_byte(HEADER.offsets["version"], 1),
    "another operation": _with_byte(HEADER.offsets["op"], 3),
    "a request": _with_byte(HEADER.offsets["kind"], 1),
    "another batch number": _with_byte(HEADER.offsets["batch"], 1),
    "another length in the header": _with_byte(HEADER.offsets["body_bytes"], 64),
    "flags that were not asked for": _with_byte(HEADER.size + LOOKUP_REPLY.offsets["flags"], 2),
    "other rows": _with_byte(HEADER.size + LOOKUP_REPLY.offsets["rows"], 1),
    "a body that is too short": lambda body: body[:-64],
    "a header alone": lambda body: body[: HEADER.size],
    "nothing": lambda body: bytearray(),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_reply_that_is_none_ends_the_connection_and_is_made_good_locally(
    made: TinyCheckpoint, tables: Path, server: Served, wire: str, name: str
) -> None:
    with (
        relayed(wire, server.endpoints[wire]) as relay,
        Client(options_of(tables, relay.endpoint, required=True)) as client,
    ):
        looker = Looker(client, made)
        relay.change = BAD_REPLIES[name]
        result = looker.look([(0, ids_of(made, 1, 288))])
        assert (result.outcome, result.reason) == ("local", "bad_reply")
        relay.change = lambda body: body
        until(lambda: looker.look([(0, ids_of(made, 1, 288))]).outcome == "remote", "a remote lookup")
        counters = client.counters()
    assert counters["fallbacks_bad_reply"] == 1
    assert counters["opens"] == 2


def test_with_checksums_one_changed_bit_of_any_plane_is_seen(
    made: TinyCheckpoint, tables: Path, server: Served, wire: str
) -> None:
    if why := native.missing("checksum"):
        pytest.skip(why)
    with (
        relayed(wire, server.endpoints[wire]) as relay,
        Client(options_of(tables, relay.endpoint, required=True, checksum=True)) as client,
    ):
        looker = Looker(client, made)
        both = [(0, ids_of(made, 1, 288)), (1, ids_of(made, 14, 100))]
        size = client.staging_bytes([288, 100])
        for turn, at in enumerate((REPLY_HEAD_BYTES, size // 2, size - 65)):
            relay.change = _with_byte(at, 0x10)
            until(lambda: looker.look(both).reason == "checksum", "a changed reply")
            relay.change = lambda body: body
            until(lambda: looker.look(both).outcome == "remote", "a remote lookup")
            assert client.counters()["fallbacks_checksum"] == turn + 1


@pytest.mark.parametrize(
    ("status", "reason", "ends"),
    [
        (Status.DRAINING, "refused_draining", True),
        (Status.LIMIT, "refused_limit", False),
        (Status.BAD_ID, "refused_bad_id", True),
    ],
)
def test_a_refused_lookup_is_local_and_counted_by_its_reason(
    made: TinyCheckpoint, tables: Path, server: Served, wire: str, status: Status, reason: str, ends: bool
) -> None:
    def refusal(body: bytearray) -> bytearray:
        said = b"\x09\x00\x04\x00\x00\x00\x00\x00" + b"header.op" + b"busy"
        head = bytearray(body[: HEADER.size])
        head[HEADER.offsets["status"]] = status
        head[HEADER.offsets["body_bytes"] :][:4] = b""
        at = HEADER.offsets["body_bytes"]
        head[at : at + 4] = len(said).to_bytes(4, "little")
        return head + said

    with (
        relayed(wire, server.endpoints[wire]) as relay,
        Client(options_of(tables, relay.endpoint, required=True)) as client,
    ):
        looker = Looker(client, made, [1])
        relay.change = refusal
        result = looker.look([(0, ids_of(made, 1, 1))])  # the smallest staging takes a refusal
        assert (result.outcome, result.reason) == ("local", reason)
        relay.change = lambda body: body
        until(lambda: looker.look([(0, ids_of(made, 1, 1))]).outcome == "remote", "a remote lookup")
        counters = client.counters()
    assert counters[f"fallbacks_{reason}"] == 1
    assert counters["opens"] == (2 if ends else 1)


def copied(tables: Path, folder: Path) -> Path:
    for file in tables.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_shard_that_is_short_long_or_anothers_is_refused_before_anything_is_served(
    tables: Path, tmp_path: Path
) -> None:
    folder = copied(tables, tmp_path)
    manifest = read_manifest(folder)
    file = folder / manifest.shard(1, 1).file
    whole = file.read_bytes()
    for change in (whole[:-1], whole[:-264], whole[:-4096], whole + b"\0", whole[:4000], b""):
        file.write_bytes(change)
        with pytest.raises(ClientShardError) as refused:
            Client(options_of(folder))
        assert str(refused.value).startswith(f"{file}: size: ")
    for layer, rank, field in ((1, 0, "rank"), (14, 1, "layer")):
        file.write_bytes((folder / manifest.shard(layer, rank).file).read_bytes())
        with pytest.raises(ClientShardError) as refused:
            Client(options_of(folder))
        assert str(refused.value).startswith(f"{file}: {field}: ")
    file.unlink()
    with pytest.raises(ClientShardError, match="cannot be opened"):
        Client(options_of(folder))


def test_a_shard_of_the_same_shape_from_other_rows_is_refused_by_its_source(
    tables: Path, tmp_path: Path
) -> None:
    other = tiny_checkpoint(tmp_path / "model", smallest=5000, seed=9)
    strangers = built(other, tmp_path / "other")
    folder = tmp_path / "mixed"
    folder.mkdir()
    copied(tables, folder)
    name = read_manifest(folder).shard(14, 1).file
    (folder / name).write_bytes((strangers / name).read_bytes())
    with pytest.raises(ClientShardError, match="source_sha256"):
        Client(options_of(folder))


def test_a_shard_whose_mode_changes_while_in_use_is_read_on(
    made: TinyCheckpoint, tables: Path, tmp_path: Path
) -> None:
    folder = copied(tables, tmp_path)
    with Client(options_of(folder)) as client:
        (folder / read_manifest(folder).shard(1, 1).file).chmod(0o440)
        assert Looker(client, made).look([(0, ids_of(made, 1, 288))]).outcome == "local"


@pytest.mark.parametrize("how", ["cut", "written", "replaced"])
def test_a_shard_that_changes_while_in_use_gives_an_error_and_no_rows_while_the_server_still_does(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, how: str, wire: str
) -> None:
    folder = copied(tables, tmp_path)
    file = folder / read_manifest(folder).shard(1, 1).file
    before = file.stat()
    with served(tables) as one, Client(options_of(folder, one.endpoints[wire], required=True)) as client:
        looker = Looker(client, made)
        while file.stat().st_mtime_ns == before.st_mtime_ns:  # the clock of a file system ticks
            if how == "cut":
                os.truncate(file, file.stat().st_size - 264)
            elif how == "written":
                with file.open("r+b") as stream:
                    stream.seek(5000)
                    stream.write(b"x")
            else:
                (folder / "new").write_bytes(file.read_bytes())
                (folder / "new").rename(file)
        assert looker.look([(0, ids_of(made, 1, 288))]).outcome == "remote"
        one.server.stop()
        one.thread.join()
        looker.staging.memory[:] = POISON
        until(lambda: not client.connected()[0], "the loss")
        with pytest.raises(RowsError) as failed:
            client.wait(client.enqueue([(0, ids_of(made, 1, 288))], looker.staging))
        assert str(file) in str(failed.value)
        values, scales = looker.staging.planes([288])[0]
        assert (values == 0xFF).all()  # NaN, should anybody look
        assert (scales == 0xFF).all()
        assert looker.look([(1, ids_of(made, 14, 288))]).outcome == "local"  # the other shard is whole
        assert client.counters()["lookups_failed"] == 1


def test_closing_ends_open_lookups_with_their_rows(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    with relayed("tcp", server.endpoints["tcp"]) as relay:
        client = Client(options_of(tables, relay.endpoint, required=True, timeout_ns=300 * MS))
        go = threading.Event()
        relay.change = lambda body: bytearray(body) if go.wait(HOLD_SECONDS) else body
        lookers = [Looker(client, made, [4096]) for _ in range(6)]
        asked = [[(0, ids_of(made, 1, 4096, seed))] for seed in range(6)]
        for looker, batches in zip(lookers, asked, strict=True):
            looker.staging.memory[:] = POISON
            client.enqueue(batches, looker.staging)
        client.close()
        go.set()
        for looker, batches in zip(lookers, asked, strict=True):
            looker.client = Client(options_of(tables))
            looker.compare(batches)
            looker.client.close()


WITHOUT_MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
from engram_remote.client import Client, ClientOptions
from engram_remote.client_results import RowsError

rows = 1 << 22
options = ClientOptions(Path(sys.argv[1]), pread=True, read_threads=0, batch_rows_max=rows)
with Client(options) as client:
    staging, ids = client.staging([rows]), np.arange(rows, dtype=np.int32) % 1000
    staging.memory[:] = 0xA5
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), hard))  # the plan of the reads needs 64 MiB
    try:
        client.wait(client.enqueue([(0, ids)], staging))
    except RowsError as error:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        print(error, [bool((plane == 0xFF).all()) for plane in staging.planes([rows])[0]])
"""


def test_a_lookup_that_no_memory_is_left_for_fails_and_leaves_no_row_of_the_last_one(tmp_path: Path) -> None:
    if "san.so" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("a sanitizer's allocator ends the process")
    words = "build --synthetic --ranks 1 --rows 1000 --layers 1 --columns 1 --scale-block 1"
    assert engram(*words.split(), tmp_path / "out").returncode == 0
    command = [sys.executable, "-c", WITHOUT_MEMORY, str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout == "the lookup cannot be served: std::bad_alloc [True, True]\n", ended.stderr
