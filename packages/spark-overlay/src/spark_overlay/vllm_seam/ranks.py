"""The ranks of a tensor-parallel engine, as far as drafting remotely concerns them.

Owns the two collectives: rank 0's words to all, on the device, once a round; and short texts from each to all,
through the host, while an engine starts.  Must never be called by some ranks and not by others; a rank that does
not take part is waited for within a bound, and only at the start.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from spark_overlay.vllm_seam.errors import SeamError

if TYPE_CHECKING:
    import torch

START_WAIT_S = 300.0
"""Ranks of one engine reach the same point of its start within seconds; the slowest loads from a cold disk."""
TEXT_BYTES = 2048


class Ranks(Protocol):
    """The ranks that draft together.  rank: ours, 0 .. size-1.  first_here: whether it is the first of its host."""

    rank: int
    size: int
    first_here: bool

    def broadcast(self, words: "torch.Tensor") -> None:
        """Rank 0's words into everybody's, in stream order; nobody waits for it on the host."""

    def gather(self, text: str) -> list[str]:
        """Everybody's text, by rank.  Raises SeamError where a rank does not take part in time."""


class Alone:
    """An engine of one rank: nobody to tell."""

    rank, size, first_here = 0, 1, True

    def broadcast(self, words: "torch.Tensor") -> None:
        """Nothing to do."""

    def gather(self, text: str) -> list[str]:
        """Our own text."""
        return [text]


class TensorParallel:
    """The ranks of vLLM's tensor-parallel group.  group: its GroupCoordinator."""

    def __init__(self, group: Any, wait_s: float = START_WAIT_S) -> None:
        self._group, self._wait_s = group, wait_s
        self.rank: int = group.rank_in_group
        self.size: int = group.world_size
        self.first_here: bool = group.local_rank == 0

    def broadcast(self, words: "torch.Tensor") -> None:
        """See `Ranks`."""
        self._group.broadcast(words, src=0)

    def gather(self, text: str) -> list[str]:
        """See `Ranks`."""
        import torch

        data = text.encode(errors="replace")  # a path's odd bytes must not keep a rank away from the exchange
        assert len(data) <= TEXT_BYTES, "a text of the start is short"
        own = torch.zeros(TEXT_BYTES, dtype=torch.uint8)
        own[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
        all_of_them = [torch.empty_like(own) for _ in range(self.size)]
        try:
            work = torch.distributed.all_gather(all_of_them, own, group=self._group.cpu_group, async_op=True)
            work.wait(timedelta(seconds=self._wait_s))
        except RuntimeError as error:
            raise SeamError(
                f"not every tensor-parallel rank answered within {self._wait_s:g} s: "
                f"is VLLM_DSPARK_REMOTE set alike for all of them? ({error})"
            ) from error
        return [bytes(tensor.numpy()).rstrip(b"\0").decode() for tensor in all_of_them]


def ranks_of(vllm_config: Any) -> Ranks:
    """The ranks of this engine.  Call once vLLM has made its groups: not before `init_device`."""
    if vllm_config.parallel_config.tensor_parallel_size == 1:
        return Alone()
    from vllm.distributed.parallel_state import get_tp_group

    return TensorParallel(get_tp_group())


def check_alike(ranks: Ranks, decisive: Mapping[str, str]) -> None:
    """Raises SeamError on every rank where they differ in what decides their collectives.

    decisive: setting and value.  A rank that ran another policy would leave the others waiting for ever.
    """
    found = [json.loads(text) for text in ranks.gather(json.dumps(decisive, sort_keys=True))]
    names = sorted({name for values in found for name in values})
    differing = [name for name in names if len({values.get(name) for values in found}) > 1]
    if differing:
        shown = "; ".join(f"{name} is {_by_rank(name, found)}" for name in differing)
        raise SeamError(f"the tensor-parallel ranks must be set alike, but {shown}")


def _by_rank(name: str, found: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(f"{values.get(name)!r} on rank {rank}" for rank, values in enumerate(found))
