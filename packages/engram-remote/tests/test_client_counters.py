"""What the client counts, to the row and the byte, and each reason for which a server gave none."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from engram_client_tools import Looker, ids_of, options_of, relayed, until
from engram_remote.client import Client
from engram_service import Served, built, reply_bytes, served
from engram_service import lookup_of as lookup_for
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1.layout import HEADER, Status

REFUSALS = [status for status in Status if status is not Status.OK]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=500)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="module")
def server(tables: Path) -> Iterator[Served]:
    with served(tables) as one:
        yield one


def counted(client: Client) -> dict[str, int]:
    """What is not 0."""
    return {name: value for name, value in client.counters().items() if value}


def test_remote_lookups_are_counted_to_the_row_and_the_byte(
    made: TinyCheckpoint, tables: Path, server: Served
) -> None:
    with Client(options_of(tables, server.endpoints["tcp"], required=True)) as client:
        looker = Looker(client, made)
        looker.look([(0, ids_of(made, 1, 7)), (1, np.append(ids_of(made, 14, 5), [-1, -1]))])
        looker.look([(1, ids_of(made, 14, 300))])
        opened = server.open_message()
        asked = (lookup_for({0: [0] * 7, 1: [0] * 7}), lookup_for({1: [0] * 300}))
        assert counted(client) == {
            "lookups_remote": 2,
            "rows_remote": 314,
            "rows_out_of_shard": 2,
            "bytes_remote": sum(reply_bytes(lookup, opened) for lookup in asked),
            "opens": 1,
        }
        assert client.latency("remote").count == 2
        assert client.latency("local").count == 0


def test_local_lookups_are_counted_to_the_row(made: TinyCheckpoint, tables: Path) -> None:
    with Client(options_of(tables)) as client:
        looker = Looker(client, made)
        looker.look([(0, ids_of(made, 1, 7)), (1, np.append(ids_of(made, 14, 5), [-1]))])
        looker.look([(0, [])])
        assert counted(client) == {
            "lookups_local": 2,
            "rows_local": 13,
            "rows_out_of_shard": 1,
            "fallbacks_no_server": 2,
        }
        spans = client.latency("local")
        assert spans.count == sum(count for _, count in spans.buckets) == 2
        assert spans.sum_ns >= spans.min_ns + spans.max_ns - 1


def test_a_server_that_nobody_reaches_is_counted_at_every_attempt(made: TinyCheckpoint, tables: Path) -> None:
    with Client(options_of(tables, "tcp://127.0.0.1:1")) as client:
        until(lambda: client.counters()["connects_failed"] >= 3, "the third attempt")
        assert Looker(client, made).look([(0, ids_of(made, 1, 9))]).reason == "not_connected"
        counters = client.counters()
        assert (counters["fallbacks_not_connected"], counters["rows_local"]) == (1, 9)
        assert counters["opens"] == counters["opens_refused"] == counters["connections_ended"] == 0


@pytest.mark.parametrize("status", REFUSALS)
def test_every_status_has_its_reason(
    made: TinyCheckpoint, tables: Path, server: Served, status: Status
) -> None:
    def refusal(body: bytearray) -> bytearray:
        said = b"\x09\x00\x04\x00\x00\x00\x00\x00" + b"header.op" + b"busy"
        head = bytearray(body[: HEADER.size])
        head[HEADER.offsets["status"]] = status
        at = HEADER.offsets["body_bytes"]
        head[at : at + 4] = len(said).to_bytes(4, "little")
        return head + said

    with (
        relayed("tcp", server.endpoints["tcp"]) as relay,
        Client(options_of(tables, relay.endpoint, required=True)) as client,
    ):
        relay.change = refusal
        result = Looker(client, made).look([(0, ids_of(made, 1, 3))])
        reason = f"refused_{status.name.lower()}"
        assert (result.outcome, result.reason) == ("local", reason)
        counters = client.counters()
        kept = status is Status.LIMIT  # the server has no room now, and is as good as before
        assert (counters[f"fallbacks_{reason}"], counters["connections_ended"]) == (1, 0 if kept else 1)


@pytest.mark.parametrize("wire", ["tcp", "shm"])
def test_a_connection_that_ends_under_a_lookup_is_lost_and_made_good(
    made: TinyCheckpoint, tables: Path, server: Served, wire: str
) -> None:
    def gone(body: bytearray) -> bytearray:
        relay.leave()
        return body

    with (
        relayed(wire, server.endpoints[wire]) as relay,
        Client(options_of(tables, relay.endpoint, required=True)) as client,
    ):
        relay.change = gone
        result = Looker(client, made).look([(0, ids_of(made, 1, 288))])
        assert (result.outcome, result.reason) == ("local", "lost")
        counters = client.counters()
        assert (counters["fallbacks_lost"], counters["connections_ended"]) == (1, 1)
        assert counters["lookups_failed"] == 0
