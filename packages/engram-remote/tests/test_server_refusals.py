"""What a server refuses: with which status, naming which field, and that it serves on after it."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engram_remote import native
from engram_remote.server.service import ServerLimits, TableServer
from engram_remote.tables.manifest import read_manifest
from engram_service import WIRES, Served, built, called, lookup_of, served, soon
from engram_tables import TinyCheckpoint, tiny_checkpoint
from numpy.typing import ArrayLike
from ofl.client import connect
from ofl.contract import ContractError
from ofl.contract.engram_v1 import (
    NO_ROW,
    SERVICE,
    Envelope,
    Lookup,
    LookupFlag,
    LookupReply,
    Op,
    Open,
    OpenReply,
    Refused,
    Reply,
    Stats,
    Status,
    decode_reply,
    decode_request,
    encode_request,
)
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX, HEADER, LOOKUP, LOOKUP_PART, Kind

LIMITS = ServerLimits(gather_threads=2, batch_rows_max=8192, calls_max=4, reply_buffers=2, spin_ns=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=500)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="module")
def server(tables: Path) -> Iterator[Served]:
    """Rank 0 alone, so that there is a rank without tables."""
    with served(tables, limits=LIMITS, ranks=[0]) as one:
        yield one


@pytest.fixture(params=WIRES)
def endpoint(request: pytest.FixtureRequest, server: Served) -> str:
    return server.endpoints[request.param]


@pytest.fixture
def good(server: Served) -> Open:
    return server.open_message(0, 4096)


def refusal(reply: Reply) -> tuple[Status, str]:
    assert isinstance(reply, Refused), reply
    assert reply.detail
    return reply.status, reply.field


def still_serves(made: TinyCheckpoint, endpoint: str, message: Open) -> None:
    with called(endpoint, message) as one:
        values, scales = one.rows([7, 3])
        expected_values, expected_scales = made.expected(1, [7, 3])
        assert np.array_equal(values, expected_values)
        assert np.array_equal(scales, expected_scales)


def test_another_identity_is_refused_with_both_digests(endpoint: str, good: Open) -> None:
    other = bytes(range(32))
    with called(endpoint) as one:
        reply = one.open(replace(good, identity=other))
        assert refusal(reply) == (Status.IDENTITY, "open.identity")
        assert isinstance(reply, Refused)
        assert other.hex() in reply.detail
        assert good.identity.hex() in reply.detail
        # The connection may still be opened with what is served.
        assert isinstance(one.open(good), OpenReply)


def layer_with(message: Open, index: int, **values: int) -> Open:
    layers = list(message.layers)
    layers[index] = replace(layers[index], **values)
    return replace(message, layers=tuple(layers))


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        (lambda m: replace(m, columns=128), Status.SHAPE, "open.columns"),
        (lambda m: replace(m, scales=4), Status.SHAPE, "open.scales"),
        (lambda m: replace(m, ranks=4), Status.SHAPE, "open.ranks"),
        (lambda m: replace(m, rank=1), Status.NO_TABLE, "open_layer[0].layer"),
        (lambda m: layer_with(m, 1, layer=15), Status.NO_TABLE, "open_layer[1].layer"),
        (lambda m: layer_with(m, 1, row_end=5), Status.SHAPE, "open_layer[1].row_start"),
        (lambda m: layer_with(m, 0, row_start=1), Status.SHAPE, "open_layer[0].row_start"),
        (lambda m: replace(m, batch_rows_max=8193), Status.LIMIT, "open.batch_rows_max"),
    ],
)
def test_an_open_that_does_not_fit_names_its_field(
    made: TinyCheckpoint,
    endpoint: str,
    good: Open,
    change: Callable[[Open], Open],
    status: Status,
    field: str,
) -> None:
    with called(endpoint) as one:
        assert refusal(one.open(change(good))) == (status, field)
        one.opened = good
        assert refusal(one.lookup(lookup_of({0: [1]}))) == (Status.NOT_OPEN, "header.op")
    still_serves(made, endpoint, good)


def test_an_open_says_what_the_server_takes(endpoint: str, good: Open) -> None:
    with called(endpoint) as one:
        reply = one.open(good)
        assert isinstance(reply, OpenReply)
        assert (reply.batch_rows_max, reply.calls_max) == (LIMITS.batch_rows_max, LIMITS.calls_max)
        assert refusal(one.open(good)) == (Status.BAD_MESSAGE, "header.op")
        assert isinstance(one.lookup(lookup_of({0: [1]})), LookupReply)


def test_layers_may_be_opened_in_any_number_and_order(
    made: TinyCheckpoint, endpoint: str, good: Open
) -> None:
    with called(endpoint, replace(good, layers=good.layers[::-1])) as one:
        assert np.array_equal(one.rows([5], layer=0)[0], made.expected(14, [5])[0])
        assert np.array_equal(one.rows([5], layer=1)[0], made.expected(1, [5])[0])
    with called(endpoint, replace(good, layers=good.layers[1:])) as one:
        assert np.array_equal(one.rows([5], layer=0)[0], made.expected(14, [5])[0])
        assert refusal(one.lookup(lookup_of({1: [5]}))) == (Status.NO_TABLE, "lookup_part[0].layer")


def test_nothing_is_looked_up_before_an_open(endpoint: str, good: Open) -> None:
    with called(endpoint) as one:
        one.opened = good  # of the decoder alone
        assert refusal(one.lookup(lookup_of({0: [1]}))) == (Status.NOT_OPEN, "header.op")


@pytest.mark.parametrize("count", [1, 300, 1024, 5000, 8000])
@pytest.mark.parametrize("part", [0, 1])
def test_an_id_that_is_no_row_is_refused_with_its_first_position(
    made: TinyCheckpoint, endpoint: str, good: Open, count: int, part: int
) -> None:
    """Whether the receiver gathers or several threads do, and wherever in the batch it stands."""
    layer = good.layers[part]
    with called(endpoint, replace(good, batch_rows_max=8192)) as one:
        for bad in (layer.row_end, NO_ROW - 1, 1 << 31):
            places = sorted({0, count // 2, count - 1})
            for at in places:
                ids = np.full(count, layer.row_start, np.uint32)
                ids[[place for place in places if place >= at]] = bad
                asked: dict[int, ArrayLike] = {part: ids} if part == 0 else {0: [1, 2], 1: ids}
                reply = one.lookup(lookup_of(asked))
                assert refusal(reply) == (Status.BAD_ID, f"lookup_part[{part}].ids")
                assert isinstance(reply, Refused)
                assert f"{bad} at position {at} " in reply.detail
    still_serves(made, endpoint, good)


def test_a_reply_that_the_call_does_not_take_is_refused(
    made: TinyCheckpoint, endpoint: str, good: Open
) -> None:
    with called(endpoint, good) as one:
        for count in (8, 2000):
            assert refusal(one.lookup(lookup_of({0: [1] * count}), room=1024)) == (
                Status.LIMIT,
                "lookup_part.ids",
            )
    still_serves(made, endpoint, good)


def test_more_unanswered_lookups_than_allowed_are_refused(made: TinyCheckpoint, tables: Path) -> None:
    """The transport lets one call more through than lookups may be open; all of them are answered or refused."""
    limits = replace(LIMITS, calls_max=1, gather_threads=1, reply_buffers=1)
    with served(tables, limits=limits) as one_server:
        message = one_server.open_message(0, 8192)
        for endpoint in one_server.endpoints.values():
            with called(endpoint, message) as one:
                seen: set[object] = set()
                patience = soon()  # that the second comes before the first is answered is up to the scheduler
                while len(seen) < 2 and time.monotonic_ns() < patience:
                    pairs = []
                    for number in (1, 2):
                        lookup, envelope = lookup_of({0: [number] * 8000}), Envelope(Op.LOOKUP, number)
                        sequence = one.client.submit(encode_request(envelope, lookup), deadline_ns=soon())
                        pairs.append((sequence, envelope, lookup))
                    for sequence, envelope, lookup in pairs:
                        body = one.client.wait(sequence, deadline_ns=soon())
                        reply = decode_reply(body, envelope, lookup, message)
                        seen.add(refusal(reply) if isinstance(reply, Refused) else "rows")
                        if isinstance(reply, LookupReply):
                            values = one.arrays(reply)[0][0]
                            assert np.array_equal(values[:1], made.expected(1, [envelope.batch])[0])
            assert seen == {"rows", (Status.LIMIT, "header.op")}


# --- bytes of all kinds: the server's C++ and the Python codec must say the same ---


def requests(good: Open) -> list[bytes]:
    """Messages to damage: an OPEN of two layers, LOOKUPs, a STATS."""
    messages: list[tuple[Op, Open | Lookup | Stats]] = [
        (Op.OPEN, good),
        (Op.LOOKUP, lookup_of({0: [1, 2, NO_ROW, 3], 1: [4]}, LookupFlag.CHECKSUM)),
        (Op.LOOKUP, lookup_of({1: []})),
        (Op.STATS, Stats()),
    ]
    return [b"".join(encode_request(Envelope(op, 77 + at), one)) for at, (op, one) in enumerate(messages)]


def damages(wire: bytes, random_: random.Random) -> bytes:
    data = bytearray(wire)
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        kind = random_.randrange(5)
        at = random_.randrange(len(data)) if data else 0
        if kind == 0 and data:
            data[at] ^= 1 << random_.randrange(8)
        elif kind == 1 and data:
            data[at] = random_.choice((0, 1, 2, 0x3F, 0x40, 0x41, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data += random_.randbytes(random_.choice((1, 4, 8, 24)))
        elif data:
            at -= at % 4
            data[at : at + 4] = random_.choice((0, 1, 63, 64, 65, 0xFFFF, 1 << 24, (1 << 32) - 1)).to_bytes(
                4, "little"
            )
    if len(data) >= HEADER.size and random_.random() < 0.6:
        at = HEADER.offsets["body_bytes"]
        data[at : at + 4] = (len(data) - HEADER.size).to_bytes(4, "little")
    return bytes(data)


def expected_fault(data: bytes) -> tuple[Status, str] | None:
    """What the Python codec says of a request."""
    try:
        decode_request(data)
    except ContractError as error:
        return (Status.VERSION if error.field == "header.version" else Status.BAD_MESSAGE), error.field
    return None


@pytest.mark.parametrize("seed", range(6))
def test_hostile_bytes_are_refused_by_the_field_that_the_codec_names(
    made: TinyCheckpoint, endpoint: str, good: Open, seed: int
) -> None:
    random_ = random.Random(seed)
    originals = requests(good)
    faults = 0
    with called(endpoint, good) as one:
        for _ in range(500):
            original = random_.choice(originals)
            data = (
                damages(original, random_)
                if random_.random() < 0.95
                else random_.randbytes(random_.randrange(99))
            )
            body = one.client.call([data], deadline_ns=soon())
            fault = expected_fault(data)
            head = HEADER.unpack(body)
            assert head["kind"] == Kind.REPLY
            if fault is None:
                continue  # a message; other tests say what becomes of those
            faults += 1
            envelope, request = decode_request(originals[0])
            readable = replace(envelope, op=Op(head["op"]), batch=head["batch"])
            assert refusal(decode_reply(body, readable, request)) == fault, data.hex()
    assert faults > 200
    still_serves(made, endpoint, good)


def test_a_count_of_ids_beyond_all_bounds_is_refused_and_costs_nothing(endpoint: str, good: Open) -> None:
    body = (
        LOOKUP.pack_row(0, 2)
        + LOOKUP_PART.pack_row(0, (1 << 32) - 1)
        + LOOKUP_PART.pack_row(1, (1 << 32) - 1)
    )
    head = HEADER.pack_row(0x4D524745, 1, Op.LOOKUP, 0, 0, 5, len(body))
    with called(endpoint, good) as one:
        reply = decode_reply(
            one.client.call([head, body], deadline_ns=soon()),
            Envelope(Op.LOOKUP, 5),
            lookup_of({0: []}),
            good,
        )
        assert refusal(reply) == (Status.BAD_MESSAGE, "lookup_part.ids")


def test_clients_that_break_off_at_any_point_leave_the_server_serving(
    made: TinyCheckpoint, server: Served, endpoint: str, good: Open
) -> None:
    for number in range(60):
        client = connect(
            endpoint,
            service=SERVICE,
            version_min=1,
            version_max=1,
            max_frame_bytes=1 << 24,
            deadline_ns=soon(),
        )
        if number % 3:
            client.call(encode_request(Envelope(Op.OPEN, 1), good), deadline_ns=soon())
        if number % 3 == 2:
            for batch in (2, 3):
                lookup = lookup_of({0: np.full(4000, 3)})
                client.submit(encode_request(Envelope(Op.LOOKUP, batch), lookup), deadline_ns=soon())
        client.close()
    still_serves(made, endpoint, good)
    assert server.thread.is_alive()


def test_many_clients_at_once_get_their_own_rows(made: TinyCheckpoint, server: Served, good: Open) -> None:
    failures: list[str] = []

    def client(number: int) -> None:
        random_ = np.random.default_rng(number)
        start, end = good.layers[0].row_start, good.layers[0].row_end
        with called(server.endpoints[WIRES[number % 2]], replace(good, batch_rows_max=8192)) as one:
            for turn in range(40):
                ids = random_.integers(start, end, (1, 24, 288, 3000)[(turn + number) % 4])
                values, scales = one.rows(ids)
                expected_values, expected_scales = made.expected(1, ids)
                if not (np.array_equal(values, expected_values) and np.array_equal(scales, expected_scales)):
                    failures.append(f"client {number} turn {turn}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_counters_count_what_happened(tables: Path) -> None:
    with served(tables, limits=LIMITS) as one_server:
        message = one_server.open_message(0, 8192)
        with called(one_server.endpoints["tcp"], message) as one:
            one.rows([1, 2, NO_ROW])
            one.rows([3] * 5000)
            assert isinstance(one.lookup(lookup_of({0: [message.layers[0].row_end]})), Refused)
            assert isinstance(one.open(replace(message, identity=bytes(32))), Refused)
            counted = one_server.server.counters()
        with called(one_server.endpoints["shm"]) as two:
            assert isinstance(two.open(replace(message, identity=bytes(32))), Refused)
            figures = two.stats().text
    expected = {"opens": 1, "lookups": 2, "lookups_inline": 1, "rows": 5003, "rows_absent": 1}
    expected |= {"connections": 1, "refused_bad_id": 1, "refused_bad_message": 1, "refused_identity": 0}
    assert {name: counted[name] for name in expected} == expected
    assert counted["bytes"] == (64 + 768 + 64) + (64 + 5000 * 256 + 5000 * 8)
    assert counted["gather_ns"] > 0
    assert '"refused_identity":1,' in figures


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gather_threads": 0}, "gather_threads"),
        ({"connections_max": 0}, "connections_max"),
        ({"batch_rows_max": 0}, "batch_rows_max"),
        ({"batch_rows_max": BATCH_ROWS_MAX}, "batch_rows_max"),
        ({"calls_max": 256}, "calls_max"),
        ({"reply_buffers": 0}, "reply_buffers"),
        ({"spin_ns": -1}, "spin_ns"),
    ],
)
def test_limits_that_cannot_be_kept_are_named(tables: Path, change: dict[str, int], field: str) -> None:
    with pytest.raises(native.InvalidError, match=field):
        TableServer(read_manifest(tables), replace(LIMITS, **change))


def test_a_key_decides_who_may_ask(tables: Path, tmp_path: Path) -> None:
    keys = []
    for name in ("ours", "other"):
        keys.append(tmp_path / name)
        keys[-1].write_bytes(name.encode() * 16)
        keys[-1].chmod(0o600)
    with served(tables, limits=LIMITS, key_file=keys[0]) as one_server:
        message = one_server.open_message(0, 4096)
        for endpoint in one_server.endpoints.values():
            with called(endpoint, message, key_file=keys[0]) as one:
                assert one.client.peer.authenticated
            with pytest.raises(ConnectionError), called(endpoint, message):
                pass
            with pytest.raises(ConnectionError), called(endpoint, message, key_file=keys[1]):
                pass
