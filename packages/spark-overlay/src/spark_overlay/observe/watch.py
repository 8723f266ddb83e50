"""One rank's steps: what its drafter was called with, what the broadcast said, what drafts left.

Owns the count of steps and what is out for verification.  Must never raise into the engine's step: what fails in here
is counted in the rank's file, which then is no evidence.  One thread, the engine's, uses it.

Order of a step: `begin`, `decided` where rank 0's words are broadcast, `end`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ofl.contract.observation_v1 import (
    NO_TAG,
    Decided,
    DecidedRequest,
    Published,
    Record,
    Scheduled,
    ScheduledRequest,
    Verified,
)

from spark_overlay.decision import Decision
from spark_overlay.observe.lives import Lives
from spark_overlay.observe.names import harness_name
from spark_overlay.observe.tags import Tags
from spark_overlay.round.messages import Outcome

NO_DRAFTS = "none"
"""Source of what was verified where nobody drafted: zeros of a failed round, or the engine's own padding."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One request of a step as the drafter was called with it.

    name: the engine's.  start: position of its first scheduled token, and q their number.  kept: of them, the last ones
    whose rows the target kept.  rejected: of the `verified` drafts, which are the step's last tokens.  sampled: tokens
    that came out.  anchor: the last of them, any value where there is none.  remaining: prompt tokens that are still to
    be scheduled after this step, -1 where the engine does not say.
    """

    name: str
    slot: int
    start: int
    q: int
    kept: int
    sampled: int
    rejected: int
    verified: int
    anchor: int
    remaining: int = -1


class Sink(Protocol):
    """Where records go: `ofl.observation_file.Writer`, or a list of a test's."""

    def write(self, record: Record) -> None:
        """One more."""

    def defect(self, error: Exception) -> None:
        """A hook failed."""


@dataclass(frozen=True)
class Use:
    """Whose drafts are verified.  policy: "" where the engine drafts by itself.  shadow_use: "local" or "remote"."""

    policy: str = ""
    shadow_use: str = "local"

    def source(self, decision: Decision) -> str:
        """`Decided.source` of a round."""
        if self.policy == "capacity":
            return "remote"
        if self.policy == "resilience":
            return "merged" if decision.without.any() else "remote"
        return "merged" if self.shadow_use == "remote" else "local"

    @property
    def remote(self) -> bool:
        """Whether remote drafts are verified where there are any."""
        return self.policy in ("capacity", "resilience") or (
            self.policy == "shadow" and self.shadow_use == "remote"
        )


class Watch:
    """One rank's.  step: of the last `begin`, 0 before the first.  requests: of that step."""

    def __init__(self, sink: Sink, tags: Tags, lives: Lives, use: Use) -> None:
        self.sink, self.tags = sink, tags
        self._lives, self._use = lives, use
        self.step = 0
        self.requests: Sequence[StepRequest] = ()
        self._names: dict[int, str] = {}
        self._outcomes: Sequence[int] = ()
        self._out: dict[int, tuple[int, str]] = {}

    def name(self, slot: int) -> str:
        """The request that is in a slot, or was there last, as the harness calls it."""
        return self._names.get(slot, "")

    def begin(self, read: Callable[[], Sequence[StepRequest]]) -> None:
        """A real step reached the drafter.  read: what it was called with."""
        self.step += 1
        self.requests, self._outcomes = (), ()
        self._safely(lambda: self._begin(read()))

    def decided(self, read: Callable[[], Decision]) -> None:
        """The broadcast of this step is over.  read: what it said."""
        self._safely(lambda: self._decided(read()))

    def end(self, read: Callable[[], Sequence[Sequence[int]]]) -> None:
        """Drafts left.  read: those of each request."""
        self._safely(lambda: self._end(read()))

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            # Not narrower: whatever is wrong with a hook, the engine goes on, and its file is no evidence.
            self.sink.defect(error)

    def _begin(self, requests: Sequence[StepRequest]) -> None:
        self.requests = requests
        self._names.update((request.slot, harness_name(request.name)) for request in requests)
        self.sink.write(Scheduled(self.step, tuple(map(self._scheduled, requests))))
        for request in requests:
            life, source = self._out.pop(request.slot, (0, NO_DRAFTS))
            if request.verified and request.sampled:
                ours = life == self._lives[request.slot]
                self.sink.write(self._verified(request, source if ours else NO_DRAFTS))

    def _scheduled(self, request: StepRequest) -> ScheduledRequest:
        return ScheduledRequest(
            request=harness_name(request.name),
            slot=request.slot,
            life=self._lives[request.slot],
            q=request.q,
            kept=request.kept,
            valid=request.kept - request.rejected,
            first_position=request.start + request.q - request.kept,
            sampled=request.sampled,
            verified=request.verified,
            anchor=self.tags.anchor(request.anchor) if request.sampled else NO_TAG,
        )

    def _verified(self, request: StepRequest, source: str) -> Verified:
        return Verified(
            step=self.step,
            request=harness_name(request.name),
            position=request.start + request.q - request.verified - 1,
            drafted=request.verified,
            accepted=request.verified - request.rejected,
            source=source,
        )

    def _decided(self, decision: Decision) -> None:
        outcomes = decision.outcomes.tolist()
        drafts, confidences = decision.drafts.tolist(), decision.confidences.tolist()
        self._outcomes = outcomes
        entries = [
            DecidedRequest(
                harness_name(request.name),
                Outcome(outcome).name,
                self.tags.drafts(block),
                self.tags.confidences(of_block),
            )
            for request, outcome, block, of_block in zip(
                self.requests, outcomes, drafts, confidences, strict=True
            )
        ]
        source = self._use.source(decision)
        self.sink.write(Decided(self.step, decision.round, decision.reason, source, tuple(entries)))

    def _end(self, drafts: Sequence[Sequence[int]]) -> None:
        tags = tuple(self.tags.drafts(block) for block in drafts[: len(self.requests)])
        assert len(tags) == len(self.requests), "drafts of every request"
        self.sink.write(Published(self.step, tags))
        for index, request in enumerate(self.requests):
            self._out[request.slot] = (self._lives[request.slot], self._source(index, tags[index]))

    def _source(self, index: int, tag: str) -> str:
        if tag == NO_TAG:
            return NO_DRAFTS
        ok = index < len(self._outcomes) and self._outcomes[index] == Outcome.OK
        return "remote" if ok and self._use.remote else "local"
