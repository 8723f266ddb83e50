"""Two tensor-parallel ranks in miniature: what the seam does in a step, without torch.

Owns the twin of `vllm_seam.step` and `vllm_seam.policies`: the same order of calls, the same single broadcast a round
and the same rule that all ranks act on rank 0's words alone.  What is product code here: the drafter, the words
(`decision`), the ledger of acceptance and the count of additions.

The ranks run one after the other in one thread, so a collective that another rank does not join would block for ever
on a real engine; here it is an assertion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_overlay.decision import Decision, DecisionLayout
from spark_overlay.interface import Drafter, LocalDrafts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.simulation.local import LocalDrafter
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.vllm_seam.acceptance import AcceptanceLedger
from spark_overlay.vllm_seam.additions import Additions

Drafts = NDArray[np.int64]
"""[requests, K], zeros where there is none."""


class RoundRaisedError(Exception):
    """ON_FAIL=raise and a round failed: the engine ends."""


class SeamError(Exception):
    """What the simulation lets go wrong on rank 0 before the round."""


@dataclass(frozen=True)
class Entry:
    """One request of a step, as the gather tells it.

    start: its first position in this step.  first_position, n_rows, row_offset: of the rows that are given.
    n_drafts: verified in this step.  n_sampled: tokens that came out, 0 while the prompt is read.  wanted: drafts that
    the engine will verify next, at most.
    """

    request: SimulatedRequest
    slot: int
    start: int
    first_position: int
    n_rows: int
    row_offset: int
    anchor: int
    n_drafts: int
    n_sampled: int
    wanted: int

    @property
    def anchor_position(self) -> int:
        """One past the last valid row."""
        return self.first_position + self.n_rows


@dataclass(frozen=True)
class Step:
    """One engine step after the target ran.  rows: row i at i * row_bytes, invalid ones among them."""

    entries: Sequence[Entry]
    rows: bytes


@dataclass
class Group:
    """The collectives of one step.  log: what each rank joined, in order."""

    words: NDArray[np.int32] | None = None
    log: dict[int, list[str]] = field(default_factory=dict)

    def begin(self) -> None:
        """A new step."""
        self.words = None
        self.log.clear()

    def join(self, rank: int, name: str) -> None:
        """A rank joins a collective."""
        self.log.setdefault(rank, []).append(name)

    def broadcast(self, rank: int, words: NDArray[np.int32] | None) -> NDArray[np.int32]:
        """Rank 0's words to all."""
        self.join(rank, "broadcast")
        if words is not None:
            self.words = words.copy()
        assert self.words is not None, f"rank {rank} waits for words that rank 0 never sends"
        return self.words

    def check(self) -> None:
        """Raises AssertionError where the ranks joined different collectives: one would wait for ever."""
        assert len(set(map(tuple, self.log.values()))) <= 1, (
            f"the ranks joined different collectives: {self.log}"
        )


@dataclass(frozen=True)
class PolicyTwin:
    """What every rank knows of the settings.

    uses_remote: of a shadow; True elsewhere.  raises: ON_FAIL=raise.  tells_additions: rank 0 can tell a request that
    was added again.
    """

    name: str
    uses_remote: bool
    raises: bool
    tells_additions: bool = True


class Rank:
    """One rank.  local: its local drafter, None in capacity."""

    def __init__(
        self,
        number: int,
        group: Group,
        layout: DecisionLayout,
        local: LocalDrafter | None,
        policy: PolicyTwin,
    ) -> None:
        self.number, self.group, self.layout, self.local = number, group, layout, local
        self.policy = policy

    def propose(self, step: Step) -> Drafts:
        """The step's drafts.  Raises RoundRaisedError where the operator asked for that."""
        if self.policy.name == "resilience":
            self._keep_context(step)
        decision = self.run_round(step)
        if self.policy.raises and decision.must_raise:
            raise RoundRaisedError(decision.reason)
        if self.policy.name == "capacity":
            return decision.drafts.astype(np.int64)
        if self.policy.name == "resilience" and not decision.without.any():
            return decision.drafts.astype(np.int64)
        local = self._draft_locally(step)
        self.tell_local(step, local, decision)
        if self.policy.name == "shadow" and not self.policy.uses_remote:
            return local
        return np.where(decision.ok[:, None], decision.drafts, local)

    def run_round(self, step: Step) -> Decision:
        """What rank 0 says of the round."""
        return self.layout.decode(self.group.broadcast(self.number, None))

    def tell_local(self, step: Step, local: Drafts, decision: Decision) -> None:
        """Rank 0 alone keeps figures."""

    def _keep_context(self, step: Step) -> None:
        assert self.local is not None, "resilience keeps the local drafter"
        self.group.join(self.number, "context")
        self.local.keep(step.entries)

    def _draft_locally(self, step: Step) -> Drafts:
        assert self.local is not None, "only capacity has no local drafter"
        self.group.join(self.number, "proposal")
        self.local.keep(step.entries)
        return self.local.draft(step.entries)


class Leader(Rank):
    """Rank 0, which alone has the remote drafter.

    fail_next: raises SeamError before the round, once.
    """

    def __init__(
        self,
        group: Group,
        layout: DecisionLayout,
        local: LocalDrafter | None,
        policy: PolicyTwin,
        drafter: Drafter,
        additions: Additions,
        max_positions: int,
    ) -> None:
        super().__init__(0, group, layout, local, policy)
        self.drafter, self._additions = drafter, additions
        self._max_positions = max_positions
        self._seen: dict[int, int] = {}
        self._ledger = AcceptanceLedger()
        self._words = np.zeros(layout.words, np.int32)
        self._number = 0
        self.fail_next = False
        self._led: tuple[Sequence[RoundRequest], RoundResult] | None = None

    @property
    def led(self) -> tuple[Sequence[RoundRequest], RoundResult]:
        """The requests and the result of the last round; no requests where it could not be begun."""
        assert self._led is not None, "a round came before"
        return self._led

    def run_round(self, step: Step) -> Decision:
        """The round, and its broadcast whatever came of it."""
        try:
            requests, result = self._round(step)
        except SeamError as error:
            self._ledger.forget()
            requests, result = (), self.drafter.abort(len(step.entries), error)
        self._led = requests, result
        self._number += 1
        must_raise = self.drafter.must_raise(result)
        self.layout.encode(self._words, self._number, result, must_raise=must_raise)
        return self.layout.decode(self.group.broadcast(0, self._words))

    def tell_local(self, step: Step, local: Drafts, decision: Decision) -> None:
        """What local drafts were compared with, or stood in for."""
        if self.policy.name == "shadow":
            self.drafter.record_local(LocalDrafts(local, float("nan")), *self.led)
        else:
            self.drafter.record_local_fallback(int(decision.without.sum()))

    def _round(self, step: Step) -> tuple[Sequence[RoundRequest], RoundResult]:
        lives = [(entry.request.name, self._additions[entry.slot]) for entry in step.entries]
        if self.fail_next:
            self.fail_next = False
            raise SeamError("as the simulation asks")
        for entry, life in zip(step.entries, lives, strict=True):
            verified = self._ledger.take(entry.slot, life, entry.n_drafts, entry.n_sampled)
            if verified is not None:
                self.drafter.record_acceptance(verified.accepted, verified.drafted, verified.position)
        requests = [self._describe(entry, life[1]) for entry, life in zip(step.entries, lives, strict=True)]
        result = self.drafter.round(requests, step.rows)
        if self.policy.uses_remote:
            self._ledger.put(requests, lives, result)
        return requests, result

    def _describe(self, entry: Entry, addition: int) -> RoundRequest:
        room, cap = self._max_positions - 1 - entry.anchor_position, self.drafter.depth_max
        wanted = entry.wanted if cap is None else min(entry.wanted, cap)
        n_out = max(0, min(wanted, room)) if entry.n_sampled else 0
        added = self.policy.tells_additions and self._seen.get(entry.slot) != addition
        self._seen[entry.slot] = addition
        return RoundRequest(
            slot=entry.slot,
            request_id=entry.request.name,
            first_position=entry.first_position,
            n_rows=entry.n_rows,
            row_offset=entry.row_offset,
            anchor=entry.anchor if n_out else 0,
            n_out=n_out,
            added=added,
        )
