"""From things looked at to conclusions: each counts, each wrong one is told, and what nobody saw never passes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from qualification.checks._reading import ArmReading
from qualification.checks.model import Conclusion, Found, Subcase


@dataclass
class Tally:
    """Of one subcase.  seen: things looked at, by arm.  wrong: what was wrong with some of them.  said: figures."""

    seen: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Book:
    """Tallies of a check's subcases.  only: the arm, "OFF" or "ON", that a subcase is about where it is one alone."""

    def __init__(
        self,
        subcases: Sequence[Subcase],
        off: ArmReading,
        on: ArmReading,
        only: Mapping[str, str] | None = None,
    ) -> None:
        self._subcases, self._arms, self._only = subcases, (off, on), only or {}
        self._tallies = {subcase.name: Tally() for subcase in subcases}
        assert set(self._only) <= set(self._tallies), "a subcase is named that is not declared"

    def look(
        self, subcase: str, arm: ArmReading, right: bool, wrong: str | Callable[[], str], *, count: int = 1
    ) -> None:
        """So many things were seen.  wrong: the clause to tell where they are not right; names the request and step."""
        tally = self._tallies[subcase]
        tally.seen[arm.word] = tally.seen.get(arm.word, 0) + count
        if not right:
            self.wrong(subcase, arm, wrong if isinstance(wrong, str) else wrong())

    def say(self, subcase: str, clause: str) -> None:
        """A figure that belongs to the sentence where all is right."""
        self._tallies[subcase].said.append(clause)

    def wrong(self, subcase: str, arm: ArmReading, clause: str) -> None:
        """Something is wrong that adds to nothing seen."""
        self._tallies[subcase].wrong.append(f"{arm.word}, {clause}")

    def conclusions(self) -> tuple[Conclusion, ...]:
        """One for each declared subcase, in their order."""
        return tuple(self._conclude(subcase) for subcase in self._subcases)

    def _conclude(self, subcase: Subcase) -> Conclusion:
        tally = self._tallies[subcase.name]
        arms = [arm for arm in self._arms if self._only.get(subcase.name, arm.word) == arm.word]
        total = sum(tally.seen.values())
        if tally.wrong:
            more = f" and {len(tally.wrong) - 1} more" if len(tally.wrong) > 1 else ""
            return Conclusion(subcase.name, Found.FAILED, f"{tally.wrong[0]}{more}.", max(total, 1))
        lacking = [arm.word for arm in arms if subcase.needs and subcase.needs not in arm.facts.capabilities]
        if lacking:
            why = f"The platform does not show {subcase.needs} ({', '.join(lacking)})."
            return Conclusion(subcase.name, Found.NOT_SEEN, why)
        without = [arm.word for arm in arms if not tally.seen.get(arm.word)]
        if without:
            return Conclusion(subcase.name, Found.NOT_SEEN, f"It did not occur in {' nor '.join(without)}.")
        shown = ", ".join(f"{tally.seen[arm.word]} in {arm.word}" for arm in arms)
        return Conclusion(
            subcase.name, Found.PASSED, "; ".join([f"Looked at {shown}; all right", *tally.said]) + ".", total
        )


def all_but(subcases: Sequence[Subcase], *names: str) -> dict[str, str]:
    """`only` for a check that is about the arm ON, but for these subcases, which are about both."""
    return {subcase.name: "ON" for subcase in subcases if subcase.name not in names}
