"""What the transport saw of each message: as the drafter was told, and what came after it had given up."""

from pathlib import Path

import pytest
from drafter_rig import FACTS
from observed_rig import KEY, ObservedRig, replies
from ofl.contract.observation_v1 import NO_TAG, Blind, Decided, Drafter
from ofl.errors import CancelledError
from spark_overlay.interface import LocalDrafts
from spark_overlay.observe.exchanges import LATE_MAX, ObservedTransport
from spark_overlay.observe.watch import Use


@pytest.fixture
def rig(tmp_path: Path) -> ObservedRig:
    made = ObservedRig(tmp_path, TRIP="0")
    made.connect()
    return made


def test_a_message_and_its_reply_are_told_entry_by_entry(rig: ObservedRig) -> None:
    result = rig.step(8)
    assert result.ok.all()
    (exchanged,) = rig.exchanges()
    assert (exchanged.step, exchanged.epoch, exchanged.awaited, exchanged.reply) == (1, 1, True, "in time")
    assert (exchanged.epoch_echoed, exchanged.round_echoed) == (1, exchanged.round)
    (slot,) = exchanged.slots
    assert (slot.request, slot.slot, slot.generation, slot.generation_echoed) == ("one", 0, 1, 1)
    # Of 8 rows a window of 6 needs the last ones only.
    assert (slot.first_position + slot.n_rows, slot.reset, slot.need_draft, slot.n_out) == (8, True, True, 4)
    assert (slot.status, slot.partial_window) == ("OK", False)
    assert slot.held_from == slot.first_position
    body = rig.transport.requests[-1]
    sent = body[-slot.n_rows * FACTS.row_bytes :]
    assert slot.rows == Blind(KEY).tag("rows", sent)
    (decided,) = rig.sink.of(Decided)
    assert slot.drafts == decided.requests[0].drafts == Blind(KEY).tokens("drafts", result.drafts[0].tolist())
    assert not rig.sink.defects


def test_a_message_that_nobody_waits_for_is_told_once_its_acknowledgement_is_read(rig: ObservedRig) -> None:
    rig.step(8, n_out=0)
    assert not rig.exchanges()
    rig.step(2)
    assert [(seen.step, seen.awaited, seen.reply) for seen in rig.exchanges()] == [
        (1, False, "in time"),
        (2, True, "in time"),
    ]
    assert rig.exchanges()[0].slots[0].drafts == NO_TAG


def test_a_late_reply_is_seen_with_its_drafts_and_never_handed_on(rig: ObservedRig) -> None:
    rig.transport.silent = True
    assert rig.step(8).reason == "timeout"
    assert not rig.exchanges()
    rig.transport.silent = False
    result = rig.step(1)
    late, in_time = rig.exchanges()
    assert (late.step, late.reply) == (1, "late")
    assert (in_time.step, in_time.reply) == (2, "in time")
    assert NO_TAG != late.slots[0].drafts != in_time.slots[0].drafts
    assert result.ok.all()
    assert rig.sink.of(Decided)[1].requests[0].drafts == in_time.slots[0].drafts


def test_a_reply_that_never_comes_is_told_when_the_connection_is_over(rig: ObservedRig) -> None:
    rig.transport.silent = True
    rig.step(8)
    rig.transport.kill()
    rig.step(1)
    assert [(seen.step, seen.reply) for seen in rig.exchanges()] == [(1, "none"), (2, "none")]
    assert (rig.exchanges()[0].epoch_echoed, rig.exchanges()[0].slots[0].generation_echoed) == (-1, -1)


def test_what_is_open_when_the_drafter_ends_has_no_reply(rig: ObservedRig) -> None:
    rig.transport.silent = True
    rig.step(8)
    rig.transport.silent = False
    rig.drafter.close()
    rig.observer.close()
    assert replies(rig.exchanges()) == ["none"]


def test_given_up_calls_are_bounded_and_the_oldest_is_really_given_up(rig: ObservedRig) -> None:
    rig.transport.silent = True
    for _ in range(LATE_MAX + 2):
        rig.step(1)
    assert replies(rig.exchanges()) == ["none"] * 2
    assert len(rig.transport.cancelled) == 2


def test_a_refusal_is_told_as_one(rig: ObservedRig) -> None:
    rig.worker.forget_session()
    assert rig.step(8).reason == "frame_no_session"
    (exchanged,) = rig.exchanges()
    assert (exchanged.reply, exchanged.round_echoed) == ("refused", exchanged.round)
    assert (exchanged.slots[0].status, exchanged.slots[0].generation_echoed) == ("", -1)


@pytest.mark.parametrize(
    ("change", "echoed"),
    [
        (lambda body: body[:-1], False),  # the header's length no longer fits
        (lambda body: b"", False),
        (lambda body: body[:16] + bytes([body[16] ^ 1]) + body[17:], True),  # the echoed round
    ],
)
def test_a_reply_that_the_contract_does_not_allow_is_unreadable_and_says_what_it_echoes(
    rig: ObservedRig, change: object, echoed: bool
) -> None:
    rig.transport.change = change  # type: ignore[assignment]
    assert rig.step(8).reason == "bad_reply"
    (exchanged,) = rig.exchanges()
    assert exchanged.reply == "unreadable"
    assert (exchanged.round_echoed == exchanged.round ^ 1) == echoed
    assert (exchanged.slots[0].generation_echoed == 1) == echoed


def test_a_status_is_told_by_name(rig: ObservedRig) -> None:
    rig.step(8)
    rig.worker.forget_slot(0)
    rig.step(1)
    assert rig.exchanges()[1].slots[0].status == "NEEDS_RESET"
    assert rig.exchanges()[1].slots[0].drafts == NO_TAG


def test_what_never_left_and_can_be_sent_again_is_not_told(rig: ObservedRig) -> None:
    rig.transport.stuck = True
    assert rig.step(8).reason == "timeout"
    rig.transport.stuck = False
    rig.step(1)
    assert replies(rig.exchanges()) == ["in time"]


def test_a_message_that_died_with_its_connection_is_told(rig: ObservedRig) -> None:
    rig.transport.kill()
    assert rig.step(8).reason == "transport_error"
    assert [(seen.step, seen.reply) for seen in rig.exchanges()] == [(1, "none")]


def test_a_second_connection_is_watched_like_the_first(rig: ObservedRig) -> None:
    rig.step(8)
    rig.transport.kill()
    rig.step(1)
    rig.connect()
    rig.step(1)
    assert [(seen.epoch, seen.reply) for seen in rig.exchanges()] == [
        (1, "in time"),
        (1, "none"),
        (2, "in time"),
    ]


def test_a_hook_that_fails_changes_no_round(rig: ObservedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(rig.observer.watch.tags, "rows", fails)
    assert rig.step(8).ok.all()
    assert len(rig.sink.defects) == 1
    monkeypatch.undo()
    monkeypatch.setattr(rig.observer.watch.tags, "drafts", fails)
    assert rig.step(1).ok.all()
    assert len(rig.sink.defects) == 4  # exchanged, decided, published


def test_it_is_a_transport_in_everything_else(rig: ObservedRig) -> None:
    session = rig.drafter.link.session
    assert session is not None
    transport = session.transport
    assert isinstance(transport, ObservedTransport)
    assert transport.peer is rig.transport.peer
    assert transport.alive
    assert not transport.cancel(77)
    with pytest.raises(CancelledError):
        transport.wait(77, deadline_ns=0)
    transport.close()
    assert not transport.alive


def compared(tmp_path: Path, change: int | None, rows: int = 8) -> list[Drafter]:
    """What a shadow step says where the local drafter differs from position `change` on."""
    rig = ObservedRig(tmp_path, Use("shadow", "local"), POLICY="shadow", TRIP="0")
    rig.connect()
    result = rig.step(rows)
    local = result.drafts.astype("int64")
    if change is not None:
        local[:, change:] = (local[:, change:] + 1) % FACTS.vocabulary
    rig.drafter.record_local(LocalDrafts(local, 40.0), [], result)
    assert not rig.sink.defects
    return rig.sink.of(Drafter)


@pytest.mark.parametrize(("change", "common", "margin"), [(None, 4, 0.0), (2, 2, 1.0), (0, 0, 1.0)])
def test_two_drafters_of_one_state_are_compared_up_to_where_they_differ(
    tmp_path: Path, change: int | None, common: int, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_overlay.rounds.Figures.compared", lambda *_: None)
    assert compared(tmp_path, change) == [Drafter(1, "one", 4, common, margin)]


def test_a_block_that_reaches_past_the_longest_sequence_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_overlay.rounds.Figures.compared", lambda *_: None)
    assert compared(tmp_path, None, rows=FACTS.max_positions - 4) == []
