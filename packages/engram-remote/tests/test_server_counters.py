"""What the server counts and when it says that it is shutting down."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engram_client_tools import until
from engram_remote.server.service import ServerLimits
from engram_service import Served, built, called, lookup_of, served, soon
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1 import (
    Envelope,
    Op,
    OpenReply,
    Refused,
    Status,
    encode_request,
)
from ofl.contract.engram_v1.layout import HEADER

ROWS = 40_000
"""Of a lookup whose reply, 10 MB, no socket and no ring holds: it stays with the server until its client takes it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=500)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture
def server(tables: Path) -> Iterator[Served]:
    limits = ServerLimits(gather_threads=1, batch_rows_max=ROWS, reply_buffers=1, calls_max=4)
    with served(tables, limits=limits) as one:
        yield one


def counted(server: Served) -> dict[str, int]:
    return server.server.counters()


def test_lookups_that_wait_and_replies_that_nobody_takes_are_counted(server: Served) -> None:
    message = server.open_message(0, ROWS)
    with called(server.endpoints["tcp"], message) as one:
        lookup = lookup_of({0: np.zeros(ROWS)})
        for number in range(3):
            wire = encode_request(Envelope(Op.LOOKUP, 1 + number), lookup)
            one.client.submit(wire, deadline_ns=soon())
        until(lambda: counted(server)["lookups_waited"] >= 1, "a lookup without a buffer")
        assert 1 <= counted(server)["queue_max"] <= 3
        assert (counted(server)["connections_open"], counted(server)["replies_lost"]) == (1, 0)
    until(lambda: counted(server)["replies_lost"] >= 1, "a reply without a client")
    until(lambda: counted(server)["connections_open"] == 0, "the end of the connection")
    with called(server.endpoints["shm"], message) as two:
        two.rows([1])
        two.stats()
        found = counted(server)
    assert (found["connections"], found["opens"], found["stats"]) == (2, 2, 1)


def test_every_refusal_is_counted_by_its_status(server: Served) -> None:
    good = server.open_message(0, ROWS)
    with called(server.endpoints["tcp"]) as one:
        one.opened = good  # of the decoder alone
        one.lookup(lookup_of({0: [1]}))  # NOT_OPEN
        one.open(replace(good, identity=bytes(32)))  # IDENTITY
        other = replace(good.layers[0], layer=15)
        one.open(replace(good, layers=(other,)))  # NO_TABLE
        one.open(replace(good, columns=128))  # SHAPE
        one.open(replace(good, batch_rows_max=ROWS + 1))  # LIMIT
        assert isinstance(one.open(good), OpenReply)
        one.lookup(lookup_of({0: [good.layers[0].row_end]}))  # BAD_ID
        for field in ("magic", "version"):  # BAD_MESSAGE, VERSION
            wire = bytearray(b"".join(encode_request(Envelope(Op.LOOKUP, 1), lookup_of({0: [1]}))))
            wire[HEADER.offsets[field]] ^= 0x80
            one.client.call([bytes(wire)], deadline_ns=soon())
        found = {name: value for name, value in counted(server).items() if name.startswith("refused_")}
    assert found.pop("refused_draining") == 0
    assert set(found.values()) == {1}, found
    assert set(found) == {f"refused_{one.name.lower()}" for one in Status} - {
        "refused_ok",
        "refused_draining",
    }


def test_a_lookup_that_comes_after_the_stop_is_refused_as_draining(server: Served) -> None:
    """The reply of another, which its client has not taken, keeps the server from its end."""
    message = server.open_message(0, ROWS)
    with called(server.endpoints["tcp"], message) as one, called(server.endpoints["shm"], message) as two:
        for number in range(2):
            wire = encode_request(Envelope(Op.LOOKUP, 1 + number), lookup_of({0: np.zeros(ROWS)}))
            one.client.submit(wire, deadline_ns=soon())
        until(lambda: counted(server)["lookups_waited"] == 1, "a lookup behind a reply that was not taken")
        server.server.stop()
        reply = two.lookup(lookup_of({0: [1]}))
        assert isinstance(reply, Refused)
        assert (reply.status, reply.field) == (Status.DRAINING, "header.op")
        assert counted(server)["refused_draining"] == 1
