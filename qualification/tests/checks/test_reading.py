"""Evidence that is torn, spliced or of different work makes EvidenceError; nothing that is missing makes PASS."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofl.contract import observation_v1 as seen
from qualification.checks import no_local_drafter
from qualification.checks.model import Check, EvidenceError, Found, Verdict, verdict_of
from qualification.checks.registry import all_checks
from synthetic_evidence import HARNESS, OFF, ON, Evidence

DRIVEN = [check for check in all_checks() if not check.missing]
REMOTE = [check for check in DRIVEN if check.on.speculation == "remote"]
CHECK = no_local_drafter.CHECK
Spoil = Callable[[Evidence], object]
SOUND = {check.name: Evidence(check) for check in DRIVEN}


def copy_of(check: Check) -> Evidence:
    """The sound evidence of a check, made once."""
    made = Evidence.__new__(Evidence)
    made.check, made.arms = check, dict(SOUND[check.name].arms)
    return made


def reverdict(evidence: Evidence) -> Verdict:
    return verdict_of(evidence.check, tuple(evidence.judge().values()))


@pytest.mark.parametrize("check", DRIVEN, ids=lambda check: check.name)
@given(data=st.data())
def test_a_line_that_is_gone_makes_a_file_unusable(check: Check, data: st.DataObject) -> None:
    evidence = copy_of(check)
    arm = data.draw(st.sampled_from([OFF, ON]))
    rank = data.draw(st.integers(0, len(evidence.arms[arm].ranks) - 1))
    ranks = list(evidence.arms[arm].ranks)
    lost = data.draw(st.integers(0, len(ranks[rank]) - 1))
    ranks[rank] = [line for at, line in enumerate(ranks[rank]) if at != lost]
    evidence.arms[arm] = replace(evidence.arms[arm], ranks=ranks)
    with pytest.raises(EvidenceError):
        evidence.judge()


@pytest.mark.parametrize("check", DRIVEN, ids=lambda check: check.name)
@given(data=st.data())
def test_a_record_that_was_never_written_adds_no_pass(check: Check, data: st.DataObject) -> None:
    """Whatever hook failed silently: what was not passed before is not passed without its record."""
    evidence = copy_of(check)
    before = evidence.found()
    arm = data.draw(st.sampled_from([OFF, ON]))
    rank = data.draw(st.integers(HARNESS, len(evidence.arms[arm].ranks) - 1))
    records = evidence.records(arm, rank)
    lost = data.draw(st.integers(0, len(records) - 1))
    evidence.put(arm, rank, [record for at, record in enumerate(records) if at != lost])
    try:
        after = evidence.found()
    except EvidenceError:
        return
    assert all(before[name] is Found.PASSED for name, found in after.items() if found is Found.PASSED)


@pytest.mark.parametrize("check", REMOTE, ids=lambda check: check.name)
@given(data=st.data())
def test_a_wrong_reply_cannot_be_hidden_by_losing_a_record(check: Check, data: st.DataObject) -> None:
    """Words, drafts and steps that belong to a failed thing are missed where they are gone."""
    evidence = copy_of(check)
    replies = [
        record for record in evidence.records(ON) if isinstance(record, seen.Exchanged) and record.awaited
    ]
    wrong = data.draw(st.sampled_from([reply for reply in replies if reply.reply == "in time"]))
    evidence.change(ON, 0, lambda record: record == wrong, round_echoed=wrong.round + 1)
    if Found.FAILED not in evidence.found().values():
        return  # not a reply that this check asks about
    failed = {name for name, found in evidence.found().items() if found is Found.FAILED}
    kinds = (seen.Scheduled, seen.Decided, seen.Published, seen.Exchanged)
    records = evidence.records(ON)
    lost = data.draw(st.sampled_from([r for r in records if isinstance(r, kinds) and r.step == wrong.step]))
    evidence.put(ON, 0, [record for record in records if record is not lost])
    try:
        after = evidence.found()
    except EvidenceError:
        return
    assert all(after[name] is not Found.PASSED for name in failed)


@pytest.mark.parametrize("check", DRIVEN, ids=lambda check: check.name)
def test_a_check_whose_requests_nobody_sent_sees_nothing(check: Check) -> None:
    evidence = Evidence(check, drive=_somebody_elses)
    assert reverdict(evidence) is Verdict.NOT_RUN
    assert set(evidence.found().values()) == {Found.NOT_SEEN}


def _somebody_elses(engine: Any) -> None:
    from qualification.checks.model import Prompt

    engine.submit("other.1", Prompt(300, seed=1), 32)
    engine.run()


def facts(**changes: Any) -> Spoil:
    return lambda evidence: evidence.change(ON, 0, lambda record: isinstance(record, seen.Facts), **changes)


def closed(**changes: Any) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        ranks = list(evidence.arms[ON].ranks)
        last = ranks[0][-1]
        ranks[0] = [*ranks[0][:-1], replace(last, record=replace(last.record, **changes))]
        evidence.arms[ON] = replace(evidence.arms[ON], ranks=ranks)

    return spoil


def twice(kind: type[Any], rank: int = 0) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        records = evidence.records(ON, rank)
        at = next(index for index, record in enumerate(records) if isinstance(record, kind))
        evidence.put(ON, rank, [*records[: at + 1], records[at], *records[at + 1 :]])

    return spoil


def gone(kind: type[Any], arm: str = ON, rank: int = 0) -> Spoil:
    def spoil(evidence: Evidence) -> None:
        records = evidence.records(arm, rank)
        last = [record for record in records if isinstance(record, kind)][-1]
        evidence.drop(arm, rank, lambda record: record is last)

    return spoil


def case_open(evidence: Evidence) -> None:
    evidence.drop(ON, HARNESS, lambda record: isinstance(record, seen.Case) and not record.begins)


def other_work(evidence: Evidence) -> None:
    evidence.change(OFF, HARNESS, lambda record: isinstance(record, seen.Completed), prompt_tokens=7)


def no_ranks(evidence: Evidence) -> None:
    evidence.arms[ON] = replace(evidence.arms[ON], ranks=[])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (facts(schema="observation-v2"), "schema"),
        (facts(start_id=""), "start"),
        (facts(arm="remote_2"), "arm"),
        (facts(rank=1), "ranks"),
        (facts(ranks=2), "ranks"),
        (closed(dropped=1), "dropped"),
        (closed(records=3), "lines were written"),
        (twice(seen.Facts), "more than one start"),
        (twice(seen.Scheduled), "follows step"),
        (twice(seen.Decided), "decided twice"),
        (twice(seen.Published), "left twice"),
        (twice(seen.Completed, HARNESS), "ended twice"),
        (gone(seen.Facts), "begin with its facts"),
        (gone(seen.Scheduled), "not scheduled before"),
        (gone(seen.Decided), "after the broadcast"),
        (gone(seen.Published), "left the drafter"),
        (gone(seen.Published, OFF), "left the drafter"),
        (gone(seen.Completed, ON, HARNESS), "not both"),
        (case_open, "did not end"),
        (other_work, "different work"),
        (no_ranks, "ranks"),
    ],
)
def test_evidence_that_cannot_be_judged_is_refused_with_a_reason(spoil: Spoil, told: str) -> None:
    evidence = copy_of(CHECK)
    spoil(evidence)
    with pytest.raises(EvidenceError, match=told):
        evidence.judge()


def test_ranks_of_two_starts_are_refused() -> None:
    check = next(check for check in DRIVEN if check.on.ranks == 2)
    evidence = copy_of(check)
    evidence.change(ON, 1, lambda record: isinstance(record, seen.Facts), start_id="another")
    with pytest.raises(EvidenceError, match="start_id"):
        evidence.judge()


def test_steps_of_a_drafter_in_an_arm_without_one_are_refused() -> None:
    check = next(check for check in DRIVEN if check.off.speculation == "none")
    evidence = copy_of(check)
    records = evidence.records(OFF)
    evidence.put(OFF, 0, [records[0], seen.Scheduled(1, ()), records[-1]])
    with pytest.raises(EvidenceError, match="where none should be"):
        evidence.judge()
