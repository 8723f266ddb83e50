"""Lookups of both layers captured in CUDA graphs and replayed with changing ids, each output compared with stock's.

On a CPU there are no graphs: the same lookups are called, which rehearses everything but the capture.
"""

from collections.abc import Callable
from typing import Any

import torch
from engram_seam_engine import Engine


class Captured:
    """Both layers' lookups of so many tokens at fixed addresses.

    prefetch: on a stream of their own that the main one waits for, as stock's Engram prefetches from host memory.
    """

    def __init__(self, engine: Engine, tokens: int, *, prefetch: bool) -> None:
        self.engine, self.tokens, self._prefetch = engine, tokens, prefetch
        self.cuda = engine.pair.device.type == "cuda"
        self.ids = {layer: engine.pair.ids(layer, tokens) for layer in engine.layers}
        self.outs = {layer: engine.pair.out(ours, tokens) for layer, (_, ours) in engine.layers.items()}
        self.expected = {layer: torch.empty_like(out) for layer, out in self.outs.items()}
        self._side = torch.cuda.Stream() if self.cuda and prefetch else None
        self._graph = self._capture() if self.cuda else None

    def replay(self, seed: int) -> None:
        """New ids, one replay, and both outputs compared.  Raises AssertionError."""
        self.submit(seed)
        self.check()

    def submit(self, seed: int) -> None:
        """New ids and one replay, on the current stream; does not wait for it."""
        for layer, ids in self.ids.items():
            ids.copy_(self.engine.pair.ids(layer, self.tokens, seed=seed))
            ids[0, -1] = -1 if seed % 2 else 2**31 - 1
            self.outs[layer].view(torch.uint8).fill_(0xA5)
        if self._graph is None:
            self._run()
        else:
            torch.cuda.synchronize()  # no lookup is under way while the staging is poisoned
            for layer in self.ids:
                self.engine.poison(layer, self.tokens)
            self._graph.replay()

    def check(self) -> None:
        """That both outputs are stock's, bit for bit."""
        for layer, (stocks, _) in self.engine.layers.items():
            stocks.lookup(self.ids[layer], self.expected[layer])
            found, expected = self.outs[layer].view(torch.uint8), self.expected[layer].view(torch.uint8)
            assert torch.equal(found, expected), f"layer {layer}, {self.tokens} tokens"

    def _capture(self) -> Any:
        self._run()  # kernels are compiled before a stream is captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        return graph

    def _run(self) -> None:
        if self._side is None:
            for layer, (_, ours) in self.engine.layers.items():
                ours.lookup(self.ids[layer], self.outs[layer], background=self._prefetch)
            return
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            for layer, (_, ours) in self.engine.layers.items():
                ours.lookup(self.ids[layer], self.outs[layer], background=True)
        current.wait_stream(self._side)


def replays(
    engine: Engine, sizes: tuple[int, ...], count: int, at: dict[int, Callable[[], None]]
) -> dict[str, int]:
    """So many replays, of several captured sizes in turn; what `at` names is done before the replay of that number.

    Returns how much each counter rose.
    """
    captured = [Captured(engine, tokens, prefetch=index % 2 == 1) for index, tokens in enumerate(sizes)]
    before = engine.counters()
    for number in range(count):
        at.get(number, _nothing)()
        captured[_size(number, len(sizes))].replay(seed=number)
    return engine.rose(before)


def _size(number: int, sizes: int) -> int:
    """Mostly the first; the others in turn, every tenth."""
    return 0 if number % 10 else (number // 10) % sizes


def _nothing() -> None:
    """Most replays are like the one before."""
