"""How long a lookup of one layer keeps a stream busy: remote and local rows, beside stock's kernel on its own tables.

Spans are those of a captured graph with this one lookup, between CUDA events; on a CPU, of the call by the wall clock.
"""

import time
from typing import Any

import numpy as np
import torch

WARM_UP = 20


class Timed:
    """One embedding's lookups of so many tokens."""

    def __init__(self, embedding: Any, ids: Any, out: Any) -> None:
        self._embedding, self._ids, self._out = embedding, ids, out
        self._graph = self._captured() if ids.is_cuda else None

    def spans_us(self, drawn: list[Any]) -> dict[str, float]:
        """Percentiles, in microseconds, over lookups of these ids; the first of them warm up."""
        spans = [self._span(ids) for ids in drawn][WARM_UP:]
        return {
            "count": len(spans),
            "p50": float(np.percentile(spans, 50)),
            "p99": float(np.percentile(spans, 99)),
            "mean": float(np.mean(spans)),
        }

    def _span(self, ids: Any) -> float:
        self._ids.copy_(ids)
        if self._graph is None:
            began = time.perf_counter_ns()
            self._embedding.lookup(self._ids, self._out)
            return (time.perf_counter_ns() - began) / 1e3
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        self._graph.replay()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1e3

    def _captured(self) -> Any:
        self._embedding.lookup(self._ids, self._out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._embedding.lookup(self._ids, self._out)
        return graph


def spans_us(pair: Any, embedding: Any, layer: int, tokens: int, count: int) -> dict[str, float]:
    """Of `count` lookups, each with ids of its own."""
    drawn = [pair.ids(layer, tokens, seed=seed) for seed in range(count + WARM_UP)]
    return Timed(embedding, drawn[0].clone(), pair.out(embedding, tokens)).spans_us(drawn)
