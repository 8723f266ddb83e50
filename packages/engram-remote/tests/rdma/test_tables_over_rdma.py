"""Rows over real queue pairs are the generator's, byte for byte, whatever becomes of the server meanwhile."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from engram_client_tools import Batches, ClientChanges, Looker, ids_of, until
from engram_rdma_host import RANK, TableHost, span_ns
from engram_rdma_rows import RANKS, SyntheticRows
from engram_remote import native
from engram_remote.bench.figures import REMOTE
from engram_remote.client import Client
from engram_remote.commands.bench import command as bench
from engram_remote.native import RefusedError
from engram_remote.tables.manifest import read_manifest
from engram_tables import POISON

RANDOM_ROWS = 20_000
SIZES = (288, 4_096, 24, 1, 1_000)
I32 = np.iinfo(np.int32)
UNTOUCHED = 0x3C
"""What a test writes over rows that it has: whoever writes there afterwards is seen, also with the same rows."""
WAYS = [
    pytest.param("rdma", ClientChanges(required=True), marks=pytest.mark.smoke, id="rdma"),
    pytest.param("rdma", ClientChanges(required=True, checksum=True), id="rdma with checksums"),
    pytest.param("rdma", ClientChanges(required=True, bounce=True), id="rdma, bounced"),
    pytest.param("tcp", ClientChanges(required=True), id="tcp"),
]


def remote(looker: Looker, batches: Batches) -> bool:
    """Whether a lookup of them, which must be exact, was answered by the server."""
    return looker.look(batches).outcome == "remote"


def look_at_random(looker: Looker, count: int) -> dict[str, int]:
    """Lookups of one layer and of several, in sizes of decode and prefill, until so many rows were compared; how many
    there were, by reason.
    """
    reasons: dict[str, int] = {}
    limit, turn = looker.rows + count, 0
    layers = looker.client.layers
    while looker.rows < limit:
        size = SIZES[turn % len(SIZES)]
        drawn = [(at, ids_of(looker.made, layer, size, turn + at)) for at, layer in enumerate(layers)]
        several = turn % 3 == 0 and size * len(layers) <= looker.client.options.batch_rows_max
        result = looker.look(drawn if several else [drawn[turn % len(layers)]])
        reasons[result.reason] = reasons.get(result.reason, 0) + 1
        turn += 1
    return reasons


@pytest.mark.parametrize(("wire", "change"), WAYS)
def test_corners_and_random_rows_of_every_layer_are_exact(
    rows: SyntheticRows, host: TableHost, wire: str, change: ClientChanges
) -> None:
    assert not (change.get("checksum") and native.missing("checksum")), native.missing("checksum")
    with Client(host.options(wire, **change)) as client:
        looker = Looker(client, rows, (8_192, 1, 1))
        for at, layer in enumerate(client.layers):
            start, end = rows.rank_rows(layer, RANK, RANKS)
            strange = [start - 1, end, -1, I32.min, I32.max]
            for ids in (
                [],
                [start],
                [end - 1],
                strange,
                [start, *strange, end - 1] * 9,
                [start + 3] * 1_000,
                list(range(start, end)),
                list(range(end - 1, end - 400, -1)),
                ids_of(rows, layer, 4_097),
                ids_of(rows, layer, 8_192),
            ):
                result = looker.look([(at, ids)])
                strangers = sum(not start <= one < end for one in np.asarray(ids).tolist())
                assert (result.outcome, result.rows) == ("remote", len(ids))
                assert result.out_of_shard == strangers
        for sizes in ((288, 288, 288), (0, 7, 1), (7, 0, 0), (0, 0, 0), (2_730, 2_731, 2_731)):
            drawn = [(at, ids_of(rows, client.layers[at], size)) for at, size in enumerate(sizes)]
            assert looker.look(drawn).outcome == "remote"
            assert looker.look(drawn[::-1]).outcome == "remote"
        assert set(look_at_random(looker, RANDOM_ROWS)) == {"remote"}
        counters, said = client.counters(), client.connected()
        assert said[0]
        assert said[1].startswith(wire)
        assert counters["lookups_failed"] == 0
        assert counters["rows_remote"] == looker.rows
        print(f"{looker.rows} rows exact; {client.statistics_line()}")


@pytest.mark.smoke
def test_nothing_is_written_after_the_local_rows_of_a_reply_that_was_held(
    rows: SyntheticRows, host: TableHost
) -> None:
    timeout_ns = span_ns(150)
    with Client(host.options("rdma", timeout_ns=timeout_ns)) as client:
        until(lambda: client.connected()[0], "the connection")
        looker, other = Looker(client, rows, [4_096]), Looker(client, rows, [288])
        ids = [(0, ids_of(rows, 1, 4_096))]
        until(lambda: looker.look(ids).outcome == "remote", "a remote lookup")
        before = client.counters()
        host.freeze()
        try:
            result = looker.look(ids)
            assert (result.outcome, result.reason) == ("local", "late")
            assert result.elapsed_ns >= timeout_ns
            looker.staging.memory[:] = UNTOUCHED
            assert other.look([(1, ids_of(rows, 14, 288))]).outcome == "local"
        finally:
            host.thaw()

        def opened_again() -> bool:
            assert (looker.staging.memory == UNTOUCHED).all(), "a late reply was written"
            return client.counters()["opens"] > before["opens"]

        until(opened_again, "a new connection")
        for turn in range(20):
            turns = [(1, ids_of(rows, 14, 288, turn))]
            until(partial(remote, other, turns), "rows")
            assert (looker.staging.memory == UNTOUCHED).all(), "a late reply was written"
        after = client.counters()
        assert after["fallbacks_late"] > before["fallbacks_late"]
        assert after["lookups_failed"] == 0


def test_rows_stay_exact_while_the_server_is_killed_and_started_again(
    rows: SyntheticRows, host: TableHost
) -> None:
    impatient = host.options("rdma", timeout_ns=span_ns(500), loss_ns=span_ns(1_000))
    with Client(impatient) as client:
        looker = Looker(client, rows, (8_192, 1, 1))
        until(lambda: looker.look([(0, ids_of(rows, 1, 24))]).outcome == "remote", "a remote lookup")
        opens = client.counters()["opens"]
        assert "remote" in look_at_random(looker, 5_000)
        under_way = [(0, ids_of(rows, 1, 4_096))]
        looker.staging.memory[:] = POISON
        ticket = client.enqueue(under_way, looker.staging)
        host.kill()
        client.wait(ticket)
        looker.compare(under_way)
        away = look_at_random(looker, 5_000)
        assert "remote" not in away
        host.start()
        until(lambda: looker.look([(0, ids_of(rows, 1, 24))]).outcome == "remote", "a remote lookup")
        back = look_at_random(looker, 5_000)
        counters = client.counters()
    assert "remote" in back
    assert counters["opens"] > opens
    assert counters["lookups_failed"] == 0
    print(f"while the server was away: {away}; after it was back: {back}")


def test_tables_of_another_identity_are_refused_with_both_and_read_locally(
    host: TableHost, tables: Path, tmp_path: Path
) -> None:
    others = SyntheticRows(seed=6, sizes={1: 600, 14: 500, 23: 400})
    folder = others.build(tmp_path / "others")
    with pytest.raises(RefusedError) as refused:
        Client(host.options("rdma", folder, required=True))
    for one in (folder, tables):
        assert read_manifest(one).identity in str(refused.value)
    with Client(host.options("rdma", folder)) as client:
        looker = Looker(client, others, [200])
        result = looker.look([(0, ids_of(others, 1, 200))])
    assert (result.outcome, result.reason) == ("local", "not_connected")


def test_the_bench_measures_lookups_over_rdma(host: TableHost, tables: Path, tmp_path: Path) -> None:
    """Its figures are printed: they say nothing about real hardware."""
    found = tmp_path / "bench.json"
    words = [str(tables), "--endpoint", host.endpoints["rdma"], "--rows", "24,288", "--rounds", "10"]
    ended = CliRunner().invoke(bench, [*words, "--json", str(found)], catch_exceptions=False)
    print(ended.output)
    assert ended.exit_code == 0
    figures = json.loads(found.read_text())
    assert [size["rows"] for size in figures["sizes"]] == [24, 288]
    for size in figures["sizes"]:
        remote = [line for line in size["lookups"] if line["endpoint"] == host.endpoints["rdma"]]
        assert [line["source"] for line in remote] == [REMOTE]
        assert remote[0]["count"] == 10
