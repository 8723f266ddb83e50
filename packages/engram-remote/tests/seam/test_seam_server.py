"""With the real client and a server in another process: rows stay stock's while it is killed, frozen and restarted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from engram_remote import native
from engram_remote.vllm_seam.embedding import remote_class
from engram_remote.vllm_seam.reader import open_client
from engram_seam_pairs import Pairs, pairs, settings_for
from engram_seam_readers import HostExchange
from engram_seam_server import ServerProcess, until
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


class Engine:
    """Both layers of a rank, ours beside stock's, over the real client."""

    def __init__(self, pair: Pairs, endpoint: str, exchange: Callable[[Any], Any], **more: str) -> None:
        self.pair = pair
        given = {"TIMEOUT_MS": "1000", "RETRY_MS": "20", "RETRY_MAX_MS": "50", "REQUIRED": "1"} | more
        settings = settings_for(pair.folder, endpoint=endpoint, **given)
        pair.kind = remote_class(
            pair.stock.ParallelEngramEmbedding, settings, pair.place, open_client, exchange
        )
        self.layers = {layer: (pair.stocks(layer), pair.ours(layer)) for layer in (1, 14)}
        self.tables = self.layers[1][1].remote_tables
        self.seed = 0

    def compare(self, rounds: int) -> dict[str, int]:
        """So many lookups of each layer, each equal to stock's; how much each counter rose."""
        before = self.tables.reader.counters()
        for _ in range(rounds):
            for layer, (stocks, ours) in self.layers.items():
                self.seed += 1
                tokens = 1 + self.seed * 5 % 24
                indices = self.pair.ids(layer, tokens, seed=self.seed)
                indices[0, -1] = -1 if self.seed % 2 else 2**31 - 1
                expected, found = (self.pair.out(ours, tokens) for _ in range(2))
                ours._feed.staging.tensor.fill_(0xA5)
                stocks.lookup(indices, expected)
                ours.lookup(indices, found)
                assert torch.equal(expected.view(torch.uint8), found.view(torch.uint8))
        return {name: value - before[name] for name, value in self.tables.reader.counters().items()}

    def reconnected(self) -> None:
        until(lambda: self.tables.reader.connected()[0], "a connection")


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
