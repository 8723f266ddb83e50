"""With the real client and a server in another process: rows stay stock's while it is killed, frozen and restarted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from engram_remote import native
from engram_seam_engine import Engine
from engram_seam_pairs import Pairs, pairs
from engram_seam_readers import HostExchange
from engram_seam_server import ServerProcess
from engram_seam_stock import releases

NEWEST = sorted(releases())[-1]
try:
    native.loaded()
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered in multiply:RuntimeWarning"),
]


@pytest.fixture
def pair(stocks: dict[str, ModuleType], tmp_path: Path) -> Pairs:
    return pairs(stocks[NEWEST], tmp_path, 1)


@pytest.fixture
def server(pair: Pairs) -> Iterator[ServerProcess]:
    made = ServerProcess(pair.folder)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("exchange", [lambda device: None, HostExchange], ids=["waits", "hands over"])
def test_rows_are_stocks_while_the_server_is_killed_frozen_and_restarted(
    pair: Pairs, server: ServerProcess, exchange: Callable[[Any], Any]
) -> None:
    engine = Engine(pair, server.endpoint, exchange)
    try:
        rose = engine.compare(4)
        assert (rose["lookups_remote"], rose["lookups_local"]) == (8, 0)

        server.kill()
        rose = engine.compare(2)
        assert rose["lookups_local"] >= 3, "one may have been answered before the kill was seen"
        server.start()
        engine.reconnected()
        assert engine.compare(2)["lookups_remote"] == 4

        server.freeze()
        rose = engine.compare(2)
        assert rose["lookups_local"] == 4
        server.thaw()
        engine.reconnected()
        assert engine.compare(2)["lookups_remote"] == 4
        assert engine.tables.reader.counters()["lookups_failed"] == 0
    finally:
        engine.tables.close()


def test_with_checksums_and_a_bounce_buffer_rows_are_stocks(pair: Pairs, server: ServerProcess) -> None:
    checksum = {} if native.missing("checksum") else {"CHECKSUM": "1"}
    engine = Engine(pair, server.endpoint, HostExchange, BOUNCE="1", BUFFERED="1", PREAD="1", **checksum)
    try:
        assert engine.compare(2)["lookups_remote"] == 4
    finally:
        engine.tables.close()


def test_an_engine_that_requires_its_server_does_not_start_without_it(pair: Pairs) -> None:
    with pytest.raises(native.EngramError):
        Engine(pair, "tcp://127.0.0.1:1", HostExchange)


def test_an_engine_that_does_not_require_it_starts_on_its_shards(pair: Pairs) -> None:
    engine = Engine(pair, "tcp://127.0.0.1:1", HostExchange, REQUIRED="0")
    try:
        rose = engine.compare(2)
        assert (rose["lookups_remote"], rose["lookups_local"]) == (0, 4)
    finally:
        engine.tables.close()


def test_tables_of_another_identity_are_refused_with_both_digests(
    pair: Pairs, stocks: dict[str, ModuleType], tmp_path: Path
) -> None:
    other = pairs(stocks[NEWEST], tmp_path / "other", 1, model={"layers": (1, 14), "heads": 5})
    made = ServerProcess(other.folder)
    made.start()
    try:
        with pytest.raises(native.RefusedError, match="identity"):
            Engine(pair, made.endpoint, HostExchange)
    finally:
        made.stop()
