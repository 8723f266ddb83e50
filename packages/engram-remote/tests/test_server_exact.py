"""Rows that a server sends are the source's, byte for byte: every corner case, over every wire."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from engram_remote.server.service import ServerLimits
from engram_service import LIMITS, WIRES, Caller, Served, built, called, lookup_of, reply_bytes, served, soon
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1 import (
    NO_ROW,
    Envelope,
    LookupFlag,
    LookupReply,
    Op,
    Refused,
    Status,
    decode_reply,
    encode_request,
)
from ofl.contract.engram_v1.layout import HEADER

RANKS = 2
CHUNK = 49_152
"""Rows of one layer that a prefill chunk of 4,096 tokens reads, 12 for each token."""


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


@pytest.fixture
def caller(server: Served, wire: str) -> Iterator[Caller]:
    with called(server.endpoints[wire], server.open_message(rank=1)) as one:
        yield one


def in_rank(made: TinyCheckpoint, layer: int, count: int, rank: int = 1) -> np.ndarray:
    start, end = made.rank_rows(layer, rank, RANKS)
    return np.random.default_rng(count).integers(start, end, count)


def check(made: TinyCheckpoint, caller: Caller, layer: int, ids: np.ndarray, rank: int = 1) -> None:
    """Ids outside the rank go as NO_ROW, as a client sends them, and must come back as zero bytes."""
    start, end = made.rank_rows(layer, rank, RANKS)
    sent = np.where((ids >= start) & (ids < end), ids, NO_ROW)
    values, scales = caller.rows(sent, layer=(1, 14).index(layer))
    expected_values, expected_scales = made.expected_of_rank(layer, rank, RANKS, ids)
    assert np.array_equal(values, expected_values)
    assert np.array_equal(scales, expected_scales)


@pytest.mark.parametrize("layer", [1, 14])
def test_every_row_of_a_shard_is_the_sources(made: TinyCheckpoint, caller: Caller, layer: int) -> None:
    ids = np.arange(*made.rank_rows(layer, 1, RANKS))
    values, scales = caller.rows(ids, layer=(1, 14).index(layer))
    expected_values, expected_scales = made.expected(layer, ids)
    assert np.array_equal(values, expected_values)
    assert np.array_equal(scales, expected_scales)
    assert set(np.unique(values)) == set(range(256))
    assert set(np.unique(scales)) == set(range(256))


@pytest.mark.parametrize(
    "count", [1, 2, 3, 7, 8, 9, 63, 64, 65, 288, 1023, 1024, 1025, 2047, 2048, 2049, 4097]
)
def test_batches_around_every_threshold_are_exact(made: TinyCheckpoint, caller: Caller, count: int) -> None:
    check(made, caller, 14, in_rank(made, 14, count))


def test_a_prefill_chunk_is_exact(made: TinyCheckpoint, caller: Caller) -> None:
    check(made, caller, 1, in_rank(made, 1, CHUNK))


def test_an_empty_batch_is_a_head_alone(caller: Caller) -> None:
    for lookup in (lookup_of({0: []}), lookup_of({1: [], 0: []})):
        assert caller.opened is not None
        assert reply_bytes(lookup, caller.opened) == 64
        reply = caller.lookup(lookup)
        assert isinstance(reply, LookupReply)
        assert all(len(part.values) == len(part.scales) == 0 for part in reply.parts)


def test_duplicates_come_as_often_as_they_were_asked_for(made: TinyCheckpoint, caller: Caller) -> None:
    start, end = made.rank_rows(1, 1, RANKS)
    ids = np.array([end - 1] * 100 + [start] * 2000 + [end - 1, start])
    check(made, caller, 1, ids)


def test_ids_outside_the_shard_are_zero_bytes_at_their_places(made: TinyCheckpoint, caller: Caller) -> None:
    all_ids = np.random.default_rng(5).integers(0, made.rows(14), 5000)
    assert 0 < (all_ids < made.rank_rows(14, 1, RANKS)[0]).sum() < 5000
    check(made, caller, 14, all_ids)
    values, scales = caller.rows([NO_ROW] * 300)
    assert not values.any()
    assert not scales.any()


@pytest.mark.parametrize("counts", [(5, 3), (0, 7), (7, 0), (1, 2500), (2500, 1), (20_000, 29_152)])
def test_several_layers_in_one_lookup_are_each_their_own(
    made: TinyCheckpoint, caller: Caller, counts: tuple[int, int]
) -> None:
    ids = {1: in_rank(made, 1, counts[0]), 14: in_rank(made, 14, counts[1])}
    # The second layer first: a part's layer, not its place, says whose rows it wants.
    reply = caller.lookup(lookup_of({1: ids[14], 0: ids[1]}))
    assert isinstance(reply, LookupReply)
    for layer, (values, scales) in zip((14, 1), caller.arrays(reply), strict=True):
        expected_values, expected_scales = made.expected(layer, ids[layer])
        assert np.array_equal(values, expected_values)
        assert np.array_equal(scales, expected_scales)


def test_ranks_of_one_server_have_their_own_rows(made: TinyCheckpoint, server: Served, wire: str) -> None:
    for rank in range(RANKS):
        with called(server.endpoints[wire], server.open_message(rank)) as one:
            check(made, one, 1, in_rank(made, 1, 400, rank), rank)


@pytest.mark.parametrize(
    ("columns", "scale_block"), [(32, 32), (96, 16), (65, 13), (264, 8), (1024, 32), (8, 1)]
)
def test_rows_of_other_widths_are_exact(tmp_path: Path, wire: str, columns: int, scale_block: int) -> None:
    made = tiny_checkpoint(tmp_path / "model", columns=columns, scale_block=scale_block, smallest=300)
    with ExitStack() as stack:
        server = stack.enter_context(served(built(made, tmp_path / "out")))
        one = stack.enter_context(called(server.endpoints[wire], server.open_message(1)))
        for count in (1, 5, 333, 3000):
            check(made, one, 14, in_rank(made, 14, count))


@pytest.mark.parametrize("count", [0, 1, 288, 5000])
def test_a_checksum_is_xxh3_of_open_lookup_and_planes(
    made: TinyCheckpoint, caller: Caller, count: int
) -> None:
    xxhash = pytest.importorskip("xxhash", reason="xxhash computes the checksum a second time")
    lookup = lookup_of({0: in_rank(made, 1, count)}, LookupFlag.CHECKSUM)
    reply = caller.lookup(lookup)
    assert isinstance(reply, LookupReply)
    assert caller.opened is not None
    seed = 0
    for op, asked in ((Op.OPEN, caller.opened), (Op.LOOKUP, lookup)):
        message = b"".join(bytes(part) for part in encode_request(Envelope(op, 1), asked))
        seed = xxhash.xxh3_64_intdigest(message[HEADER.size :], seed)
    body = b"".join(
        bytes(plane).ljust(-(-len(plane) // 64) * 64, b"\0")
        for part in reply.parts
        for plane in (part.values, part.scales)
    )
    assert reply.checksum == xxhash.xxh3_64_intdigest(body, seed)


def test_lookups_that_are_sent_together_are_each_answered(
    made: TinyCheckpoint, server: Served, wire: str
) -> None:
    """More than there are reply buffers: those that find none wait, in order, and the receiver goes on."""
    message = server.open_message(0)
    with called(server.endpoints[wire], message) as one:
        sent = []
        for number in range(LIMITS.calls_max):
            count = (3, 300, 4000, 9000)[number % 4]
            ids = np.random.default_rng(number).integers(*made.rank_rows(1, 0, RANKS), count)
            lookup, envelope = lookup_of({0: ids}), Envelope(Op.LOOKUP, 1000 + number)
            sequence = one.client.submit(encode_request(envelope, lookup), deadline_ns=soon())
            sent.append((sequence, envelope, lookup, ids))
        for sequence, envelope, lookup, ids in sent:
            reply = decode_reply(one.client.wait(sequence, deadline_ns=soon()), envelope, lookup, message)
            assert isinstance(reply, LookupReply), reply
            values, scales = one.arrays(reply)[0]
            expected_values, expected_scales = made.expected(1, ids)
            assert np.array_equal(values, expected_values)
            assert np.array_equal(scales, expected_scales)


def test_replies_that_a_client_takes_late_are_kept_for_it(
    made: TinyCheckpoint, tables: Path, wire: str
) -> None:
    """As many as there are buffers, each of the largest size: more than any socket holds."""
    limits = ServerLimits(gather_threads=2, batch_rows_max=40_000, reply_buffers=6, calls_max=6)
    with ExitStack() as stack:
        server = stack.enter_context(served(tables, limits=limits))
        message = server.open_message(0, 40_000)
        one = stack.enter_context(called(server.endpoints[wire], message))
        other = stack.enter_context(called(server.endpoints[wire], message))
        sent = []
        for number in range(limits.calls_max):
            ids = np.random.default_rng(number).integers(*made.rank_rows(1, 0, RANKS), 40_000)
            lookup, envelope = lookup_of({0: ids}), Envelope(Op.LOOKUP, 1 + number)
            sequence = one.client.submit(encode_request(envelope, lookup), deadline_ns=soon())
            sent.append((sequence, envelope, lookup, ids))
        deadline = soon()
        while server.server.counters()["lookups"] < limits.calls_max and soon(0) < deadline:
            other.stats()  # the receiver goes on
        for sequence, envelope, lookup, ids in sent:
            reply = decode_reply(one.client.wait(sequence, deadline_ns=soon()), envelope, lookup, message)
            assert isinstance(reply, LookupReply), reply
            assert np.array_equal(one.arrays(reply)[0][0], made.expected(1, ids)[0])
        check(made, other, 14, in_rank(made, 14, 500, 0), 0)


def test_a_batch_of_the_limit_is_served_and_one_row_more_is_not(
    made: TinyCheckpoint, tables: Path, wire: str
) -> None:
    limits = ServerLimits(gather_threads=3, batch_rows_max=7000, reply_buffers=1)
    with ExitStack() as stack:
        server = stack.enter_context(served(tables, limits=limits))
        one = stack.enter_context(called(server.endpoints[wire], server.open_message(1, 7000)))
        check(made, one, 14, in_rank(made, 14, 7000))
        reply = one.lookup(lookup_of({0: in_rank(made, 1, 7001)}))
        assert isinstance(reply, Refused)
        assert (reply.status, reply.field) == (Status.LIMIT, "lookup_part.ids")
        check(made, one, 14, in_rank(made, 14, 6999))
