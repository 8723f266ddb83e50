"""What verification made of our drafts: counts by draft position and by context length, and the alarm.  Pure.

Owned by the engine's thread, in fixed memory.  A drafter that gets the wrong rows, or another target's, still drafts;
nothing but acceptance shows it.  Hence the alarm, and the counts by context length: acceptance that decays with the
length of the prompt is a fault that no error tells of.
"""

from dataclasses import dataclass

DRAFTS_MAX = 64
"""Draft positions that are counted; the contract allows no more in a block."""
_CONTEXT_BUCKETS = 33
"""Position 0, then one bucket for each power of two below 2**32; the contract's positions end at 2**31."""


@dataclass
class _Counts:
    """verified: requests whose drafts were verified.  accepted, drafted: tokens."""

    verified: int = 0
    accepted: int = 0
    drafted: int = 0

    def add(self, accepted: int, drafted: int) -> None:
        self.verified += 1
        self.accepted += accepted
        self.drafted += drafted

    def summary(self) -> dict[str, object]:
        return {
            "verified": self.verified,
            "accepted": self.accepted,
            "drafted": self.drafted,
            "accepted_per_round": round(self.accepted / self.verified, 4) if self.verified else 0.0,
        }


class Acceptance:
    """Counts of one engine run.  Index k of the lists is draft position k."""

    def __init__(self) -> None:
        self._all = _Counts()
        self._by_context = [_Counts() for _ in range(_CONTEXT_BUCKETS)]
        self._accepted_by_position: list[int] = []
        self._drafted_by_position: list[int] = []

    def record(self, accepted: int, drafted: int, position: int) -> None:
        """One request's verification: the first accepted of its drafted tokens were right.

        position: absolute, of the anchor, which is the number of tokens before it.
        """
        drafted = min(drafted, DRAFTS_MAX)
        accepted = min(max(accepted, 0), drafted)
        if drafted <= 0:
            return
        for counts in (self._accepted_by_position, self._drafted_by_position):
            counts.extend([0] * (drafted - len(counts)))
        self._all.add(accepted, drafted)
        self._by_context[min(max(position, 0).bit_length(), _CONTEXT_BUCKETS - 1)].add(accepted, drafted)
        for place in range(drafted):
            self._drafted_by_position[place] += 1
            self._accepted_by_position[place] += place < accepted

    def summary(self) -> dict[str, object]:
        """Counts, tokens accepted per verified request, and the shares by position and by context length."""
        pairs = zip(self._accepted_by_position, self._drafted_by_position, strict=True)
        return {
            **self._all.summary(),
            "rate_by_position": [round(got / of, 4) if of else 0.0 for got, of in pairs],
            "accepted_by_position": list(self._accepted_by_position),
            "drafted_by_position": list(self._drafted_by_position),
            "by_context": [
                {"from": (1 << bucket) >> 1, "below": 1 << bucket, **counts.summary()}
                for bucket, counts in enumerate(self._by_context)
                if counts.verified
            ],
        }


class AcceptanceAlarm:
    """Notices that nothing is accepted any more, and says so once until something is again.

    rounds: verifications in a row without an accepted draft after which it speaks; 0: never.
    active: it has spoken, and nothing was accepted since.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._at_zero = 0
        self.active = False

    def note(self, accepted: int) -> str | None:
        """One verification; a sentence where it is the one that was one too many."""
        if accepted > 0:
            self._at_zero, self.active = 0, False
            return None
        if self.active or not self._rounds:
            return None
        self._at_zero += 1
        if self._at_zero < self._rounds:
            return None
        self.active = True
        return (
            f"no draft was accepted in the last {self._rounds} verified rounds, though the worker answers: compare its "
            "identity, target layers and dtype with the engine's model, and acceptance.by_context in the stats"
        )
