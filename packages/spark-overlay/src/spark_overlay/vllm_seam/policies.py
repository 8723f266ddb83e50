"""Who drafts in a step: one rank's part in every round, and the three policies on top of it.

Owns the order of a step's collectives, the same on every rank: exactly one broadcast of rank 0's words in every
real step, also in one that failed.  Whatever a policy decides after it, it decides from those words alone, so all
ranks run or all skip the local drafter.  Imports torch, never vLLM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

import torch

from spark_overlay.decision import Decision
from spark_overlay.interface import LocalDrafts
from spark_overlay.round.messages import Outcome
from spark_overlay.vllm_seam.errors import RemoteRoundFailed
from spark_overlay.vllm_seam.ranks import Ranks
from spark_overlay.vllm_seam.step import EngineStep, Lead, Led
from spark_overlay.vllm_seam.words import Words


@dataclass(frozen=True)
class Local:
    """vLLM's own drafter in one step.

    draft: a whole proposal, int64 [requests, K] in a buffer of its own.  keep_context: store the step's context
    and draft nothing; a proposal after it stores the same again.
    """

    draft: Callable[[], torch.Tensor]
    keep_context: Callable[[], None]


class RemoteRounds:
    """One rank's part in every round.  lead: rank 0's half, None on the others.

    raises: ON_FAIL=raise.  It must be the same on every rank, as it decides who waits for the words.
    confidences: float32 [max_requests, K] that adaptive verification reads next, None without it.  A local drafter
    writes its own there; those of the drafts that are handed out replace them.
    """

    def __init__(self, words: Words, ranks: Ranks, lead: Lead | None, *, raises: bool = False) -> None:
        assert (lead is not None) == (ranks.rank == 0), "rank 0 leads, and no other"
        self.words, self.ranks, self.lead = words, ranks, lead
        self._raises = raises
        self._number = 0
        self._drafts = torch.zeros(words.drafts.shape, dtype=torch.int64, device=words.device.device)
        self.confidences: torch.Tensor | None = None

    def run(self, step: EngineStep) -> Led | None:
        """One round and its broadcast; what rank 0 knows of it.

        Raises RemoteRoundFailed on every rank where the operator asked for that.
        """
        led = None
        try:
            if self.lead is not None:
                led = self._led(self.lead, step)
        finally:
            if self.lead is not None:
                self.words.upload()
            self.ranks.broadcast(self.words.device)
        if self._raises:
            self._raise_if_asked(led)
        return led

    def prove(self) -> bool:
        """One broadcast while the engine starts: whether this rank reads what rank 0 wrote."""
        full = self.words.layout.max_requests
        if self.lead is not None:
            self.words.failed(full, must_raise=True)
            self.words.upload()
        self.ranks.broadcast(self.words.device)
        read = self.words.read()
        return read.must_raise and len(read.outcomes) == full and bool(read.without.all())

    def remote(self, n_requests: int) -> torch.Tensor:
        """The round's drafts, int64 [n, K] in a buffer of our own, zeros where there are none; so are confidences."""
        if self.confidences is not None:
            self.confidences[:n_requests].copy_(self.words.confidences[:n_requests])
        return self._drafts[:n_requests].copy_(self.words.drafts[:n_requests])

    def merged(self, local: torch.Tensor) -> torch.Tensor:
        """Remote drafts where there are any, else local, request by request; as `remote`."""
        count = len(local)
        ok = self.words.outcomes[:count, None] == Outcome.OK
        if self.confidences is not None:
            held = self.confidences[:count]
            held.copy_(torch.where(ok, self.words.confidences[:count], held))
        return self._drafts[:count].copy_(torch.where(ok, self.words.drafts[:count].to(local.dtype), local))

    def nothing(self, n_requests: int) -> torch.Tensor:
        """No drafts at all, for steps that are none."""
        return self._drafts[:n_requests].zero_()

    def _led(self, lead: Lead, step: EngineStep) -> Led:
        self.words.failed(step.n_requests, must_raise=self._raises)
        led = lead.round(step)
        self._number += 1
        self.words.fill(self._number, led.result, must_raise=lead.drafter.must_raise(led.result))
        return led

    def _raise_if_asked(self, led: Led | None) -> None:
        decision = self.words.read()
        if decision.must_raise:
            detail = f" {led.result.detail}" if led is not None else ""
            raise RemoteRoundFailed(
                f"a round failed and the setting is to stop on that: {_why(decision)}{detail}".rstrip()
            )


def _why(decision: Decision) -> str:
    """The round's reason, or, where no whole round failed, what became of the requests that lack drafts."""
    names = sorted({Outcome(outcome).name for outcome in decision.outcomes[decision.without].tolist()})
    return decision.reason or f"requests without drafts: {', '.join(names)}"


class Policy(Protocol):
    """What a speculator asks in every real step."""

    rounds: RemoteRounds

    def drafts(self, step: EngineStep, local: Local | None) -> torch.Tensor:
        """int64 [requests, K], to be verified next; the caller may write into it until the next step."""


class Capacity:
    """The remote drafter alone: where it fails there are no drafts.  No rank waits for the words."""

    def __init__(self, rounds: RemoteRounds) -> None:
        self.rounds = rounds

    def drafts(self, step: EngineStep, local: Local | None = None) -> torch.Tensor:
        """See `Policy`."""
        self.rounds.run(step)
        return self.rounds.remote(step.n_requests)


class Resilience:
    """The local drafter stands in for whoever wanted remote drafts and got none.

    Every rank waits for the words, since a local proposal is collective.
    """

    def __init__(self, rounds: RemoteRounds) -> None:
        self.rounds = rounds

    def drafts(self, step: EngineStep, local: Local | None) -> torch.Tensor:
        """See `Policy`."""
        assert local is not None, "resilience keeps the local drafter"
        local.keep_context()
        self.rounds.run(step)
        without = int(self.rounds.words.read().without.sum())
        if not without:
            return self.rounds.remote(step.n_requests)
        drafts = self.rounds.merged(local.draft())
        if self.rounds.lead is not None:
            self.rounds.lead.fell_back(without)
        return drafts


class Shadow:
    """Both draft in every step from the same state and are compared.  No rank waits for the words.

    uses_remote: verify remote drafts where there are any, instead of the local ones.
    """

    def __init__(self, rounds: RemoteRounds, *, uses_remote: bool) -> None:
        self.rounds, self._uses_remote = rounds, uses_remote

    def drafts(self, step: EngineStep, local: Local | None) -> torch.Tensor:
        """See `Policy`.  The remote round comes first, so its time holds nothing of the local drafter."""
        assert local is not None, "shadow keeps the local drafter"
        led = self.rounds.run(step)
        if led is None or self.rounds.lead is None:
            drafts = local.draft()
        else:
            drafts, propose_us = _timed(local.draft, self.rounds.words.device.device)
            self.rounds.lead.compare(LocalDrafts(drafts.cpu().numpy().copy(), propose_us), led)
        return self.rounds.merged(drafts) if self._uses_remote else drafts


def _timed(draft: Callable[[], torch.Tensor], device: torch.device) -> tuple[torch.Tensor, float]:
    """Its drafts and the microseconds that they took on the device."""
    if device.type == "cpu":
        started_ns = perf_counter_ns()
        return draft(), (perf_counter_ns() - started_ns) / 1000
    started, ended = (torch.Event(device, enable_timing=True) for _ in range(2))
    started.record()
    drafts = draft()
    ended.record()
    ended.synchronize()
    return drafts, float(started.elapsed_time(ended)) * 1000
