"""Observations as checks read them: by rank, step and request, once all that makes evidence unusable is refused.

Pure.  Raises EvidenceError alone.  Must never repair: a record that is not there is never guessed.

Rules
1. A rank's file is whole: `Facts` first, `Closed` last, indexes without a gap, nothing dropped.
2. Ranks are of one start, and say the same of the engine.
3. A rank's steps count on from 1.  What is recorded of a step belongs to one that was scheduled.  Where a drafter is,
   each step has one `Published`; where rank 0's words are broadcast, one `Decided`.
4. Both arms were given the same requests, and each of them ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ofl.contract import observation_v1 as seen

from qualification.checks.model import ArmObservations, EvidenceError

R = TypeVar("R", bound=seen.Record)
BROADCASTS = ("remote", "shadow")
"""Kinds of speculation in which rank 0's words go to every rank."""
ENGINE_WIDE = (
    "start_id",
    "arm",
    "ranks",
    "engine",
    "engine_version",
    "overlay_version",
    "policy",
    "transport",
    "budget_tokens",
    "block_length",
    "window",
    "capabilities",
)


@dataclass
class Step:
    """What one rank recorded of one step."""

    scheduled: seen.Scheduled
    decided: seen.Decided | None = None
    published: seen.Published | None = None
    exchanged: list[seen.Exchanged] = field(default_factory=list)
    verified: list[seen.Verified] = field(default_factory=list)
    compared: list[seen.Drafter] = field(default_factory=list)

    @property
    def number(self) -> int:
        """From 1."""
        return self.scheduled.step

    def request(self, name: str) -> seen.ScheduledRequest | None:
        """A request of this step."""
        return next((entry for entry in self.scheduled.requests if entry.request == name), None)

    def decision(self, name: str) -> seen.DecidedRequest | None:
        """What the broadcast said of a request."""
        entries = self.decided.requests if self.decided is not None else ()
        return next((entry for entry in entries if entry.request == name), None)

    def handed_over(self, name: str) -> str:
        """Tag of the drafts that left for a request; `NO_TAG` where none did."""
        names = [entry.request for entry in self.scheduled.requests]
        return self.published.drafts[names.index(name)] if self.published is not None else seen.NO_TAG


@dataclass(frozen=True)
class RankReading:
    """One rank of one start.  steps: by number.  faults: as they came, all of rank 0.  opened, reads: of table rows."""

    facts: seen.Facts
    steps: Mapping[int, Step]
    faults: Sequence[seen.Fault]
    exchanges: Sequence[seen.Exchanged]
    opened: Sequence[seen.TableOpened] = ()
    reads: Sequence[seen.TableRead] = ()


@dataclass(frozen=True)
class ArmReading:
    """One arm of one check.  word: "OFF" or "ON".  prefix: of the check's requests."""

    word: str
    prefix: str
    ranks: Sequence[RankReading]
    completed: Mapping[str, seen.Completed]

    @property
    def facts(self) -> seen.Facts:
        """Rank 0's."""
        return self.ranks[0].facts

    def mine(self, name: str) -> bool:
        """Whether a request is of this check."""
        return name.startswith(self.prefix)

    def steps(self, rank: int = 0) -> list[Step]:
        """Steps in which a request of this check was, in order."""
        return [
            step
            for step in self.ranks[rank].steps.values()
            if any(self.mine(entry.request) for entry in step.scheduled.requests)
        ]

    def entries(self, rank: int = 0) -> Iterator[tuple[Step, seen.ScheduledRequest]]:
        """Each request of this check in each step."""
        for step in self.steps(rank):
            for entry in step.scheduled.requests:
                if self.mine(entry.request):
                    yield step, entry

    def of(self, name: str, rank: int = 0) -> list[tuple[Step, seen.ScheduledRequest]]:
        """The steps of one request."""
        return [(step, entry) for step, entry in self.entries(rank) if entry.request == name]

    def faults(self, action: str, moment: str) -> list[seen.Fault]:
        """Faults that hit requests of this check."""
        return [
            fault
            for fault in self.ranks[0].faults
            if (fault.action, fault.moment) == (action, moment) and self.mine(fault.request)
        ]


def read_pair(off: ArmObservations, on: ArmObservations, prefix: str) -> tuple[ArmReading, ArmReading]:
    """Both arms.  Raises EvidenceError where either is unusable, or where they were given different work."""
    arms = read_arm(off, "OFF", prefix), read_arm(on, "ON", prefix)
    work = [{name: done.prompt_tokens for name, done in arm.completed.items()} for arm in arms]
    if work[0] != work[1]:
        names = sorted(name for name in {*work[0], *work[1]} if work[0].get(name) != work[1].get(name))
        raise EvidenceError(f"the arms were given different work: {', '.join(names)}")
    return arms


def read_arm(observed: ArmObservations, word: str, prefix: str) -> ArmReading:
    """One arm.  Raises EvidenceError, naming the arm."""
    try:
        broadcasts = observed.arm.speculation in BROADCASTS
        drafts = observed.arm.speculation != "none"
        ranks = [_rank(rank, broadcasts, drafts) for rank in observed.ranks]
        _same_engine(observed, ranks)
        reading = ArmReading(word, prefix, ranks, _completed(observed.harness, prefix))
        _each_ended(reading, drafts)
    except EvidenceError as error:
        raise EvidenceError(f"{word}, arm {observed.arm.name}: {error}") from None
    return reading


def _rank(observations: Sequence[seen.Observation], broadcasts: bool, drafts: bool) -> RankReading:
    facts, records = _whole_file(observations)
    steps: dict[int, Step] = {}
    for record in records:
        if isinstance(record, seen.Scheduled):
            if record.step != len(steps) + 1:
                raise EvidenceError(f"step {record.step} follows step {len(steps)}")
            _once(record.step, "request", [entry.request for entry in record.requests])
            steps[record.step] = Step(record)
        elif isinstance(
            record, seen.Decided | seen.Published | seen.Exchanged | seen.Verified | seen.Drafter
        ):
            _add(steps, record)
    if drafts:
        _complete(steps, broadcasts)
    elif steps:
        raise EvidenceError("steps reached a drafter where none should be")
    faults, exchanges = _of(records, seen.Fault), _of(records, seen.Exchanged)
    opened, reads = _of(records, seen.TableOpened), _of(records, seen.TableRead)
    return RankReading(facts, steps, faults, exchanges, opened, reads)


def _whole_file(observations: Sequence[seen.Observation]) -> tuple[seen.Facts, list[seen.Record]]:
    records = [observation.record for observation in observations]
    if [observation.index for observation in observations] != list(range(len(records))):
        raise EvidenceError("a rank's lines do not count from 0 without a gap")
    if not records or not isinstance(records[0], seen.Facts):
        raise EvidenceError("a rank's file does not begin with its facts")
    closed = records[-1]
    if not isinstance(closed, seen.Closed):
        raise EvidenceError("a rank's file has no last line: its process did not end by itself")
    if closed.records != len(records) - 1 or closed.dropped:
        raise EvidenceError(
            f"{closed.records} lines were written, {closed.dropped} dropped, {len(records) - 1} are here"
        )
    inner = records[1:-1]
    if any(isinstance(record, seen.Facts | seen.Closed) for record in inner):
        raise EvidenceError("a rank's file is of more than one start")
    if records[0].schema != seen.SCHEMA:
        raise EvidenceError(f"schema {records[0].schema!r} where {seen.SCHEMA!r} is read")
    return records[0], inner


def _add(
    steps: Mapping[int, Step],
    record: seen.Decided | seen.Published | seen.Exchanged | seen.Verified | seen.Drafter,
) -> None:
    step = steps.get(record.step)
    if step is None:
        raise EvidenceError(f"{record.kind} of step {record.step}, which was not scheduled before it")
    if isinstance(record, seen.Decided):
        if step.decided is not None or step.published is not None:
            raise EvidenceError(f"step {record.step}: decided twice, or after drafts left")
        _once(record.step, "decided request", [entry.request for entry in record.requests])
        step.decided = record
    elif isinstance(record, seen.Published):
        if step.published is not None or len(record.drafts) != len(step.scheduled.requests):
            raise EvidenceError(f"step {record.step}: drafts left twice, or not for each of its requests")
        step.published = record
    elif isinstance(record, seen.Exchanged):
        step.exchanged.append(record)
    elif isinstance(record, seen.Verified):
        step.verified.append(record)
    else:
        step.compared.append(record)


def _once(step: int, what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise EvidenceError(f"step {step}: a {what} appears twice")


def _complete(steps: Mapping[int, Step], broadcasts: bool) -> None:
    for step in steps.values():
        if step.published is None:
            raise EvidenceError(f"step {step.number}: no record of what left the drafter")
        if broadcasts and step.decided is None:
            raise EvidenceError(f"step {step.number}: no record of what was read after the broadcast")


def _same_engine(observed: ArmObservations, ranks: Sequence[RankReading]) -> None:
    if not ranks or [rank.facts.rank for rank in ranks] != list(range(observed.arm.ranks)):
        raise EvidenceError(
            f"ranks {[rank.facts.rank for rank in ranks]} where {observed.arm.ranks} are needed"
        )
    for rank in ranks:
        for name in ENGINE_WIDE:
            if getattr(rank.facts, name) != getattr(ranks[0].facts, name):
                raise EvidenceError(f"ranks disagree on {name}: they are not of one start")
    facts = ranks[0].facts
    if not facts.start_id or facts.arm != observed.arm.name or facts.ranks != observed.arm.ranks:
        raise EvidenceError(
            f"its facts are of arm {facts.arm!r} with {facts.ranks} ranks, start {facts.start_id!r}"
        )


def _completed(harness: Iterable[seen.Observation], prefix: str) -> dict[str, seen.Completed]:
    """Requests that ended; what the harness began, it must have ended."""
    begun: list[tuple[str, str]] = []
    done: dict[str, seen.Completed] = {}
    for record in (observation.record for observation in harness):
        if isinstance(record, seen.Case):
            name = (record.check, record.subcase)
            if not record.begins and name not in begun:
                raise EvidenceError("a case ended that had not begun")
            begun.append(name) if record.begins else begun.remove(name)
        elif isinstance(record, seen.Completed) and record.request.startswith(prefix):
            if record.request in done:
                raise EvidenceError(f"request {record.request} ended twice")
            done[record.request] = record
    if begun:
        raise EvidenceError(f"a case of {begun[0][0]} did not end")
    return done


def _each_ended(reading: ArmReading, drafts: bool) -> None:
    if not drafts:
        return
    for rank in range(len(reading.ranks)):
        names = {entry.request for _, entry in reading.entries(rank)}
        if lost := names ^ set(reading.completed):
            # A request that was cancelled before its first step is in no step.
            lost -= {name for name in lost if _never_began(reading.completed.get(name))}
        if lost:
            raise EvidenceError(
                f"rank {rank}: requests {', '.join(sorted(lost))} are in steps or ended, not both"
            )


def _never_began(done: seen.Completed | None) -> bool:
    return done is not None and done.finish == "abort" and not done.output_tokens


def _of(records: Iterable[seen.Record], kind: type[R]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]
