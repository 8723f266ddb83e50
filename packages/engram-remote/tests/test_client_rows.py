"""Rows that a client gives are the source's, byte for byte, whichever way they come; and what it says about them."""

import mmap
import os
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engram_client_tools import RANK, RANKS, ClientChanges, Looker, ids_of, options_of, relayed, until
from engram_remote import native
from engram_remote.client import Client
from engram_remote.client_results import (
    ClientClosedError,
    ClientShardError,
    LookupDeadlineError,
    TicketError,
)
from engram_remote.native import EngramError, InvalidError, RefusedError
from engram_remote.tables.errors import ManifestError
from engram_remote.tables.layout import HEADER
from engram_remote.tables.manifest import FILE_NAME, read_manifest
from engram_service import Served, built, served
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1.layout import HEADER as MESSAGE

WAYS = ("tcp", "shm", "local")
CHANGES = (
    ClientChanges(),
    ClientChanges(checksum=True),
    ClientChanges(bounce=True),
    ClientChanges(pread=True),
    ClientChanges(buffered=True),
)
LONG_NS = (1 << 64) + 100_000_000
I32 = np.iinfo(np.int32)


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


def endpoint_of(server: Served, way: str) -> str | None:
    return None if way == "local" else server.endpoints[way]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change), "plain"))
@pytest.mark.parametrize("way", WAYS)
def test_every_corner_is_exact_whichever_way_rows_come(
    made: TinyCheckpoint, tables: Path, server: Served, way: str, change: ClientChanges
) -> None:
    if change.get("checksum") and native.missing("checksum"):
        pytest.skip(native.missing("checksum"))
    remote = way != "local"
    with Client(replace(options_of(tables, endpoint_of(server, way), **change), required=remote)) as client:
        looker = Looker(client, made)
        for at, layer in enumerate(client.layers):
            start, end = made.rank_rows(layer, RANK, RANKS)
            strange = [start - 1, end, -1, I32.min, I32.max]
            for ids in (
                [],
                [start],
                [end - 1],
                strange,
                [start, *strange, end - 1] * 9,
                [start + 3] * 1000,
                list(range(end - 1, end - 400, -1)),
                ids_of(made, layer, 4097),
                ids_of(made, layer, 49_152),
            ):
                result = looker.look([(at, ids)])
                assert result.outcome == ("remote" if remote else "local")
                strangers = sum(not start <= id < end for id in np.asarray(ids).tolist())
                assert (result.rows, result.out_of_shard) == (len(ids), strangers)
        for sizes in ((288, 288), (0, 7), (7, 0), (0, 0), (32_768, 32_768)):
            drawn = [(at, ids_of(made, client.layers[at], size)) for at, size in enumerate(sizes)]
            looker.look(drawn)
            looker.look(drawn[::-1])
        assert looker.rows > 200_000
        counters = client.counters()
        assert counters["lookups_failed"] == 0
        assert counters["rows_remote" if remote else "rows_local"] == looker.rows


def test_many_lookups_may_be_open_each_on_its_staging(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    with Client(options_of(tables, server.endpoints["tcp"], required=True)) as client:
        lookers = [Looker(client, made, [512]) for _ in range(24)]
        asked = [[(turn % 2, ids_of(made, client.layers[turn % 2], 22 * turn, turn))] for turn in range(24)]
        for _ in range(5):
            tickets = [
                client.enqueue(batches, one.staging) for one, batches in zip(lookers, asked, strict=True)
            ]
            for ticket, one, batches in reversed(list(zip(tickets, lookers, asked, strict=True))):
                assert client.wait(ticket).outcome == "remote"
                one.compare(batches)


def test_memory_of_the_callers_serves_as_staging(made: TinyCheckpoint, tables: Path, server: Served) -> None:
    memory = np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8)
    with Client(options_of(tables, server.endpoints["shm"], required=True)) as client:
        staging = client.staging([1000], memory)
        ids = ids_of(made, 1, 1000)
        client.wait(client.enqueue([(0, ids)], staging))
        values, scales = staging.planes([1000])[0]
        wanted = made.expected_of_rank(1, RANK, RANKS, ids)
        np.testing.assert_array_equal(values, wanted[0])
        np.testing.assert_array_equal(scales, wanted[1])
        assert np.shares_memory(values, memory)
        with pytest.raises(InvalidError, match="multiple of 64"):
            client.staging([1], memory[1:])


def test_the_convenient_lookup_gives_values_and_scales(made: TinyCheckpoint, tables: Path) -> None:
    with Client(options_of(tables)) as client:
        ids = ids_of(made, 14, 33)
        values, scales = client.lookup(ids, layer=14)
        wanted = made.expected_of_rank(14, RANK, RANKS, ids)
        np.testing.assert_array_equal(values, wanted[0])
        np.testing.assert_array_equal(scales, wanted[1])
        with pytest.raises(ValueError, match="layer: 2"):
            client.lookup(ids, layer=2)


def test_what_cannot_be_served_is_refused_by_name(made: TinyCheckpoint, tables: Path) -> None:
    with Client(options_of(tables, batch_rows_max=100)) as client:
        staging = client.staging([100])
        with pytest.raises(InvalidError, match="batch_rows_max"):
            client.enqueue([(0, np.zeros(101, np.int32))], staging)
        with pytest.raises(InvalidError, match="stands twice"):
            client.enqueue([(0, [1]), (0, [1])], staging)
        with pytest.raises(InvalidError, match=r"batches\[0\].layer"):
            client.enqueue([(2, [1])], staging)
        for wrapped in (1 << 32, -(1 << 32), -1):
            with pytest.raises(ValueError, match=r"batches\[0\].layer"):
                client.enqueue([(wrapped, [1])], staging)
            with pytest.raises(ValueError, match="counts"):
                client.staging([wrapped])
        with pytest.raises(OverflowError, match="32 bits"):
            client.enqueue([(0, [1 << 31])], staging)
        with pytest.raises(TypeError, match="whole numbers"):
            client.enqueue([(0, [1.5])], staging)
        with pytest.raises(TicketError):
            client.wait(12_345)
    with pytest.raises(ClientClosedError):
        client.counters()
    with pytest.raises(ValueError, match="rank: 2"):
        Client(options_of(tables, rank=2))
    with pytest.raises(InvalidError, match="timeout_ns"):
        Client(options_of(tables, timeout_ns=0))
    for change in (
        ClientChanges(timeout_ns=LONG_NS),
        ClientChanges(connect_timeout_ns=LONG_NS),
        ClientChanges(retry_ns=LONG_NS),
        ClientChanges(retry_max_ns=LONG_NS),
        ClientChanges(spin_ns=LONG_NS),
    ):
        (name,) = change
        with pytest.raises(ValueError, match=name):
            Client(options_of(tables, **change))


def test_ids_are_kept_until_their_lookup_ended_whoever_comes_back_last(
    made: TinyCheckpoint, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's older lookup on the staging has ended, but its call has not returned yet."""
    with Client(options_of(tables)) as client:
        staging, held = client.staging([100]), threading.Event()
        real, begun = client._enqueue, threading.Event()

        def slow(*order: Any) -> int:
            ticket = real(*order)
            if threading.current_thread() is older:
                begun.set()
                held.wait(30)
            return ticket

        monkeypatch.setattr(client, "_enqueue", slow)
        older = threading.Thread(target=lambda: client.enqueue([(0, ids_of(made, 1, 3))], staging))
        older.start()
        assert begun.wait(30)
        ids = ids_of(made, 1, 100)
        kept = weakref.ref(ids)
        until(lambda: client.counters()["lookups_local"] == 1, "the end of the older lookup")
        ticket = client.enqueue([(0, ids)], staging)
        del ids
        held.set()
        older.join()
        assert kept() is not None
        assert client.wait(ticket).rows == 100
        assert kept() is None


def test_a_ticket_is_good_for_one_wait_and_a_late_wait_for_another(
    made: TinyCheckpoint, tables: Path
) -> None:
    with Client(options_of(tables)) as client:
        staging = client.staging([65_536])
        ticket = client.enqueue([(0, ids_of(made, 1, 65_536))], staging)
        with pytest.raises(LookupDeadlineError):
            client.wait(ticket, deadline_ns=time.monotonic_ns())
        assert client.wait(ticket).rows == 65_536
        with pytest.raises(TicketError):
            client.wait(ticket)


def test_a_required_server_that_is_not_there_or_has_other_tables_fails_with_its_sentence(
    tables: Path, server: Served
) -> None:
    with pytest.raises(EngramError, match="nobody listens"):
        Client(options_of(tables, "tcp://127.0.0.1:1", required=True))
    manifest = read_manifest(tables)
    other = manifest.model_copy(update={"identity": "12" * 32})
    with pytest.raises(RefusedError) as refused:
        Client(options_of(tables, server.endpoints["tcp"], required=True), other)
    assert "12" * 32 in str(refused.value)
    assert manifest.identity in str(refused.value)


def test_a_refused_client_reads_its_shard_and_counts_and_says_why(
    made: TinyCheckpoint, tables: Path, server: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    other = read_manifest(tables).model_copy(update={"identity": "12" * 32})
    with Client(options_of(tables, server.endpoints["shm"]), other) as client:
        until(lambda: client.counters()["opens_refused"] >= 3, "the third refusal")
        assert Looker(client, made).look([(0, ids_of(made, 1, 100))]).reason == "not_connected"
        connected, text = client.connected()
        assert not connected
        assert "identity" in text
    assert capfd.readouterr().err.count("refused OPEN") == 1  # loud, but once


def test_a_client_whose_version_is_not_spoken_comes_back_for_servers_are_replaced(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    with relayed("tcp", server.endpoints["tcp"]) as relay:

        def of_another_version(sent: bytearray) -> bytearray:
            sent[MESSAGE.offsets["version"]] += 1
            return sent

        relay.ask = of_another_version
        with Client(options_of(tables, relay.endpoint)) as client:
            until(lambda: client.counters()["opens_refused"] >= 3, "the third refusal")
            assert "refused OPEN (version)" in client.connected()[1]
            looker = Looker(client, made)
            assert looker.look([(0, ids_of(made, 1, 100))]).outcome == "local"
            relay.ask = lambda sent: sent
            until(lambda: looker.look([(0, ids_of(made, 1, 100))]).outcome == "remote", "a remote lookup")


def test_the_line_tells_remote_lookups_and_fallbacks_by_reason(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    with Client(options_of(tables, server.endpoints["tcp"], required=True)) as client:
        assert Looker(client, made).look([(0, ids_of(made, 1, 288))]).outcome == "remote"
        line = client.statistics_line()
        assert "1 remote lookups, 288 rows, 0.1 MB, mean " in line
        assert "; 0 fallbacks, 0 failed, 0 reconnects; tcp://" in line
        latency = client.latency("remote")
        assert latency.count == 1
        assert 0 < latency.min_ns == latency.percentile_ns(50) == latency.max_ns == latency.sum_ns
    with Client(options_of(tables)) as client:
        looker = Looker(client, made)
        looker.look([(0, ids_of(made, 1, 10))])
        assert "1 fallbacks (no_server 1)" in client.statistics_line()


@pytest.mark.parametrize("field", [field.name for field in HEADER.fields])
def test_each_field_of_the_header_is_read_where_the_layout_has_it(
    tables: Path, tmp_path: Path, field: str
) -> None:
    """The C++ struct and `engram_remote.tables.layout` are the same bytes: a changed field is told by its name."""
    manifest = read_manifest(tables)
    for shard in manifest.shards:
        (tmp_path / shard.file).write_bytes((tables / shard.file).read_bytes())
    file = tmp_path / manifest.shard(1, RANK).file
    with file.open("r+b") as stream:
        stream.seek(HEADER.offsets[field])
        before = stream.read(1)
        stream.seek(HEADER.offsets[field])
        stream.write(bytes([before[0] ^ 0x40]))
    with pytest.raises(ClientShardError) as refused:
        Client(options_of(tmp_path), manifest)
    assert str(refused.value).startswith(f"{file}: {field}: ")


def test_a_manifest_that_was_tampered_with_opens_nothing(tables: Path, tmp_path: Path) -> None:
    text = (tables / FILE_NAME).read_text()
    identity = read_manifest(tables).identity
    for old, new in ((identity, "0" * 64), ('"rank": 1', '"rank": 0'), ('"row_end"', '"row_stop"')):
        (tmp_path / FILE_NAME).write_text(text.replace(old, new, 1))
        with pytest.raises(ManifestError, match=FILE_NAME):
            Client(options_of(tmp_path))


def test_a_child_of_fork_may_only_close(tables: Path, server: Served) -> None:
    with Client(options_of(tables, server.endpoints["tcp"], required=True)) as client:
        child = os.fork()
        if child == 0:
            try:
                client.staging([1])
                status = 1
            except ClientClosedError:
                client.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert len(client.lookup([0])[0]) == 1
        assert client.connected()[0]
