"""The circuit breaker in real rounds over a simulated transport: what opens it, what it spares, how it closes."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import drafter_rig
import pytest
from drafter_rig import DrafterRig, make_settings
from ofl.contract.dspark_v1 import RequestStatus, Status, StepEntry, StepReplyEntry
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.simulation.worker import drafts_of

FACTS = replace(drafter_rig.FACTS, max_positions=5000)
TRIP, COOLDOWN = 3, 5


class Rig(DrafterRig):
    """Requests in slots 0 and 1, their rows kept."""

    def __init__(self, trip: int = TRIP, cooldown: int = COOLDOWN) -> None:
        super().__init__(make_settings(TRIP=str(trip), COOLDOWN=str(cooldown)), FACTS)
        self.rows: list[list[bytes]] = [[], []]

    def requests(self, n_out: int = 4, slots: tuple[int, ...] = (0,)) -> list[RoundRequest]:
        """One new row each, and the wish for n_out drafts."""
        made = []
        for index, slot in enumerate(slots):
            made.append(RoundRequest(slot, f"r{slot}", len(self.rows[slot]), 1, index, 5, n_out))
            self.rows[slot].append(os.urandom(FACTS.row_bytes))
        return made

    def step(self, n_out: int = 4, slots: tuple[int, ...] = (0,)) -> RoundResult:
        """One round; drafts, where there are any, are those of the true window."""
        requests = self.requests(n_out, slots)
        result = self.drafter.round(requests, b"".join(self.rows[slot][-1] for slot in slots))
        for index, slot in enumerate(slots):
            if result.ok[index]:
                expected = drafts_of(self.rows[slot][-FACTS.window :], 5, n_out, FACTS.vocabulary)
                assert tuple(result.drafts[index].tolist()) == expected
        return result

    def breaker(self) -> dict[str, Any]:
        breaker = self.drafter.stats()["breaker"]
        assert isinstance(breaker, dict)
        return breaker

    def opened(self) -> "Rig":
        """Connected, with a worker that stopped answering until the breaker opened."""
        self.connect()
        self.step()
        self.transport.silent = True
        for _ in range(TRIP):
            assert self.step().reason == "timeout"
        assert self.breaker()["state"] == "open"
        return self

    def half_open(self) -> "Rig":
        self.opened()
        for _ in range(COOLDOWN):
            assert self.step().reason == "cooldown"
        assert self.breaker()["state"] == "half_open"
        return self


def test_it_opens_spares_the_network_and_closes_after_a_probe_with_exact_drafts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig().opened()
    rig.transport.silent = False
    sent = len(rig.transport.requests)
    for left in reversed(range(COOLDOWN)):
        result = rig.step()
        assert result.reason == "cooldown"
        assert result.outcomes.tolist() == [Outcome.ROUND_FAILED]
        assert not result.drafts.any()
        assert rig.breaker()["cooldown_left"] == left
    assert len(rig.transport.requests) == sent, "nothing was sent"
    assert rig.breaker()["state"] == "half_open"
    assert rig.step().ok.all(), "the probe drafts from the rows that were kept meanwhile"
    assert rig.breaker() == {
        "state": "closed",
        "consecutive_failures": 0,
        "cooldown_left": 0,
        "trips": 1,
        "trip": TRIP,
        "cooldown": COOLDOWN,
    }
    counters = rig.counters()
    assert (counters["breaker_trips"], counters["breaker_recoveries"]) == (1, 1)
    assert counters["fallback_cooldown"] == COOLDOWN
    assert counters["rounds_failed"] == TRIP + COOLDOWN
    lines = [record.getMessage() for record in caplog.records if "circuit breaker" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith(
        "remote DSpark circuit breaker open (3 failed attempts in a row, the last: timeout"
    )
    assert "the next 5 rounds" in lines[0]
    assert lines[1] == "remote DSpark circuit breaker closed: the probe round succeeded"


def test_probes_that_keep_failing_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The shortest cooldown makes every other round a probe."""
    caplog.set_level(logging.INFO)
    rig = Rig(cooldown=1)
    rig.connect()
    for _ in range(2):
        rig.transport.silent = True
        for _ in range(200):
            rig.step()
        rig.transport.silent = False
        while not rig.step().ok.all():
            pass
    lines = [
        record.getMessage() for record in caplog.records if "circuit breaker open" in record.getMessage()
    ]
    told = [line.partition("(")[2].split()[0] for line in lines]
    assert told == ["3", "6", "12", "24", "48", "96"] * 2


def test_a_probe_that_fails_opens_it_for_another_cooldown() -> None:
    rig = Rig().half_open()
    assert rig.step().reason == "timeout"
    assert [rig.step().reason for _ in range(COOLDOWN + 1)] == ["cooldown"] * COOLDOWN + ["timeout"]


def answer_nothing(rig: Rig) -> None:
    rig.transport.silent = True


def let_nothing_leave(rig: Rig) -> None:
    rig.transport.stuck = True


def lose_the_connection(rig: Rig) -> None:
    if rig.drafter.link.session is None:
        rig.connect()
    rig.transport.kill()


def answer_garbage(rig: Rig) -> None:
    rig.transport.change = lambda body: body[:-1]


def refuse_with(status: Status) -> Callable[[Rig], None]:
    def refuse(rig: Rig) -> None:
        if rig.drafter.link.session is None:
            rig.connect()
        rig.worker.refuse_with = status

    return refuse


def refuse_every_request_with(status: RequestStatus) -> Callable[[Rig], None]:
    def refuse(rig: Rig) -> None:
        if rig.drafter.link.session is None:
            rig.connect()
        worker = rig.worker
        newer = status is RequestStatus.STALE_GENERATION

        def refused(entry: StepEntry, rows: bytes) -> StepReplyEntry:
            return replace(worker._failed(entry, status), generation=entry.generation + newer)

        worker._entry = refused  # type: ignore[method-assign]

    return refuse


FAULTS = (
    {
        "timeout": answer_nothing,
        "not sent in time": let_nothing_leave,
        "connection lost": lose_the_connection,
        "bad reply": answer_garbage,
    }
    | {f"frame {status.name}": refuse_with(status) for status in Status if status is not Status.OK}
    | {
        f"request {status.name}": refuse_every_request_with(status)
        for status in RequestStatus
        if status is not RequestStatus.OK
    }
)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_kind_of_failed_attempt_opens_it_after_as_many_in_a_row(fault: str) -> None:
    rig = Rig()
    rig.connect()
    assert rig.step().ok.all()
    failures = 0
    for _ in range(4 * TRIP):
        FAULTS[fault](rig)
        result = rig.step()
        assert not result.ok.any()
        failures += result.reason != "not_ready"
        assert rig.breaker()["consecutive_failures"] == failures
        if rig.breaker()["state"] == "open":
            break
    assert failures == TRIP
    assert rig.breaker()["trips"] == 1


def test_a_round_in_which_only_some_fail_is_a_success() -> None:
    rig = Rig()
    rig.connect()
    for _ in range(5 * TRIP):
        rig.worker.fail_slots = {0}
        assert rig.step(slots=(0, 1)).outcomes.tolist() == [Outcome.DRAFTER, Outcome.OK]
        assert rig.breaker()["consecutive_failures"] == 0


def test_rounds_without_a_connection_do_not_count() -> None:
    rig = Rig()
    for _ in range(5 * TRIP):
        assert rig.step().reason == "not_ready"
    assert rig.breaker()["consecutive_failures"] == 0


def test_a_disabled_remote_does_not_count() -> None:
    rig = Rig()
    rig.worker.shape = replace(rig.worker.shape, identity=bytes(32))
    rig.drafter.link.attempt()
    for _ in range(5 * TRIP):
        assert rig.step().reason == "disabled"
    assert rig.breaker()["consecutive_failures"] == 0


def test_a_connection_that_changed_before_anything_was_sent_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.connect()
    rig.replace_connections(monkeypatch)
    for _ in range(2 * TRIP):
        assert rig.step().reason == "reconnected"
    assert rig.breaker()["consecutive_failures"] == 0


def test_a_defect_of_ours_does_not_count() -> None:
    rig = Rig()
    for _ in range(2 * TRIP):
        rig.connect()
        assert rig.drafter.round([None], b"").reason == "internal_error"  # type: ignore[list-item]  # the defect
    assert rig.breaker()["consecutive_failures"] == 0


def test_a_connection_found_dead_before_anything_was_sent_does_not_count() -> None:
    rig = Rig()
    for _ in range(2 * TRIP):
        rig.connect()
        rig.transport.silent = True
        rig.step(n_out=0)
        rig.transport.kill()
        assert rig.step().reason == "transport_error", "found while looking for the acknowledgement"
    assert rig.breaker()["consecutive_failures"] == 0


@pytest.mark.parametrize(
    "request_",
    [RoundRequest(2, "c", 20, 0, 0, 5, 4), RoundRequest(2, "c", 0, 1, 0, -1, 4)],
    ids=["no row known yet", "described wrongly"],
)
def test_wishes_withheld_on_our_side_do_not_count(request_: RoundRequest) -> None:
    rig = Rig()
    rig.connect()
    rig.worker.fail_slots = {0}
    rig.step()
    for _ in range(2 * TRIP):
        result = rig.drafter.round([request_], bytes(FACTS.row_bytes))
        assert result.outcomes.tolist() in ([Outcome.NO_CONTEXT], [Outcome.BAD_REQUEST])
        assert rig.breaker()["consecutive_failures"] == 1, "neither a success nor a failure"


def test_context_alone_neither_counts_nor_begins_the_count_again() -> None:
    rig = Rig()
    rig.connect()
    for failures in (1, 2):
        rig.worker.fail_slots = {0}
        rig.step()
        for _ in range(5):
            assert rig.step(n_out=0).outcomes.tolist() == [Outcome.NO_DRAFT]
        assert rig.breaker()["consecutive_failures"] == failures


def test_context_that_cannot_be_sent_in_time_counts_as_it_costs_its_deadline() -> None:
    rig = Rig()
    rig.connect()
    rig.transport.stuck = True
    for _ in range(TRIP):
        assert rig.step(n_out=0).reason == "timeout"
    assert rig.breaker()["state"] == "open"


def test_context_alone_does_not_use_up_the_probe_and_is_sent() -> None:
    rig = Rig().half_open()
    sent = len(rig.transport.requests)
    for _ in range(3):
        rig.step(n_out=0)
        assert rig.breaker()["state"] == "half_open"
    assert len(rig.transport.requests) == sent + 3
    rig.transport.silent = False
    assert rig.step().ok.all()
    assert rig.breaker()["state"] == "closed"


def test_while_open_context_alone_is_kept_and_counted_as_such() -> None:
    rig = Rig().opened()
    sent, before = len(rig.transport.requests), rig.counters()["rounds_append_only"]
    rig.step(n_out=0)
    assert len(rig.transport.requests) == sent
    assert rig.counters()["rounds_append_only"] == before + 1
    assert rig.counters()["fallback_cooldown"] == 0
    assert rig.breaker()["cooldown_left"] == COOLDOWN - 1


def test_while_open_acknowledgements_are_still_taken() -> None:
    rig = Rig()
    rig.connect()
    rig.transport.silent = True
    rig.step(n_out=0)
    for _ in range(TRIP):
        rig.step()
    assert rig.breaker()["state"] == "open"
    assert len(rig.drafter.core.session.outstanding) == 1
    rig.transport.silent = False
    assert rig.step().reason == "cooldown"
    assert len(rig.drafter.core.session.outstanding) == 0


def test_an_open_breaker_survives_a_reconnect_to_the_same_life() -> None:
    rig = Rig().opened()
    rig.transport.kill()
    rig.drafter.link.turn()
    assert rig.drafter.link.session is None
    rig.connect()
    assert [rig.step().reason for _ in range(COOLDOWN)] == ["cooldown"] * COOLDOWN


def test_a_restarted_worker_is_probed_at_once() -> None:
    rig = Rig(cooldown=1000)
    rig.opened()
    rig.transport.kill()
    rig.drafter.link.turn()
    rig.worker.restart()
    rig.connect()
    assert rig.step().ok.all()
    assert rig.breaker()["state"] == "closed"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_worker_that_never_answers_costs_a_deadline_once_a_cooldown(restarts: bool) -> None:
    """Also one that loses its connection every few rounds, and also one that has a new life in each."""
    rig = Rig(cooldown=50)
    rounds, timeouts = 1000, 0
    for number in range(rounds):
        if number % 7 == 0:
            if rig.drafter.link.session is not None:
                rig.transport.kill()
                rig.drafter.link.turn()
            if restarts:
                rig.worker.restart()
            rig.connect()
            rig.transport.silent = True
        timeouts += rig.step().reason == "timeout"
    probes_a_cooldown = 2 if restarts else 1
    assert TRIP < timeouts <= TRIP + probes_a_cooldown * (rounds // 50 + 1)


def test_zero_turns_it_off() -> None:
    rig = Rig(trip=0)
    rig.connect()
    rig.transport.silent = True
    assert {rig.step().reason for _ in range(50)} == {"timeout"}
    assert rig.breaker()["state"] == "closed"
    assert rig.counters()["breaker_trips"] == 0
