"""Evidence of a pair of arms that can be spoilt record by record, and judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ofl.contract import observation_v1 as seen
from qualification.checks.model import ArmObservations, Check, Conclusion, Found
from synthetic_engine import SyntheticEngine
from synthetic_parts import Platform

OFF, ON = "off", "on"
HARNESS = -1
Where = Callable[[Any], bool]


class Evidence:
    """Both arms of one check, as sound as an engine that is right by construction makes them."""

    def __init__(
        self,
        check: Check,
        platform: Platform | None = None,
        drive: Callable[[Any], None] | None = None,
    ) -> None:
        self.check = check
        self.arms: dict[str, ArmObservations] = {}
        for word, arm in ((OFF, check.off), (ON, check.on)):
            engine = SyntheticEngine(arm, check.name, platform or Platform())
            (drive or check.drive or _nothing)(engine)
            self.arms[word] = engine.observations()

    def records(self, arm: str, rank: int = 0) -> list[Any]:
        """Records of a rank's file, or of the harness."""
        observed = self.arms[arm]
        return [line.record for line in (observed.harness if rank == HARNESS else observed.ranks[rank])]

    def put(self, arm: str, rank: int, records: Sequence[Any]) -> None:
        """Replace a file, with its count of lines as it must be."""
        made = list(records)
        if made and isinstance(made[-1], seen.Closed):
            made[-1] = replace(made[-1], records=len(made) - 1)
        lines = [seen.Observation(index, index * 1000, record) for index, record in enumerate(made)]
        observed = self.arms[arm]
        if rank == HARNESS:
            self.arms[arm] = replace(observed, harness=lines)
        else:
            ranks = list(observed.ranks)
            ranks[rank] = lines
            self.arms[arm] = replace(observed, ranks=ranks)

    def change(self, arm: str, rank: int, where: Where, /, **changes: Any) -> "Evidence":
        """Change fields of every record that `where` picks; at least one.  A change may be a function of the record."""
        records = self.records(arm, rank)
        picked = [index for index, record in enumerate(records) if where(record)]
        assert picked, "a defect that changes nothing"
        for index in picked:
            records[index] = _changed(records[index], changes)
        self.put(arm, rank, records)
        return self

    def change_entry(self, arm: str, rank: int, where: Where, request: str, /, **changes: Any) -> "Evidence":
        """As `change`, of one request's entry in records that hold entries."""

        def entries(record: Any) -> tuple[Any, ...]:
            made = getattr(record, _entries_of(record))
            assert any(entry.request == request for entry in made), "a defect that changes nothing"
            return tuple(_changed(entry, changes) if entry.request == request else entry for entry in made)

        names = {_entries_of(record) for record in self.records(arm, rank) if where(record)}
        assert len(names) == 1, "a defect that changes nothing, or more than one kind"
        return self.change(arm, rank, where, **{names.pop(): entries})

    def drop(self, arm: str, rank: int, where: Where) -> "Evidence":
        """Leave records out, as if they had never been written; at least one."""
        records = self.records(arm, rank)
        kept = [record for record in records if not where(record)]
        assert len(kept) < len(records), "a defect that drops nothing"
        self.put(arm, rank, kept)
        return self

    def judge(self, **thresholds: float) -> dict[str, Conclusion]:
        """Conclusions by subcase."""
        assert self.check.decide is not None
        made = self.check.decide(self.arms[OFF], self.arms[ON], {**self.check.thresholds, **thresholds})
        assert [each.subcase for each in made] == [each.name for each in self.check.subcases]
        return {each.subcase: each for each in made}

    def found(self, **thresholds: float) -> Mapping[str, Found]:
        """What became of each subcase."""
        return {name: each.found for name, each in self.judge(**thresholds).items()}


def _nothing(_: object) -> None:
    """A check that cannot run drives nothing."""


def _entries_of(record: Any) -> str:
    return "slots" if isinstance(record, seen.Exchanged) else "requests"


def _changed(record: Any, changes: Mapping[str, Any]) -> Any:
    names = {field.name for field in fields(record)}
    assert set(changes) <= names, f"{type(record).__name__} has no {set(changes) - names}"
    return replace(
        record, **{name: value(record) if callable(value) else value for name, value in changes.items()}
    )


def steps_of(evidence: Evidence, arm: str, request: str, rank: int = 0) -> list[tuple[int, Any]]:
    """(step, entry) of a request, in order."""
    return [
        (record.step, entry)
        for record in evidence.records(arm, rank)
        if isinstance(record, seen.Scheduled)
        for entry in record.requests
        if entry.request == request
    ]


def change_one(evidence: Evidence, arm: str, rank: int, where: Where, /, **changes: Any) -> Evidence:
    """As `Evidence.change`, of the first record that `where` picks."""
    first = next(record for record in evidence.records(arm, rank) if where(record))
    return evidence.change(arm, rank, lambda record: record is first, **changes)


def of_step(kind: type[Any], step: int) -> Where:
    """Picks records of one kind and step."""
    return lambda record: isinstance(record, kind) and record.step == step


def assert_flips(sound: Evidence, spoil: Callable[[Evidence], object], subcase: str) -> None:
    """A defect makes FAILED of exactly one subcase, which passed without it; its sentence says where."""
    before = sound.found()
    assert before[subcase] is Found.PASSED
    spoil(sound)
    after = sound.judge()
    assert {name: each.found for name, each in after.items()} == {**before, subcase: Found.FAILED}
    assert after[subcase].why
    assert after[subcase].observed > 0


def assert_not_seen(evidence: Evidence, *subcases: str) -> None:
    """Exactly these subcases were not seen, and every other one passed."""
    not_seen = {name for name, each in evidence.judge().items() if each.found is Found.NOT_SEEN}
    assert not_seen == set(subcases)
    assert Found.FAILED not in evidence.found().values()
