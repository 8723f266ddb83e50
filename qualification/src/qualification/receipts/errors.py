"""What verification raises: one exception that holds every rule violated.  Nothing here judges."""

from collections.abc import Iterable
from dataclasses import dataclass


def printable(text: str) -> str:
    """The text with an escape for all that a terminal would obey or hide; names of files may hold anything."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


@dataclass(frozen=True, order=True)
class Violation:
    """One rule that does not hold.  rule: an id of `rules.RULES`.  where: file or receipt; empty for a set.

    sentence: one clear sentence that names the field.
    """

    rule: str
    sentence: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return printable(f"{place}[{self.rule}] {self.sentence}")


class ReceiptError(Exception):
    """A receipt, a record or a run that must not be believed.  violations: at least one, in the order found."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        assert self.violations, "an error without a violation says nothing"
        super().__init__("\n".join(str(violation) for violation in self.violations))

    @property
    def rules(self) -> frozenset[str]:
        """Ids of the rules that are violated."""
        return frozenset(violation.rule for violation in self.violations)


def refuse(rule: str, sentence: str, where: str = "") -> ReceiptError:
    """An error of one violation."""
    return ReceiptError([Violation(rule, sentence, where)])
