"""The simulation catches defects: each is planted in the code that an engine runs, and nothing else is wrong.

A defect is a replacement of one function or two, and the runs in which it must show within so many rounds.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from ofl.contract.dspark_v1 import Envelope, Kind, Reply, Request, Shape, peek, rules
from ofl.contract.dspark_v1 import decode_reply as true_decode_reply
from ofl.contract.records import Buffer
from ofl.errors import DeadlineError
from spark_overlay.agreement import Agreement
from spark_overlay.driver import RoundDriver
from spark_overlay.greeting import Session
from spark_overlay.link import Link
from spark_overlay.round import core as core_module
from spark_overlay.round.breaker import Breaker, State
from spark_overlay.round.core import RoundCore
from spark_overlay.round.framing import FrameBuilder
from spark_overlay.round.messages import RoundResult
from spark_overlay.round.plan import Piece, Plan
from spark_overlay.round.ring import Ring
from spark_overlay.round.session import Frame, SessionState
from spark_overlay.round.slots import Slot
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.simulation.engine_life import Policy
from spark_overlay.simulation.hazards import Rates
from spark_overlay.simulation.ranks import Drafts, Rank, Step
from spark_overlay.simulation.workload import Rates as WorkloadRates
from spark_overlay.simulation.world import SimulationFailedError
from spark_overlay.vllm_seam.acceptance import AcceptanceLedger

from demo.simulated.scenarios import simulation

ROUNDS = 400
Runs = tuple[tuple[int, Policy, int], ...]
"""Seed, policy and window of each."""
CAPACITY: Runs = ((0, "capacity", 8), (1, "capacity", 0))
FULL_ATTENTION: Runs = tuple((seed, "capacity", 0) for seed in range(4))


@dataclass(frozen=True)
class Defect:
    """What is planted where (owner, name, replacement), and the runs that must show it.

    changes: of their scenarios.
    """

    name: str
    planted: tuple[tuple[Any, str, Any], ...]
    runs: Runs = CAPACITY
    changes: dict[str, Any] = field(default_factory=dict)


whole_store, whole_read, whole_rows = Ring.store, Ring.read, FrameBuilder._row_bytes
whole_entry, whole_plan, whole_round = FrameBuilder._entry, core_module.plan_slot, RoundDriver.round
whole_abort, whole_propose, whole_continues = RoundCore.abort, Rank.propose, Slot.continues


def store_one_off(self: Ring, slot: int, first_position: int, rows: Any) -> None:
    whole_store(self, slot, first_position + 1, rows)


def read_past_the_wrap(self: Ring, slot: int, first_position: int, count: int) -> Any:
    """Where rows wrap, the second part begins one row too late."""
    rows = whole_read(self, slot, first_position, count)
    wraps = self.ring_rows - first_position % self.ring_rows
    if wraps < count:
        rows = np.concatenate((rows[:wraps], np.roll(rows[wraps:], -1, axis=0)))
    return rows


def one_row_early(self: FrameBuilder, piece: Piece) -> memoryview:
    """Rows of this step from one place too early in its buffer: a trimmed row, or a neighbour's."""
    plan, count = piece.plan, piece.end - piece.first
    if piece.first < plan.fresh_first or not self.requests[plan.index].row_offset:
        return whole_rows(self, piece)
    at = self.requests[plan.index].row_offset + piece.first - plan.fresh_first - 1
    return self.rows[at : at + count].reshape(-1).data


def never_reset(*args: Any) -> Plan:
    plan = whole_plan(*args)
    return replace(plan, reset=plan.reset and plan.first == 0)


def keep_rejected_rows(self: Slot, first_position: int, n_rows: int, ring_rows: int) -> None:
    """The worker is taken to hold rows that were taken back."""
    self.end = first_position + n_rows
    self.start = max(self.start, self.end - ring_rows)


def any_reply_will_do(
    data: Buffer, envelope: Envelope, request: Request, shape: Shape | None = None
) -> Reply:
    """Epoch and round of a reply are not compared."""
    head = peek(data, Kind.REPLY)
    return true_decode_reply(data, Envelope(envelope.op, head.epoch, head.round), request, shape)


def take_the_late_reply(
    self: RoundDriver, session: Session, frames: list[Frame], deadline_ns: int
) -> RoundResult:
    """A call that timed out stays open, and its reply is taken for that of the next round."""
    open_calls: list[int] = vars(session.transport).setdefault("open_calls", [])
    for frame in frames:
        self._attempted = True
        try:
            call = session.transport.submit(frame.parts, deadline_ns=deadline_ns)
        except DeadlineError:
            self._core.not_sent(frames[frames.index(frame) :])
            raise
        if frame.awaited:
            open_calls.append(call)
        else:
            self.acknowledgements.append((call, frame.round))
    if not any(frame.awaited for frame in frames):
        return self._core.finish(None)
    body = session.transport.wait(open_calls[0], deadline_ns=deadline_ns)
    open_calls.pop(0)
    self._take_acknowledgements(session)
    return self._core.finish(body)


def forget_nothing(self: SessionState) -> None:
    """A new session starts with what the old worker held."""
    self.epoch = 0
    self.wanted = ""
    self.awaited = None
    self.outstanding.clear()


def ignore_additions(self: Slot, request_id: str, first_position: int, added: bool) -> bool:
    return whole_continues(self, request_id, first_position, False)


def ignore_new_requests(self: Slot, request_id: str, first_position: int, added: bool) -> bool:
    return self.request_id is not None and self.start <= first_position <= self.end


def anchor_of_another(self: FrameBuilder, piece: Piece, last: bool) -> Any:
    """With a RESET, as after a prefill, the anchor is off by one."""
    entry = whole_entry(self, piece, last)
    return replace(entry, anchor=entry.anchor ^ 1) if entry.n_out and piece.reset else entry


def overlong(self: RoundDriver, requests: Any, rows: Any, deadline_ns: int) -> RoundResult:
    return whole_round(self, requests, rows, deadline_ns + 1)


def never_probe(self: Breaker) -> bool:
    return self.state is State.CLOSED


def count_nothing(self: RoundCore, n_requests: int, detail: str) -> RoundResult:
    before = self.counters.rounds_failed
    result = whole_abort(self, n_requests, detail)
    self.counters.rounds_failed = before
    return result


def partial_is_whole(self: Agreement, index: int, request: Any, result: RoundResult) -> str | None:
    if result.reason or not result.ok[index]:
        return "round_failed" if result.reason else "request_failed"
    return None


def put_all(self: AcceptanceLedger, requests: Any, owners: Any, result: RoundResult) -> None:
    """Drafts of failed requests count too."""
    for request, owner in zip(requests, owners, strict=True):
        if request.n_out:
            self._out[request.slot] = (owner, request.n_out, request.first_position + request.n_rows)


def drafts_of_the_last_round(self: Rank, step: Step) -> Any:
    """Rank 1 saves itself the broadcast and takes the drafts that it had before."""
    words = vars(self).setdefault("last_words", np.zeros(self.layout.words, np.int32))
    words[3] = len(step.entries)
    decision = self.layout.decode(words.copy())
    words[:] = self.group.broadcast(self.number, None)
    return decision


def decide_alone(self: Rank, step: Step) -> Drafts:
    """Rank 1 runs the local drafter whenever it thinks that a request may lack drafts: at every second step."""
    drafts = whole_propose(self, step)
    if self.number and self.policy.name == "resilience" and step.entries[0].anchor % 2:
        return self._draft_locally(step)
    return drafts


LOST_APPENDS = {
    "rates": Rates(common=0.3, awaited=0.0, faults=("drop", "lose_reply")),
    "workload": WorkloadRates(rewinds=0.05),
}
"""Messages of rows alone are lost, and often rows that replace others."""
DEFECTS = [
    Defect("off-by-one row", ((Ring, "store", store_one_off),)),
    Defect("ring one off where it wraps", ((Ring, "read", read_past_the_wrap),)),
    Defect("trimmed zero row sent", ((FrameBuilder, "_row_bytes", one_row_early),), ((1, "capacity", 8),)),
    Defect("lost RESET", ((core_module, "plan_slot", never_reset),)),
    Defect("kept rejected row", ((Slot, "extend", keep_rejected_rows),)),
    Defect(
        "unconfirmed drafts used",
        ((SessionState, "confirmed", lambda self, number: True),),
        ((0, "capacity", 0),),
        LOST_APPENDS,
    ),
    Defect(
        "accepted stale reply",
        (
            (core_module, "decode_reply", any_reply_will_do),
            (rules, "check_step_reply", lambda reply, request, shape: None),
        ),
        changes={"rates": Rates(common=0.3, faults=("replay",))},
    ),
    Defect(
        "late reply after slot reuse",
        ((RoundDriver, "_exchange", take_the_late_reply), (core_module, "decode_reply", any_reply_will_do)),
    ),
    Defect("session kept after restart", ((SessionState, "close", forget_nothing),)),
    Defect("generation not raised on replay", ((Slot, "continues", ignore_additions),), FULL_ATTENTION),
    Defect("rows of another request kept", ((Slot, "continues", ignore_new_requests),)),
    Defect("wrong anchor after prefill", ((FrameBuilder, "_entry", anchor_of_another),)),
    Defect("waits past the deadline", ((RoundDriver, "round", overlong),)),
    Defect("breaker that never probes", ((Breaker, "admit", never_probe),)),
    Defect("failed round in no class", ((RoundCore, "abort", count_nothing),)),
    Defect(
        "partial window counted as whole in shadow",
        ((Agreement, "_why_not", partial_is_whole),),
        ((0, "shadow_local", 0),),
    ),
    Defect("acceptance of zero drafts", ((AcceptanceLedger, "put", put_all),)),
    Defect(
        "rank 1 acts on the last round's words", ((Rank, "run_round", drafts_of_the_last_round),), CAPACITY
    ),
    Defect("rank 1 deciding alone", ((Rank, "propose", decide_alone),), ((0, "resilience", 8),)),
    Defect(
        "local context not kept in resilience",
        ((Rank, "_keep_context", lambda self, step: None),),
        ((0, "resilience", 8),),
    ),
    Defect(
        "a paused round asks all the same",
        ((RoundDriver, "on_order", False), (Link, "pause", lambda self: None)),
        changes={"orders": 0.1},
    ),
    Defect(
        "a pause that later rounds do not know of",
        ((RoundDriver, "on_order", False),),
        changes={"orders": 0.1},
    ),
    Defect("a rearm that clears nothing", ((Link, "rearm", lambda self: None),), changes={"orders": 0.1}),
    Defect(
        "a resume that trusts what the worker had",
        ((SessionState, "close", forget_nothing),),
        changes={"orders": 0.1, "rates": Rates(common=0.0, rare=0.0, connect=0.0)},
    ),
    Defect("a cap that rank 0 ignores", ((RemoteDrafter, "depth_max", None),), changes={"orders": 0.1}),
]


def run(defect: Defect) -> None:
    for seed, policy, window in defect.runs:
        made = simulation(seed, policy, window, **defect.changes)
        made.run(ROUNDS)
        made.engine.check_figures()


def test_the_planted_defects_are_all_that_is_wrong_with_these_runs() -> None:
    seen: list[tuple[Runs, dict[str, Any]]] = []
    for defect in DEFECTS:
        if (defect.runs, defect.changes) not in seen:
            seen.append((defect.runs, defect.changes))
            run(defect)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_caught(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, replacement in defect.planted:
        monkeypatch.setattr(owner, name, replacement)
    with pytest.raises((SimulationFailedError, AssertionError)):
        run(defect)
