"""What a check found, as tables for a terminal and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from engram_remote.check.refusals import RefusalReport
from engram_remote.check.rows import RowsReport


@dataclass(frozen=True)
class CheckReport:
    """All of it.  identity: of the manifest, hex."""

    identity: str
    rank: int
    seed: int
    rows: Sequence[RowsReport]
    refusals: Sequence[RefusalReport]

    @property
    def rows_checked(self) -> int:
        return sum(one.rows for one in self.rows)

    @property
    def rows_wrong(self) -> int:
        return sum(one.rows_wrong for one in self.rows)

    @property
    def passed(self) -> bool:
        """Every way gave rows and none wrong, and every refusal was as it must be."""
        parts = [*(one.passed for one in self.rows), *(one.passed for one in self.refusals)]
        return bool(self.rows) and all(parts)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "identity": self.identity,
            "rank": self.rank,
            "seed": self.seed,
            "passed": self.passed,
            "rows_checked": self.rows_checked,
            "rows_wrong": self.rows_wrong,
            "ways": [{**asdict(one), "passed": one.passed} for one in self.rows],
            "refusals": [{**asdict(one), "passed": one.passed} for one in self.refusals],
        }


def rows_table(report: CheckReport) -> Table:
    """A line for each way."""
    table = Table("way", "wire or reader", "lookups", "rows", "generated too", "wrong", "elsewhere", "")
    for one in report.rows:
        numbers = (one.lookups, one.rows, one.rows_generated, one.rows_wrong, one.elsewhere)
        table.add_row(one.way, one.wire, *(f"{number:,}" for number in numbers), _word(one.passed))
    return table


def refusals_table(report: CheckReport) -> Table:
    """A line for each demand."""
    table = Table("endpoint", "asked for", "must be", "was", "")
    for one in report.refusals:
        table.add_row(one.way, one.name, one.wanted, one.got, _word(one.passed))
    return table


def _word(passed: bool) -> str:
    return "ok" if passed else "FAIL"
