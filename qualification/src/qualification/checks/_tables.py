"""Lookups of table rows as checks read them: paired over the arms, by rank, layer and order.

Pure.  Raises EvidenceError alone.

Rules
1. A rank's lookups count on from 1; no layer is twice in one, and each is of a step that is not before the last one's.
2. Where an engine has tables, each request of the check that ended was in a lookup on every rank, and no other was.
3. Both arms read with the same manifest, and looked up as many rows, in the same order, for the same requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ofl.contract import observation_v1 as seen

from qualification.checks._reading import ArmReading
from qualification.checks.model import EvidenceError

TABLES = "engram_tables"
"""The capability of an engine that reads rows of tables through a reader that is observed."""


@dataclass(frozen=True)
class Pair:
    """The same layer of the same lookup in both arms, on one rank."""

    rank: int
    off: seen.TableRead
    on: seen.TableRead

    @property
    def where(self) -> str:
        """For a sentence."""
        on = self.on
        requests = ", ".join(on.requests)
        return f"request {requests}, step {on.step}, rank {self.rank}, layer {on.layer}, lookup {on.lookup}"


@dataclass(frozen=True)
class Span:
    """What a fault did, in steps: struck in the first, over in the one after the last.  Both of rank 0's count."""

    request: str
    first: int
    end: int

    def holds(self, step: int) -> bool:
        """Whether all of a step is within."""
        return self.first <= step < self.end

    def hit(self, step: int) -> bool:
        """Whether some of a step is within."""
        return self.first <= step <= self.end


def pairs(off: ArmReading, on: ArmReading) -> list[Pair]:
    """Every lookup of the check, rank by rank, in order.  Raises EvidenceError."""
    if any(TABLES not in arm.facts.capabilities for arm in (off, on)):
        return []
    _same_tables(off, on)
    found = []
    for rank in range(len(off.ranks)):
        reads = [_reads(arm, rank) for arm in (off, on)]
        if list(map(_work, reads[0])) != list(map(_work, reads[1])):
            raise EvidenceError(f"rank {rank}: the arms looked up rows for different work")
        found += [Pair(rank, *both) for both in zip(*reads, strict=True)]
    return found


def spans(arm: ArmReading, action: str, began: str) -> Iterator[Span]:
    """Faults of one kind that struck and were over.  began: the moment at which it strikes."""
    over = {fault.request: fault.step for fault in arm.faults(action, "released")}
    for fault in arm.faults(action, began):
        if fault.request in over:
            yield Span(fault.request, fault.step, over[fault.request])


def standings(arm: ArmReading) -> Iterator[tuple[int, seen.TableOpened]]:
    """Where each rank's reader stood with its server, in order."""
    for rank, reading in enumerate(arm.ranks):
        for opened in reading.opened:
            yield rank, opened


def _work(read: seen.TableRead) -> tuple[object, ...]:
    """What both arms must have in common, whatever rows came."""
    return read.step, read.requests, read.layer, read.n_rows


def _reads(arm: ArmReading, rank: int) -> list[seen.TableRead]:
    """A rank's lookups for requests of the check.  Raises EvidenceError where they are torn."""
    reads = arm.ranks[rank].reads
    where = f"{arm.word}, rank {rank}"
    if sorted({read.lookup for read in reads}) != list(range(1, len({read.lookup for read in reads}) + 1)):
        raise EvidenceError(f"{where}: lookups do not count on from 1 without a gap")
    if len({(read.lookup, read.layer) for read in reads}) < len(reads):
        raise EvidenceError(f"{where}: a layer is twice in a lookup")
    if [read.step for read in reads] != sorted(read.step for read in reads):
        raise EvidenceError(f"{where}: a lookup is of a step before the last one's")
    mine = [read for read in reads if any(map(arm.mine, read.requests))]
    if not all(arm.mine(request) for read in mine for request in read.requests):
        raise EvidenceError(f"{where}: a lookup is for requests of two checks")
    if lost := {request for read in mine for request in read.requests} ^ set(arm.completed):
        raise EvidenceError(f"{where}: requests {', '.join(sorted(lost))} are in lookups or ended, not both")
    return mine


def _same_tables(off: ArmReading, on: ArmReading) -> None:
    found = set()
    for arm, source in ((off, "local"), (on, "remote")):
        for rank in range(len(arm.ranks)):
            opened = arm.ranks[rank].opened
            if not opened:
                raise EvidenceError(f"{arm.word}, rank {rank}: no record of its tables")
            if {(each.rank, each.ranks, each.source) for each in opened} != {(rank, len(arm.ranks), source)}:
                raise EvidenceError(f"{arm.word}, rank {rank}: its tables are not those of a {source} arm")
            found |= {(each.identity, each.layers) for each in opened}
    if len(found) > 1:
        raise EvidenceError("the arms, or their ranks, read tables of different manifests")
