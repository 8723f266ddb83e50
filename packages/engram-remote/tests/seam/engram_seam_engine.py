"""What of an engine matters here: both layers of one rank, ours over the real client beside stock's with the whole
table.
"""

from collections.abc import Callable
from typing import Any

import torch
from engram_remote.vllm_seam.embedding import remote_class
from engram_remote.vllm_seam.reader import open_client
from engram_remote.vllm_seam.tables import RemoteTables
from engram_seam_pairs import Pairs, settings_for
from engram_seam_server import until
from ofl.contract.engram_v1.layout import REPLY_HEAD_BYTES, plane_bytes

POISON = 0xA5


class Engine:
    """endpoint: of the server.  more: settings, by the variable's last part."""

    def __init__(self, pair: Pairs, endpoint: str, exchange: Callable[[Any], Any], **more: str) -> None:
        self.pair = pair
        given = {"TIMEOUT_MS": "1000", "RETRY_MS": "20", "RETRY_MAX_MS": "50", "REQUIRED": "1"} | more
        settings = settings_for(pair.folder, endpoint=endpoint, **given)
        pair.kind = remote_class(
            pair.stock.ParallelEngramEmbedding, settings, pair.place, open_client, exchange
        )
        self.layers = {layer: (pair.stocks(layer), pair.ours(layer)) for layer in (1, 14)}
        self.tables: RemoteTables = self.layers[1][1].remote_tables
        self.seed = 0

    def compare(self, rounds: int) -> dict[str, int]:
        """So many lookups of each layer, each equal to stock's; how much each counter rose."""
        before = self.counters()
        for _ in range(rounds):
            for layer in self.layers:
                self.seed += 1
                self.same(layer, 1 + self.seed * 5 % 24)
        return self.rose(before)

    def same(self, layer: int, tokens: int, *, packed: bool = False) -> None:
        """One lookup; two of its ids lie outside every table."""
        stocks, ours = self.layers[layer]
        indices = self.pair.ids(layer, tokens, seed=self.seed)
        indices[0, -1] = -1 if self.seed % 2 else 2**31 - 1
        expected, found = (self.pair.out(ours, tokens, packed) for _ in range(2))
        self.poison(layer, tokens)
        stocks.lookup(indices, expected)
        ours.lookup(indices, found)
        assert torch.equal(expected.view(torch.uint8), found.view(torch.uint8)), (
            f"layer {layer}, {tokens} tokens"
        )

    def poison(self, layer: int, tokens: int) -> None:
        """Of the staging, what so many tokens will use.  No lookup may be under way."""
        ours = self.layers[layer][1]
        rows = tokens * ours.part_n_hash_cols
        size = REPLY_HEAD_BYTES + plane_bytes(rows, ours.dim) + plane_bytes(rows, ours.dim // 32)
        ours._feed.staging.tensor[:size].fill_(POISON)

    def counters(self) -> dict[str, int]:
        return self.tables.reader.counters()

    def rose(self, before: dict[str, int]) -> dict[str, int]:
        return {name: value - before[name] for name, value in self.counters().items()}

    def reconnected(self) -> None:
        until(lambda: self.tables.reader.connected()[0], "a connection")
