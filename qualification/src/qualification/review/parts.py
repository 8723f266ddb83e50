"""What the page is made of: values only, each ready to be shown.  `content` fills them, the template shows them."""

from dataclasses import dataclass

UNVERIFIED = "not verified"
NO_RECEIPT = "no receipt"
LOOKS = {
    "PASS": "pass",
    "FAIL": "fail",
    "NOT RUN": "notrun",
    "HOLD": "hold",
    UNVERIFIED: "bad",
    NO_RECEIPT: "none",
}
MARKS = {"PASS": "✓", "FAIL": "✗", "NOT RUN": "○", "HOLD": "‖", UNVERIFIED: "?", NO_RECEIPT: "-"}


@dataclass(frozen=True)
class Cell:
    """Of the matrix.  word: a verdict, or why there is none.  look: of `LOOKS`.  mark: a sign beside the word."""

    word: str
    detail: str = ""
    anchor: str = ""

    @property
    def look(self) -> str:
        """How it is drawn, beside its word."""
        return LOOKS[self.word]

    @property
    def mark(self) -> str:
        """A sign that tells verdicts apart without colour."""
        return MARKS[self.word]


@dataclass(frozen=True)
class SubcaseRow:
    """One subcase of one receipt."""

    name: str
    asks: str
    needs: str
    word: str
    look: str
    why: str
    observed: int


@dataclass(frozen=True)
class ReceiptPart:
    """One receipt of a verified run, in full."""

    anchor: str
    check: str
    asks: str
    cell: Cell
    arm_variable: str
    off: str
    on: str
    subcases: tuple[SubcaseRow, ...]
    notes: tuple[str, ...]
    thresholds: tuple[str, ...]
    counter: str
    digest: str
    evidence: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class ArmRow:
    """One arm of a run, as its engine stated it."""

    side: str
    name: str
    speculation: str
    ranks: int
    settings: tuple[str, ...]
    engine: str
    devices: str
    transport: str
    starts: tuple[str, ...]
    not_native: str


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold.  wrong: each sentence, with the places that it was said of."""

    rule: str
    holds: str
    wrong: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class RunPart:
    """One run.  receipts, arms: empty where it did not verify.  claims: receipt files that are not believed."""

    name: str
    anchor: str
    verified: bool
    violations: tuple[Broken, ...]
    claims: int
    evidence_class: str
    why_class: str
    facts: tuple[tuple[str, str], ...]
    receipts: tuple[ReceiptPart, ...]
    arms: tuple[ArmRow, ...]


@dataclass(frozen=True)
class SubjectRow:
    """One subject, there or here or both.  word: "same", "differs", "only in ..."."""

    name: str
    word: str
    look: str
    qualified: str
    other: str


@dataclass(frozen=True)
class MatrixRow:
    """One check over all runs."""

    check: str
    asks: str
    cells: tuple[Cell, ...]
