"""Asks for rows and compares each with what it must be.  Staging is poisoned before every lookup."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engram_remote.check.cases import Case
from engram_remote.check.expected import ExpectedRows, wrong_rows
from engram_remote.client import Client, Staging
from engram_remote.native import EngramError
from engram_remote.server.preflight import check_staging

POISON = 0xA5
GENERATED_EVERY = 8
"""Of random lookups, one in so many is made again by the generator of a synthetic table: it takes longer than all
else.
"""
FAULTS_MAX = 10
"""Sentences about wrong lookups; the rest is counted."""

Advance = Callable[[int], None]
"""Told how many rows more were checked."""


@dataclass
class RowsReport:
    """What one way to the rows gave.

    rows_generated: of those checked, compared with the generator too.  elsewhere: lookups that did not come the
    way that was checked, a fallback for instance.  faults: a sentence for each of the first wrong lookups.
    """

    way: str
    wire: str
    lookups: int = 0
    rows: int = 0
    rows_wrong: int = 0
    rows_generated: int = 0
    elsewhere: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Something was checked, nothing was wrong, and all of it came this way."""
        return self.rows > 0 and not (self.rows_wrong or self.elsewhere or self.faults)


class RowsCheck:
    """One client under check.  outcome: where its rows must come from, "remote" or "local".

    Raises PreflightError where this host has no memory for a lookup as large as the client's largest.
    """

    def __init__(self, client: Client, tables: Sequence[ExpectedRows], way: str, outcome: str) -> None:
        self._client, self._tables, self._outcome = client, tables, outcome
        wire = client.connected()[1] if outcome == "remote" else client.shards()
        self.report = RowsReport(way, wire)
        # As many rows as one lookup may have, however they are spread, and the padding of every plane.
        counts = [client.options.batch_rows_max] + [1] * len(tables)
        check_staging(client.staging_bytes(counts))
        self._staging: Staging = client.staging(counts)

    def run(self, cases: Iterable[Case], advance: Advance, *, generated_every: int = GENERATED_EVERY) -> None:
        """Ask for every case; a lookup that fails is a fault, and the check goes on."""
        for turn, case in enumerate(cases):
            self._staging.memory[:] = POISON
            try:
                result = self._client.wait(self._client.enqueue(case.batches, self._staging))
            except EngramError as error:
                self._fault(case, str(error))
                continue
            self.report.lookups += 1
            if result.outcome != self._outcome:
                self.report.elsewhere += 1
                self._fault(case, f"came from elsewhere ({result.outcome}: {result.reason})")
            self._compare(case, result.out_of_shard, turn % generated_every == 0)
            advance(case.rows)

    def _compare(self, case: Case, out_of_shard: int, generate: bool) -> None:
        planes = self._staging.planes([len(ids) for _, ids in case.batches])
        strangers = 0
        for (at, ids), (values, scales) in zip(case.batches, planes, strict=True):
            table = self._tables[at]
            wrong = wrong_rows(table.rows(ids), values, scales)
            made = table.generated(ids) if generate else None
            if made is not None:
                wrong = max(wrong, wrong_rows(made, values, scales))
                self.report.rows_generated += len(ids)
            if wrong:
                self._fault(case, f"{wrong} of {len(ids)} rows of layer {table.layer} are wrong")
            self.report.rows_wrong += wrong
            self.report.rows += len(ids)
            strangers += len(ids) - int(table.inside(ids).sum())
        if out_of_shard != strangers:
            self._fault(case, f"{out_of_shard} ids were said to be outside the shard, not {strangers}")

    def _fault(self, case: Case, text: str) -> None:
        if len(self.report.faults) < FAULTS_MAX:
            self.report.faults.append(f"{case.name}: {text}")
