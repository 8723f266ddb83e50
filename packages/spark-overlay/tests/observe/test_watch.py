"""What a rank's steps are recorded as, by hand-made steps."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from observed_rig import KEY, ListSink, States, scheduled
from ofl.contract.observation_v1 import (
    NO_TAG,
    Blind,
    Decided,
    Published,
    Scheduled,
    ScheduledRequest,
    Verified,
)
from spark_overlay.observe.lives import Lives
from spark_overlay.observe.names import harness_name
from spark_overlay.observe.tags import Tags
from spark_overlay.observe.watch import Use, Watch
from spark_overlay.round.messages import Outcome

K = 4


class Bench:
    """A watch on slots that the test fills."""

    def __init__(self, use: Use | None = None) -> None:
        self.states, self.sink = States(), ListSink()
        self.watch = Watch(self.sink, Tags(KEY, K), Lives(self.states), use or Use("capacity"))

    def step(self, *requests: Any, drafts: Any = None, said: Any = None) -> None:
        self.watch.begin(lambda: requests)
        if said is not None:
            self.watch.decided(lambda: said)
        if drafts is not None:
            self.watch.end(lambda: drafts)


def said(outcomes: list[Outcome], drafts: list[list[int]], reason: str = "", number: int = 1) -> Any:
    values = np.array(outcomes, np.int32)
    return SimpleNamespace(
        round=number,
        reason=reason,
        outcomes=values,
        drafts=np.array(drafts, np.int32),
        confidences=np.array(drafts, np.float32) / 10,
        without=~np.isin(values, (Outcome.OK, Outcome.NO_DRAFT)),
    )


def test_a_step_says_of_each_request_what_was_scheduled_kept_and_valid() -> None:
    bench = Bench()
    bench.states.add_request("other", 3)
    bench.states.add_request("one", 1)
    # 12 tokens from position 20: rows of the first 5 trimmed; 4 drafts at their end, 3 of them rejected.
    bench.step(
        scheduled("one", slot=1, start=20, q=12, kept=7, sampled=2, rejected=3, verified=4, anchor=99),
        scheduled("other", slot=3, start=0, q=8, kept=8, sampled=0, anchor=7),
    )
    anchor = Blind(KEY).tokens("anchor", [99])
    assert bench.sink.of(Scheduled) == [
        Scheduled(
            1,
            (
                ScheduledRequest("one", 1, 2, 12, 7, 4, 25, 2, 4, anchor),
                ScheduledRequest("other", 3, 1, 8, 8, 8, 0, 0, 0, NO_TAG),
            ),
        )
    ]


def test_a_verification_is_of_the_drafts_after_the_last_token_that_was_no_draft() -> None:
    bench = Bench()
    bench.states.add_request("one", 0)
    bench.step(scheduled("one"), said=said([Outcome.OK], [[1, 2, 3, 4]]), drafts=[[1, 2, 3, 4]])
    # The anchor at position 11, then 4 drafts, of which one was rejected.
    bench.step(scheduled("one", start=11, q=5, kept=5, sampled=4, rejected=1, verified=4))
    assert bench.sink.of(Verified) == [Verified(2, "one", 11, 4, 3, "remote")]


@pytest.mark.parametrize(
    ("use", "outcome", "drafts", "source"),
    [
        (Use("capacity"), Outcome.OK, [1, 2, 3, 4], "remote"),
        (Use("capacity"), Outcome.ROUND_FAILED, [0, 0, 0, 0], "none"),
        (Use("resilience"), Outcome.OK, [1, 2, 3, 4], "remote"),
        (Use("resilience"), Outcome.GAP, [1, 2, 3, 4], "local"),
        (Use("shadow", "remote"), Outcome.OK, [1, 2, 3, 4], "remote"),
        (Use("shadow", "remote"), Outcome.ROUND_FAILED, [1, 2, 3, 4], "local"),
        (Use("shadow", "local"), Outcome.OK, [1, 2, 3, 4], "local"),
        (Use(), None, [1, 2, 3, 4], "local"),
    ],
)
def test_a_verification_names_whose_drafts_they_were(
    use: Use, outcome: Outcome | None, drafts: list[int], source: str
) -> None:
    bench = Bench(use)
    bench.states.add_request("one", 0)
    told = None if outcome is None else said([outcome], [drafts])
    bench.step(scheduled("one"), said=told, drafts=[drafts])
    bench.step(scheduled("one", start=11, q=5, kept=5, verified=4, rejected=4))
    assert [record.source for record in bench.sink.of(Verified)] == [source]


def test_drafts_of_another_life_in_the_slot_are_nobodys() -> None:
    bench = Bench(Use())
    bench.states.add_request("one", 0)
    bench.step(scheduled("one"), drafts=[[1, 2, 3, 4]])
    bench.states.add_request("one", 0)
    bench.step(scheduled("one", start=11, q=5, kept=5, verified=4, rejected=4))
    assert [record.source for record in bench.sink.of(Verified)] == ["none"]
    assert [step.requests[0].life for step in bench.sink.of(Scheduled)] == [1, 2]


@pytest.mark.parametrize(
    ("use", "outcomes", "source"),
    [
        (Use("capacity"), [Outcome.GAP, Outcome.OK], "remote"),
        (Use("resilience"), [Outcome.OK, Outcome.NO_DRAFT], "remote"),
        (Use("resilience"), [Outcome.OK, Outcome.GAP], "merged"),
        (Use("shadow", "local"), [Outcome.OK, Outcome.OK], "local"),
        (Use("shadow", "remote"), [Outcome.OK, Outcome.OK], "merged"),
    ],
)
def test_a_decision_says_outcomes_tags_and_whose_drafts_are_handed_on(
    use: Use, outcomes: list[Outcome], source: str
) -> None:
    bench = Bench(use)
    requests = scheduled("one-0123abcd"), scheduled("two", slot=1)
    bench.step(*requests, said=said(outcomes, [[1, 2, 0, 0], [0, 0, 0, 0]], "timeout", 9))
    (decided,) = bench.sink.of(Decided)
    assert (decided.step, decided.round, decided.reason, decided.source) == (1, 9, "timeout", source)
    assert [(each.request, each.outcome) for each in decided.requests] == [
        ("one", outcomes[0].name),
        ("two", outcomes[1].name),
    ]
    assert decided.requests[0].drafts == Blind(KEY).tokens("drafts", [1, 2, 0, 0]) != NO_TAG
    confidences = np.array([0.1, 0.2, 0, 0], np.float32).tobytes()
    assert decided.requests[0].confidences == Blind(KEY).tag("confidences", confidences)
    assert (decided.requests[1].drafts, decided.requests[1].confidences) == (NO_TAG, NO_TAG)


def test_drafts_that_leave_have_the_decisions_tags() -> None:
    bench = Bench()
    block = [[7, 8, 9, 1], [0, 0, 0, 0]]
    bench.step(
        scheduled("one"),
        scheduled("two", slot=1),
        said=said([Outcome.OK, Outcome.GAP], block),
        drafts=[*block, [5, 5, 5, 5]],  # padding of the batch
    )
    (decided,), (published,) = bench.sink.of(Decided), bench.sink.of(Published)
    assert published == Published(1, tuple(each.drafts for each in decided.requests))


def test_tags_pad_and_cut_to_what_the_engine_verifies() -> None:
    tags = Tags(KEY, K)
    assert tags.drafts([3]) == tags.drafts([3, 0, 0, 0]) == tags.drafts([3, 0, 0, 0, 9]) != NO_TAG
    assert tags.drafts([]) == tags.drafts([0, 0]) == tags.confidences([0.0]) == tags.rows(b"") == NO_TAG
    assert tags.rows(b"\0") != NO_TAG


def test_a_hook_that_fails_costs_the_step_nothing_and_is_counted() -> None:
    bench = Bench()

    def fails() -> Any:
        raise KeyError("planted")

    bench.watch.begin(fails)
    bench.watch.decided(fails)
    bench.watch.end(fails)
    assert bench.watch.step == 1
    assert not bench.sink.records
    assert len(bench.sink.defects) == 3
    bench.step(scheduled("one"), drafts=[])  # fewer drafts than requests
    assert len(bench.sink.defects) == 4
    assert bench.sink.of(Scheduled)[0].step == 2


@pytest.mark.parametrize(
    ("engine", "harness"),
    [
        ("one-0123abcd", "one"),
        ("case-1/one-deadbeef", "case-1/one"),
        ("one", "one"),
        ("one-0123ABCD", "one-0123ABCD"),
        ("one-0123abcd\n", "one-0123abcd\n"),
        ("one-0123abc", "one-0123abc"),
    ],
)
def test_what_the_engine_appends_to_a_name_is_taken_off(engine: str, harness: str) -> None:
    assert harness_name(engine) == harness


def test_a_life_begins_where_a_request_is_added_and_the_engines_answer_is_kept() -> None:
    states = States()
    lives = Lives(states)
    assert lives[0] == 0
    states.add_request("one", 0)
    states.add_request("two", 1)
    states.add_request("three", 0)
    assert (lives[0], lives[1]) == (3, 2)
    assert states.req_id_to_index == {"one": 0, "two": 1, "three": 0}


def test_the_records_hold_no_token() -> None:
    bench = Bench()
    marked = 7_654_321
    bench.step(
        replace(scheduled("one"), anchor=marked),
        said=said([Outcome.OK], [[marked] * 4]),
        drafts=[[marked] * 4],
    )
    assert len(bench.sink.records) == 3
    assert str(marked) not in repr(bench.sink.records)
    assert f"{marked:x}" not in repr(bench.sink.records)
