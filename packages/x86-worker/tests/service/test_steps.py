"""Windows, generations, gaps and failing drafters: after every step the drafts are exactly right or
absent."""

import gc
import sys
from dataclasses import replace

import pytest
from drafter_twins import FailingDrafter
from engine_twin import LIMITS, MOCK, EngineTwin, entry, refusal_of, right_draft, shape_of, step
from hypothesis import given, settings
from hypothesis import strategies as st
from ofl.contract.dspark_v1 import (
    EntryFlag,
    Envelope,
    Op,
    RequestStatus,
    StepEntry,
    StepReplyEntry,
    encode_request,
)
from x86_worker.drafters.base import Draft, DraftFailure
from x86_worker.mock import MockShape
from x86_worker.session import DrafterService, EntryFailed
from x86_worker.session.step import run_step

OK, STALE = RequestStatus.OK, RequestStatus.STALE_GENERATION
NEEDS_RESET, GAP, FAILED = RequestStatus.NEEDS_RESET, RequestStatus.GAP, RequestStatus.DRAFTER


class Bench:
    """A service with a drafter that can be told to fail, and one engine in session."""

    def __init__(self, mock: MockShape = MOCK) -> None:
        self.drafter = FailingDrafter(mock)
        self.service = DrafterService(self.drafter, worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
        self.service.connected(1)
        self.engine = EngineTwin(self.service, 1, shape=shape_of(mock))
        self.engine.hello()

    def one(self, sent: StepEntry, life: int = 0) -> StepReplyEntry:
        return self.engine.step(sent, life=life).entries[0]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def assert_right(got: StepReplyEntry, sent: StepEntry, life: int = 0, mock: MockShape = MOCK) -> None:
    assert got.status is OK
    assert Draft(got.drafts, got.confidences, got.margins) == right_draft(sent, life=life, mock=mock)


def test_a_prefill_in_parts_then_rounds_gives_exact_drafts(bench: Bench) -> None:
    bench.one(entry(0, 0, 5, reset=True, n_out=0))
    bench.one(entry(0, 5, 20, n_out=0))
    position = 25
    for n_rows, n_out in ((3, 3), (1, 1), (4, 2), (1, 3)):
        sent = entry(0, position, n_rows, n_out=n_out, anchor=position)
        got = bench.one(sent)
        assert_right(got, sent)
        assert got.window_end == position + n_rows
        position += n_rows


def test_a_reply_says_what_is_held_with_a_margin_of_one_block(bench: Bench) -> None:
    got = bench.one(entry(0, 0, 50, reset=True))
    # The window of 8 before 50 starts at 42; one block of 3 and an anchor more are kept for rollbacks.
    assert (got.window_start, got.window_end) == (38, 50)


def test_the_engine_may_let_rows_go_earlier(bench: Bench) -> None:
    bench.one(entry(0, 0, 50, reset=True))
    got = bench.one(entry(0, 50, 1, window_start=47))
    assert (got.status, got.window_start) == (OK, 47)
    assert bench.one(entry(0, 51, 1, window_start=46)).status is GAP


def test_a_rollback_within_the_margin_is_exact(bench: Bench) -> None:
    bench.one(entry(0, 0, 50, reset=True))
    sent = entry(0, 46, 1, anchor=3)
    assert_right(bench.one(sent, life=0), sent)


def test_after_a_gap_only_a_reset_is_taken(bench: Bench) -> None:
    """The message behind a refused one may fit by its positions, on rows that the refused one was to replace."""
    bench.one(entry(0, 0, 50, reset=True))
    assert bench.one(entry(0, 40, 1)).status is GAP
    got = bench.one(entry(0, 50, 1))
    assert (got.status, got.drafts) == (RequestStatus.NEEDS_RESET, ())
    sent = entry(0, 38, 13, reset=True)
    assert_right(bench.one(sent), sent)


@pytest.mark.parametrize("first", [51, 100, 37, 0])
def test_rows_that_do_not_join_are_a_gap(bench: Bench, first: int) -> None:
    bench.one(entry(0, 0, 50, reset=True))
    got = bench.one(entry(0, first, 2, n_out=0))
    assert (got.status, got.generation, got.window_start, got.window_end) == (GAP, 1, 0, 0)


def test_a_partial_window_drafts_from_what_is_there(bench: Bench) -> None:
    sent = entry(0, 100, 2, reset=True)
    assert sent.flags.name == "RESET|NEED_DRAFT|PARTIAL_WINDOW"
    assert_right(bench.one(sent), sent)
    for position in range(102, 108):
        sent = entry(0, position, 1, window_start=100)
        assert_right(bench.one(sent), sent)


def test_full_attention_keeps_every_row_and_a_partial_window_until_the_end() -> None:
    mock = replace(MOCK, window=0)
    bench = Bench(mock)
    sent = entry(0, 0, 200, reset=True, mock=mock)
    got = bench.one(sent)
    assert_right(got, sent, mock=mock)
    assert got.window_start == 0
    late = entry(1, 64, 100, reset=True, mock=mock)
    assert_right(bench.one(late), late, mock=mock)
    later = entry(1, 164, 1, window_start=64, mock=mock)
    assert EntryFlag.PARTIAL_WINDOW in later.flags
    assert_right(bench.one(later), later, mock=mock)


def test_an_older_generation_is_stale_and_not_applied(bench: Bench) -> None:
    bench.one(entry(0, 0, 20, reset=True, generation=5))
    got = bench.one(entry(0, 20, 1, generation=4))
    assert (got.status, got.generation, got.window_end) == (STALE, 5, 20)
    got = bench.one(entry(0, 0, 20, reset=True, generation=4), life=9)
    assert got.status is STALE
    sent = entry(0, 20, 1, generation=5)
    assert_right(bench.one(sent), sent)


def test_a_newer_generation_needs_a_reset(bench: Bench) -> None:
    bench.one(entry(0, 0, 20, reset=True, generation=5))
    got = bench.one(entry(0, 20, 1, generation=6))
    assert (got.status, got.generation) == (NEEDS_RESET, 5)
    sent = entry(0, 3, 9, generation=6, reset=True)
    assert_right(bench.one(sent, life=4), sent, life=4)


def test_nothing_of_the_request_before_survives_a_reset(bench: Bench) -> None:
    bench.one(entry(0, 0, 20, reset=True, generation=1), life=1)
    sent = entry(0, 4, 9, generation=2, reset=True)
    got = bench.one(sent, life=2)
    assert_right(got, sent, life=2)
    assert got.window_start >= 4


def test_a_slot_never_used_needs_a_reset(bench: Bench) -> None:
    got = bench.one(entry(3, 7, 2))
    assert (got.status, got.generation, got.window_start, got.window_end) == (NEEDS_RESET, 0, 0, 0)


def test_a_slot_whose_rows_were_all_taken_back_needs_a_reset(bench: Bench) -> None:
    bench.one(entry(0, 10, 2, reset=True, n_out=0))
    got = bench.one(entry(0, 10, 0, window_start=10, n_out=0))
    assert (got.status, got.window_start, got.window_end) == (OK, 10, 10)
    assert bench.one(entry(0, 10, 1, window_start=10)).status is NEEDS_RESET


def test_a_draft_may_be_asked_again_without_new_rows(bench: Bench) -> None:
    bench.one(entry(0, 0, 20, reset=True))
    sent = entry(0, 20, 0, anchor=55)
    assert_right(bench.one(sent), sent)


def test_entries_of_one_step_are_independent(bench: Bench) -> None:
    bench.one(entry(2, 0, 20, reset=True, generation=8))
    sent = [
        entry(0, 0, 20, reset=True, anchor=1),
        entry(1, 5, 3, anchor=2),
        entry(2, 20, 1, generation=7, anchor=3),
        entry(3, 30, 4, reset=True, n_out=0),
        entry(4, 30, 4, reset=True, anchor=5),
    ]
    got = bench.engine.step(*sent).entries
    assert [each.status for each in got] == [OK, NEEDS_RESET, STALE, OK, OK]
    assert_right(got[0], sent[0])
    assert_right(got[4], sent[4])
    assert [each.n_out for each in got] == [3, 0, 0, 0, 3]


def test_two_engines_have_separate_windows(bench: Bench) -> None:
    bench.service.connected(2)
    other = EngineTwin(bench.service, 2, name=2)
    other.hello()
    bench.one(entry(0, 0, 20, reset=True), life=1)
    other.step(entry(0, 0, 20, reset=True), life=2)
    sent = entry(0, 20, 1)
    assert_right(bench.one(sent, life=1), sent, life=1)
    assert_right(other.step(sent, life=2).entries[0], sent, life=2)


def test_a_step_that_is_malformed_in_its_last_entry_changes_nothing(bench: Bench) -> None:
    bench.one(entry(0, 0, 20, reset=True))
    good, last = entry(0, 20, 1), entry(1, 0, 20, reset=True)
    wire = bytearray(b"".join(encode_request(Envelope(Op.STEP, 1, 9), step(good, last), bench.engine.shape)))
    wire[32 + 8 + 32 + 4 : 32 + 8 + 32 + 8] = bytes(4)  # generation 0 in the second entry
    bench.engine.send(bytes(wire))
    assert refusal_of(bench.engine.answer.reply).field == "step_entry[1].generation"
    (session,) = bench.service.sessions
    assert {number: (slot.start, slot.end) for number, slot in session.slots.items()} == {0: (8, 20)}


def test_times_are_reported_in_microseconds(bench: Bench) -> None:
    reply = bench.engine.step(entry(0, 0, 20, reset=True))
    assert (reply.queue_us, reply.draft_us) == (3, 7)  # the twin's clock: 0, then 3 us, then 10 us


# --- drafters that fail ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["append", "append half done", "drop_before", "clear", "new_context"])
def test_a_failing_context_costs_its_own_entry_and_needs_a_reset(bench: Bench, call: str) -> None:
    bench.one(entry(0, 0, 20, reset=True))
    victim = {
        "clear": entry(0, 0, 20, reset=True, generation=2),
        "new_context": entry(2, 0, 20, reset=True),
    }.get(call, entry(0, 20, 5))
    bench.drafter.fail_next = call
    beside = entry(1, 0, 20, reset=True)
    got = bench.engine.step(victim, beside).entries
    assert got[0].status is FAILED
    assert (got[0].window_start, got[0].window_end, got[0].n_out) == (0, 0, 0)
    assert_right(got[1], beside)
    (event,) = bench.engine.answer.events
    assert isinstance(event, EntryFailed)
    assert (event.slot, "MemoryError: out of memory" in event.reason) == (victim.slot, True)
    assert bench.one(entry(victim.slot, 25, 1, generation=2)).status is NEEDS_RESET
    again = entry(victim.slot, 10, 15, reset=True, generation=2)
    assert_right(bench.one(again), again)


def test_a_failing_draft_costs_every_entry_that_wanted_one_and_no_other(bench: Bench) -> None:
    bench.drafter.fail_next = "draft"
    wanting, appending = entry(0, 0, 20, reset=True), entry(1, 0, 20, reset=True, n_out=0)
    got = bench.engine.step(wanting, appending).entries
    assert [each.status for each in got] == [FAILED, OK]
    assert bench.one(entry(0, 20, 1)).status is NEEDS_RESET
    sent = entry(1, 20, 1)
    assert_right(bench.one(sent), sent)


@pytest.mark.parametrize(
    "result",
    [
        DraftFailure("its logits are not finite"),
        Draft((1, 2), (0.5, 0.5), (1.0, 1.0)),
        Draft((1, 2, 1000), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)),
        Draft((1, 2, 3), (0.5, 0.5, float("nan")), (1.0, 1.0, 1.0)),
        Draft((1, 2, 3), (0.5, 0.5, 0.5), (1.0, 1.0, float("inf"))),
    ],
)
def test_a_result_that_may_not_leave_fails_its_entry_alone(
    bench: Bench, result: Draft | DraftFailure
) -> None:
    sent = entry(0, 0, 20, reset=True), entry(1, 0, 20, reset=True)
    bench.drafter.results = [result, right_draft(sent[1])]
    got = bench.engine.step(*sent).entries
    assert got[0].status is FAILED
    assert_right(got[1], sent[1])
    assert bench.one(entry(0, 20, 1)).status is NEEDS_RESET


def test_too_few_results_fail_the_round(bench: Bench) -> None:
    bench.drafter.results = []
    got = bench.one(entry(0, 0, 20, reset=True))
    assert got.status is FAILED


def test_contexts_are_made_once_per_slot(bench: Bench) -> None:
    for generation in range(1, 1000):
        sent = entry(0, 0, 12, reset=True, generation=generation)
        assert_right(bench.one(sent, life=generation), sent, life=generation)
    assert bench.drafter.contexts_made == 1


def test_ten_thousand_requests_in_one_slot_leave_the_memory_flat(bench: Bench) -> None:
    (session,) = bench.service.sessions

    def serve(first_generation: int, count: int) -> None:
        for generation in range(first_generation, first_generation + count):
            sent = step(
                entry(0, 0, 9, reset=True, generation=generation), entry(1, 3, 2, generation=generation)
            )
            run_step(session, sent, bench.drafter)

    serve(1, 200)
    gc.collect()
    before = sys.getallocatedblocks()
    serve(1000, 10_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


# --- any history -----------------------------------------------------------------------------------------

Move = tuple[str, int, int, int]
MOVES: st.SearchStrategy[list[Move]] = st.lists(
    st.tuples(
        st.sampled_from(("extend", "rollback", "reset", "skip", "new", "old", "fail")),
        st.integers(0, 2),  # slot
        st.integers(0, 12),  # rows or distance
        st.integers(0, 3),  # n_out
    ),
    max_size=40,
)


@given(MOVES, st.sampled_from((0, 1, 8)))
@settings(max_examples=150)
def test_after_any_history_a_draft_is_exactly_right_or_the_entry_says_why(
    moves: list[Move], window: int
) -> None:
    """The engine's own record of true rows decides; life numbers mark rows of earlier generations as
    wrong."""
    mock = replace(MOCK, window=window)
    bench = Bench(mock)
    generations, ends = [1, 1, 1], [0, 0, 0]
    for move, slot, amount, n_out in moves:
        reset = move in ("reset", "new")
        if move == "new":
            generations[slot] += 1
        generation = max(1, generations[slot] - (move == "old"))
        first = ends[slot]
        if move == "rollback":
            first = max(0, first - amount)
        elif move == "skip":
            first += amount
        n_rows = max(1, amount) if reset or move != "rollback" else 1
        if first + n_rows > 250:
            continue
        if move == "fail":
            bench.drafter.fail_next = "append half done"
        sent = entry(slot, first, n_rows, reset=reset, generation=generation, n_out=n_out, mock=mock)
        got = bench.one(sent, life=generation)
        bench.drafter.fail_next = None
        assert got.status in RequestStatus
        if got.status is OK:
            ends[slot] = first + n_rows
            if n_out:
                assert_right(got, sent, life=generation, mock=mock)
        else:
            assert got.drafts == ()
