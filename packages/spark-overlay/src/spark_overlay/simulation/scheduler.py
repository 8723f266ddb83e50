"""A scheduler in miniature, after vLLM's: a token budget for each step, chunked prefill, first come first served,
preemption of the latest when KV blocks run short, prefix-cache hits on block boundaries.

Owns which request runs, in which slot, with which blocks.  Must never look at drafts beyond their number.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from spark_overlay.simulation.requests import SimulatedRequest


@dataclass(frozen=True)
class Load:
    """The engine's size.  batched_tokens: of one step, at most.  cached_blocks: that the prefix cache remembers."""

    max_requests: int = 4
    batched_tokens: int = 40
    block_tokens: int = 8
    kv_blocks: int = 28
    cached_blocks: int = 64


@dataclass(frozen=True)
class Scheduled:
    """One request of a step: positions request.computed .. + n_tokens - 1, the last n_drafts of them drafts."""

    request: SimulatedRequest
    n_tokens: int
    n_drafts: int


class RequestStates:
    """Slots by request, as the model runner keeps them; the real seam counts additions by wrapping `add_request`."""

    def __init__(self, slots: int) -> None:
        self.req_id_to_index: dict[str, int] = {}
        self.free = list(range(slots))

    def add_request(self, req_id: str) -> None:
        """Give the request the slot that was freed last."""
        self.req_id_to_index[req_id] = self.free.pop()

    def remove_request(self, req_id: str) -> None:
        """Free its slot."""
        self.free.append(self.req_id_to_index.pop(req_id))


@dataclass
class CachedBlock:
    """What a block of the prefix cache holds, position by position."""

    rows: list[bytes]
    digests: list[bytes]


class PrefixCache:
    """Blocks by the target's state after them, which names all tokens before it; the oldest ones go first."""

    def __init__(self, load: Load, window: int) -> None:
        self._load, self._window = load, window
        self._blocks: OrderedDict[bytes, CachedBlock] = OrderedDict()

    def keep(self, request: SimulatedRequest) -> None:
        """Remember the request's whole blocks."""
        size = self._load.block_tokens
        for start in range(0, request.computed - size + 1, size):
            end = start + size
            kept = CachedBlock(request.rows[start:end], request.digests[start:end])
            self._blocks[request.path[end - 1]] = kept
        while len(self._blocks) > self._load.cached_blocks:
            self._blocks.popitem(last=False)

    def find(self, request: SimulatedRequest) -> list[CachedBlock]:
        """The blocks that the request need not compute; its last token it must.

        Only so many that the local drafter, whose rows the blocks hold too, has its window at their end.
        """
        size, found = self._load.block_tokens, []
        for end in range(size, len(request.tokens), size):
            block = self._blocks.get(request.path[end - 1])
            if block is None:
                break
            found.append(block)
        while found and not self._whole(found):
            found.pop()
        return found

    def _whole(self, found: list[CachedBlock]) -> bool:
        digests = [digest for block in found for digest in block.digests]
        return all(digests[-self._window :] if self._window else digests)


class Scheduler:
    """Requests in the order in which they came; `schedule` says what the next step computes."""

    def __init__(self, load: Load, states: RequestStates, cache: PrefixCache, max_positions: int) -> None:
        self.load, self._states, self._cache = load, states, cache
        self._max_positions = max_positions
        self.waiting: deque[SimulatedRequest] = deque()
        self.running: list[SimulatedRequest] = []
        self.preemptions = 0

    def schedule(self) -> list[Scheduled]:
        """The next step."""
        budget, preempted, step = self.load.batched_tokens, self.preemptions, []
        for request in list(self.running):
            if request not in self.running or not budget:
                continue  # preempted for one before it
            left = self._max_positions - 1 - request.computed
            n_tokens = min(len(request.tokens) + len(request.drafts) - request.computed, left, budget)
            if self._make_room(request, request.computed + n_tokens):
                step.append(self._scheduled(request, n_tokens))
                budget -= n_tokens
        while self.waiting and budget and self._states.free and preempted == self.preemptions:
            request = self.waiting[0]
            found = self._cache.find(request)
            hit = len(found) * self.load.block_tokens
            n_tokens = min(len(request.tokens) - hit, budget)
            if self._blocks(hit + n_tokens) > self.free_blocks:
                break
            self._admit(self.waiting.popleft(), found)
            step.append(self._scheduled(request, n_tokens))
            budget -= n_tokens
        return step

    @property
    def free_blocks(self) -> int:
        """KV blocks that no request has."""
        return self.load.kv_blocks - sum(request.blocks for request in self.running)

    def remove(self, request: SimulatedRequest) -> None:
        """The request is done, or nobody wants it any more."""
        if request in self.running:
            self._release(request)
        else:
            self.waiting.remove(request)

    def _scheduled(self, request: SimulatedRequest, n_tokens: int) -> Scheduled:
        request.blocks = max(request.blocks, self._blocks(request.computed + n_tokens))
        return Scheduled(request, n_tokens, max(0, request.computed + n_tokens - len(request.tokens)))

    def _admit(self, request: SimulatedRequest, found: list[CachedBlock]) -> None:
        self._states.add_request(request.name)
        request.enter(
            self._states.req_id_to_index[request.name],
            [row for block in found for row in block.rows],
            [digest for block in found for digest in block.digests],
        )
        request.blocks = self._blocks(request.computed)
        self.running.append(request)

    def _make_room(self, request: SimulatedRequest, length: int) -> bool:
        """Preempt the latest requests until this one's blocks are there; False where it was the latest itself."""
        while self._blocks(length) - request.blocks > self.free_blocks:
            latest = self.running[-1]
            self._release(latest)
            self.preemptions += 1
            self.waiting.appendleft(latest)
            if latest is request:
                return False
        return True

    def _release(self, request: SimulatedRequest) -> None:
        self._cache.keep(request)
        self.running.remove(request)
        self._states.remove_request(request.name)
        request.leave()

    def _blocks(self, length: int) -> int:
        return -(-length // self.load.block_tokens)
