"""What the overlay counted, compared with what a simulation saw: acceptance, agreement, fallbacks.

Owns counts of its own, made from steps and results alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.simulation.checker import Checker
from spark_overlay.simulation.ranks import Step

Life = tuple[str, int]


class FiguresCheck:
    """Of one engine.  uses_remote: remote drafts are what is verified."""

    def __init__(self, checker: Checker, *, uses_remote: bool) -> None:
        self._checker, self._uses_remote = checker, uses_remote
        self._out: dict[int, tuple[Life, int]] = {}
        self.verified = self.accepted = 0

    def round(
        self, step: Step, lives: Sequence[Life], requests: Sequence[RoundRequest], result: RoundResult
    ) -> None:
        """One step and its round; no requests where it could not be begun."""
        if not requests:
            self._out.clear()  # nobody looked at what this step verified
            return
        for entry, life in zip(step.entries, lives, strict=True):
            owner, drafted = self._out.pop(entry.slot, (("", 0), 0))
            drafted = min(drafted, entry.n_drafts)
            if owner == life and drafted and entry.n_sampled:
                self.verified += 1
                self.accepted += min(entry.n_sampled - 1, drafted)
        if self._uses_remote:
            for asked, life, ok in zip(requests, lives, result.ok.tolist(), strict=True):
                if ok:
                    self._out[asked.slot] = life, asked.n_out

    def check(self, stats: Mapping[str, Any]) -> None:
        """Raises AssertionError where the overlay's figures say something else."""
        acceptance, shadow, counters = stats["acceptance"], stats["shadow"], stats["counters"]
        told = acceptance["verified"], acceptance["accepted"]
        assert told == (self.verified, self.accepted), (
            f"acceptance {told}, not {self.verified, self.accepted}"
        )
        if shadow is not None:
            told = shadow["eligible"], shadow["mismatches"]
            seen = self._checker.eligible, self._checker.disagreed
            assert told == seen, f"{told} eligible and mismatching blocks, not {seen}"
        told = counters["local_fallback_requests"]
        assert told == self._checker.fallbacks, f"{told} local fallbacks, not {self._checker.fallbacks}"
        assert counters["partial_rounds"] >= (self._checker.partial > 0), "partial windows are counted"
