"""What the hook on a reader records: tags of the very bytes, where they came from, and nothing of its own making."""

import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engram_client_tools import RANK, RANKS, ClientChanges, Looker, ids_of, options_of, relayed, until
from engram_remote.client import Client
from engram_remote.client_results import LookupDeadlineError, RowsError
from engram_remote.native import InvalidError
from engram_remote.observe.staging import StagingBytes, replied
from engram_remote.observe.standing import Standing, standing
from engram_remote.observe.watch import TableWatch
from engram_remote.tables.manifest import read_manifest
from engram_service import Served, built, served
from engram_tables import POISON, TinyCheckpoint, tiny_checkpoint
from numpy.typing import ArrayLike
from ofl.contract.engram_v1.layout import HEADER, LOOKUP_REPLY, Kind, Op
from ofl.contract.observation_v1 import NO_TAG, Blind, Observation, Record, TableOpened, TableRead, write_line

KEY = bytes(range(32))
WAYS = ("tcp", "shm", "local")


class ListSink:
    """Keeps what is written; each record must be one that a file takes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.defects: list[Exception] = []

    def write(self, record: Record) -> None:
        write_line(Observation(0, 0, record))
        self.records.append(record)

    def defect(self, error: Exception) -> None:
        self.defects.append(error)

    @property
    def reads(self) -> list[TableRead]:
        return [record for record in self.records if isinstance(record, TableRead)]

    @property
    def opened(self) -> list[TableOpened]:
        return [record for record in self.records if isinstance(record, TableOpened)]


def tag_of(domain: str, data: bytes) -> str:
    return hmac.new(KEY, domain.encode() + b"\0" + data, hashlib.sha256).hexdigest()[:32]


def rows_tag(made: TinyCheckpoint, layer: int, ids: ArrayLike) -> str:
    """From the source's safetensors alone."""
    values, scales = made.expected_of_rank(layer, RANK, RANKS, ids)
    return tag_of("table_rows", values.tobytes() + scales.tobytes())


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


def watched(client: Client) -> tuple[TableWatch, ListSink]:
    sink = ListSink()
    return TableWatch(client, sink, Blind(KEY)), sink


@pytest.mark.parametrize("change", [ClientChanges(), ClientChanges(bounce=True)], ids=["placed", "bounce"])
@pytest.mark.parametrize("way", WAYS)
def test_a_record_has_the_tags_of_the_sources_bytes_whichever_way_they_came(
    made: TinyCheckpoint, tables: Path, server: Served, way: str, change: ClientChanges
) -> None:
    endpoint = None if way == "local" else server.endpoints[way]
    with Client(replace(options_of(tables, endpoint, **change), required=endpoint is not None)) as client:
        watch, sink = watched(client)
        looker = Looker(client, made)
        first, second = client.layers[:2]
        start, end = made.rank_rows(first, RANK, RANKS)
        one, two = [start, end - 1, end, -1], ids_of(made, second, 300)
        watch.begin_step(["a", "b"])
        looker.look([(0, one), (1, two)])
        watch.begin_step(["a"])
        looker.look([(1, two[:1])])
    assert sink.defects == []
    found = [(read.step, read.requests, read.lookup, read.layer, read.n_rows) for read in sink.reads]
    assert found == [
        (1, ("a", "b"), 1, first, 4),
        (1, ("a", "b"), 1, second, 300),
        (2, ("a",), 2, second, 1),
    ]
    assert [read.out_of_shard for read in sink.reads] == [2, 0, 0]
    wanted: list[tuple[int, ArrayLike]] = [(first, one), (second, two), (second, two[:1])]
    assert [read.rows for read in sink.reads] == [rows_tag(made, layer, ids) for layer, ids in wanted]
    assert [read.ids for read in sink.reads] == [
        tag_of("table_ids", np.asarray(ids, "<i4").tobytes()) for _, ids in wanted
    ]
    told = {(read.outcome, read.reason, read.replied) for read in sink.reads}
    assert told == {("local", "no_server", False) if way == "local" else ("remote", "", True)}


def test_rows_by_address_are_recorded_as_well(made: TinyCheckpoint, tables: Path, server: Served) -> None:
    with Client(options_of(tables, server.endpoints["shm"], required=True)) as client:
        _, sink = watched(client)
        staging = client.staging([64])
        ids = ids_of(made, client.layers[1], 64)
        assert client.read(ids.ctypes.data, len(ids), 1, staging.number).outcome == "remote"
        (read,) = sink.reads
        assert (read.lookup, read.layer, read.n_rows, read.replied) == (1, client.layers[1], 64, True)
        assert read.rows == rows_tag(made, client.layers[1], ids)
    assert sink.defects == []


@pytest.mark.parametrize(("plane", "row"), [(0, 0), (0, 2), (1, 0), (1, 2)])
def test_a_wrong_byte_in_either_plane_is_another_tag(
    made: TinyCheckpoint, tables: Path, monkeypatch: pytest.MonkeyPatch, plane: int, row: int
) -> None:
    wait = Client.wait

    def spoilt(self: Client, ticket: int, deadline_ns: int | None = None) -> Any:
        result = wait(self, ticket, deadline_ns)
        staging.planes([3])[0][plane][row, -1] ^= 1
        return result

    monkeypatch.setattr(Client, "wait", spoilt)
    with Client(options_of(tables)) as client:
        _, sink = watched(client)
        staging = client.staging([3])
        ids = ids_of(made, client.layers[0], 3)
        client.wait(client.enqueue([(0, ids)], staging))
    (read,) = sink.reads
    assert read.ids == tag_of("table_ids", ids.astype("<i4").tobytes())
    assert read.rows not in (NO_TAG, rows_tag(made, client.layers[0], ids))


def test_where_it_stands_is_told_once_and_when_it_changes(made: TinyCheckpoint, tables: Path) -> None:
    identity = read_manifest(tables).identity
    with served(tables) as one:
        client = Client(options_of(tables, one.endpoints["tcp"], required=True))
        watch, sink = watched(client)
        looker = Looker(client, made)
        watch.begin_step(["a"])
        for _ in range(3):
            assert looker.look([(0, ids_of(made, client.layers[0], 5))]).outcome == "remote"
    with client:
        until(lambda: not client.connected()[0], "the end of the connection")
        watch.begin_step(["a"])
        assert looker.look([(0, ids_of(made, client.layers[0], 5))]).outcome == "local"
    plain = (RANK, RANKS, len(client.layers), identity, "remote")
    assert [(each.step, each.status) for each in sink.opened] == [(0, "open"), (2, "closed")]
    for each in sink.opened:
        assert (each.rank, each.ranks, each.layers, each.identity, each.source) == plain
    assert sink.defects == []


def test_a_refused_identity_is_told_with_the_one_that_is_served(
    made: TinyCheckpoint, tables: Path, tmp_path: Path
) -> None:
    other = tiny_checkpoint(tmp_path / "model", smallest=2000, seed=5)
    with ExitStack() as stack:
        one = stack.enter_context(served(built(other, tmp_path / "tables")))
        client = stack.enter_context(Client(options_of(tables, one.endpoints["tcp"])))
        until(lambda: client.counters()["opens_refused"] > 0, "a refusal")
        _, sink = watched(client)
        assert Looker(client, made).look([(0, ids_of(made, client.layers[0], 9))]).outcome == "local"
    (opened,) = sink.opened
    assert (opened.status, opened.refused, opened.offered) == ("refused", "identity", one.manifest.identity)
    assert opened.identity == read_manifest(tables).identity != opened.offered
    assert [read.replied for read in sink.reads] == [False]


def test_a_wait_that_ends_before_its_lookup_records_nothing_until_it_has_ended(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    go_on = threading.Event()

    def held(body: bytearray) -> bytearray:
        go_on.wait(20)
        return body

    with relayed("tcp", server.endpoints["tcp"]) as relay:
        relay.change = held
        with Client(options_of(tables, relay.endpoint, required=True)) as client:
            _, sink = watched(client)
            staging = client.staging([5])
            ids = ids_of(made, client.layers[0], 5)
            ticket = client.enqueue([(0, ids)], staging)
            with pytest.raises(LookupDeadlineError):
                client.wait(ticket, time.monotonic_ns())
            assert sink.reads == []
            go_on.set()
            assert client.wait(ticket).outcome == "remote"
    assert [read.rows for read in sink.reads] == [rows_tag(made, client.layers[0], ids)]
    assert sink.defects == []


def test_a_lookup_without_rows_is_told_and_raised_as_it_was(made: TinyCheckpoint, tmp_path: Path) -> None:
    folder = built(made, tmp_path / "out")
    with Client(options_of(folder)) as client:
        _, sink = watched(client)
        staging = client.staging([5])
        shard = client.manifest.shard(client.layers[0], RANK)
        os.truncate(folder / shard.file, 4096)
        with pytest.raises(RowsError):
            client.wait(client.enqueue([(0, ids_of(made, client.layers[0], 5))], staging))
        with pytest.raises(InvalidError):
            client.enqueue([(0, [1]), (0, [1])], staging)
    told = [(read.lookup, read.outcome, read.reason, read.rows) for read in sink.reads]
    assert told == [(1, "failed", "", NO_TAG), (2, "failed", "", NO_TAG), (2, "failed", "", NO_TAG)]
    assert sink.defects == []


@pytest.mark.parametrize("where", ["tag", "head", "connected"])
def test_a_hook_that_fails_is_counted_and_never_reaches_a_lookup(
    made: TinyCheckpoint, tables: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fails(*_: object) -> Any:
        raise RuntimeError("planted")

    with Client(options_of(tables)) as client:
        _, sink = watched(client)
        looker = Looker(client, made)
        owner = {"tag": Blind, "head": StagingBytes, "connected": client}[where]
        monkeypatch.setattr(owner, where, fails)
        assert looker.look([(0, ids_of(made, client.layers[0], 7))]).outcome == "local"
    assert sink.defects
    assert sink.reads == []


OFF = """
import json, sys
import engram_remote.cli, engram_remote.client, engram_remote.server.life, engram_remote.vllm_seam.plugin
client = engram_remote.client.Client(engram_remote.client.ClientOptions(__import__("pathlib").Path(sys.argv[1])))
names = ("enqueue", "wait", "read", "add_staging")
own = [name for name in names if name in vars(client)]
bound = [getattr(client, name).__func__ is getattr(engram_remote.client.Client, name) for name in names]
client.close()
print(json.dumps([own, bound, [name for name in sys.modules if name.startswith("engram_remote.observe")]]))
"""


def test_without_observation_nothing_of_it_is_imported_and_the_client_is_the_client(tables: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFF, str(tables)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [True] * 4, []]


# --- what it is made of ---

OWN, OTHER = "ab" * 32, "cd" * 32
REFUSAL = (
    f"tcp://h:1 refused OPEN (identity): open.identity: the client has {OWN}, the server has {OTHER}; "
    f"this side has identity {OWN}, rank 0 of 2"
)


@pytest.mark.parametrize(
    ("open_now", "text", "found"),
    [
        (True, REFUSAL, Standing("open")),
        (False, "the connection ended: gone", Standing("closed")),
        (False, REFUSAL, Standing("refused", "identity", OTHER)),
        (False, "shm://x refused OPEN (no_table): open.rank: 3", Standing("refused", "no_table")),
        (False, f"refused OPEN (identity): {OWN}{OTHER}", Standing("refused", "identity")),
    ],
)
def test_a_standing_is_read_off_what_a_client_says(open_now: bool, text: str, found: Standing) -> None:
    assert standing(open_now, text, OWN) == found


def head(**changes: int) -> bytes:
    values = {"magic": 0x4D524745, "version": 1, "op": Op.LOOKUP, "kind": Kind.REPLY, "status": 0, "batch": 9}
    of_header = {**values, "body_bytes": 32, **{k: v for k, v in changes.items() if k != "rows"}}
    reply = {"flags": 0, "rows": changes.get("rows", 5), "checksum": 0, "gather_ns": 7}
    return HEADER.pack(of_header) + LOOKUP_REPLY.pack(reply)


def test_a_reply_is_one_that_came_and_is_whole() -> None:
    poisoned = bytes([POISON]) * len(head())
    assert replied(poisoned, head(), 5)
    assert replied(head(batch=8), head(), 5)
    assert not replied(head(), head(), 5)
    assert not replied(poisoned, poisoned, 5)
    assert not replied(b"", head()[:20], 5)
    for changes in ({"op": Op.OPEN}, {"kind": Kind.REQUEST}, {"status": 3}, {"magic": 1}, {"rows": 4}):
        assert not replied(poisoned, head(**changes), 5), changes


def test_rows_that_do_not_fit_a_staging_are_refused() -> None:
    memory = np.zeros(256, np.uint8)
    with pytest.raises(ValueError, match="do not fit in a staging of 256"):
        list(StagingBytes(memory.ctypes.data, memory.nbytes).planes([1], 256, 8))
