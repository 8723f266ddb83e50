"""The fault seam: each action on its owner's message, once, and on nobody else's."""

import json
from pathlib import Path
from typing import Any

import pytest
from observed_rig import ObservedRig, replies
from ofl.contract.observation_v1 import Fault
from spark_overlay.observe.fault_plan import HOLD_STEPS_MAX, FaultOrder, PlanError, PlanFile, read_plan


def order(action: str, request: str = "one", **more: Any) -> dict[str, Any]:
    return {"case": "c", "request": request, "action": action, **more}


class FaultRig(ObservedRig):
    """An observed drafter with a plan."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TRIP="0")
        self.plan = folder / "plan.jsonl"
        self.connect()

    def arm(self, *orders: dict[str, Any]) -> None:
        written = self.plan.with_suffix(".new")
        written.write_text("".join(json.dumps(each) + "\n" for each in orders))
        written.replace(self.plan)


@pytest.fixture
def rig(tmp_path: Path) -> FaultRig:
    return FaultRig(tmp_path)


def prefill_and_final(rig: FaultRig) -> None:
    """Two steps of a prompt, each within the window, then one of decoding."""
    rig.step(3, n_out=0, remaining=3)
    rig.step(3)
    rig.step(1)


def test_without_a_plan_nothing_happens(rig: FaultRig) -> None:
    prefill_and_final(rig)
    assert replies(rig.exchanges()) == ["in time"] * 3
    assert not rig.sink.of(Fault)


def test_what_comes_before_the_final_message_never_arrives(rig: FaultRig) -> None:
    rig.arm(order("drop_before_final"))
    rig.step(3, n_out=0, remaining=200)  # more than a step takes: not the last before the final one
    rig.step(3, n_out=0, remaining=100)
    sent = len(rig.transport.requests)
    assert not rig.step(3).ok.any()
    assert len(rig.transport.requests) == sent + 1
    assert rig.moments() == [("armed", 1), ("struck", 2)]
    assert rig.exchanges()[1].slots[0].status == "GAP"
    assert rig.step(1).ok.all()
    rig.observer.close()
    assert sorted((seen.step, seen.reply) for seen in rig.exchanges()) == [
        (1, "in time"),
        (2, "none"),
        (3, "in time"),
        (4, "in time"),
    ]


def test_the_connection_is_lost_before_the_final_message_leaves(rig: FaultRig) -> None:
    rig.arm(order("disconnect_before_final"))
    rig.step(3, n_out=0, remaining=3)
    transport, sent = rig.transport, len(rig.transport.requests)
    assert rig.step(3).reason == "transport_error"
    assert len(transport.requests) == sent
    assert transport.closed
    assert rig.moments() == [("armed", 1), ("struck", 2)]
    rig.connect()
    assert rig.step(1).ok.all()  # once


def test_the_connection_is_lost_after_the_final_message_was_answered(rig: FaultRig) -> None:
    rig.arm(order("disconnect_after_final"))
    rig.step(3, n_out=0, remaining=3)
    transport, sent = rig.transport, len(rig.transport.requests)
    assert rig.step(3).reason == "transport_error"
    assert len(transport.requests) == sent + 1
    assert transport.closed
    assert rig.worker.windows[0].end == 6
    rig.connect()
    assert rig.step(1).ok.all()
    assert (rig.exchanges()[1].step, rig.exchanges()[1].reply) == (2, "none")


def test_a_connection_that_is_to_be_lost_waits_for_the_answer(rig: FaultRig) -> None:
    rig.arm(order("disconnect_after_final"))
    rig.transport.silent = True
    assert rig.step(3).reason == "timeout"
    assert rig.moments() == [("armed", 1)]
    transport = rig.transport
    transport.silent = False
    assert rig.step(1).reason == "transport_error"
    assert rig.moments() == [("armed", 1), ("struck", 2)]
    assert transport.closed


def test_a_held_reply_comes_as_many_steps_later_and_nobody_takes_it(rig: FaultRig) -> None:
    rig.arm(order("hold_reply", hold_steps=2))
    assert rig.step(3).reason == "timeout"
    assert rig.step(1).ok.all()
    assert replies(rig.exchanges()) == ["in time"]
    assert rig.step(1).ok.all()
    assert rig.moments() == [("armed", 1), ("held", 1), ("released", 3)]
    assert [(seen.step, seen.reply) for seen in rig.exchanges()] == [
        (2, "in time"),
        (1, "late"),
        (3, "in time"),
    ]


def test_whoever_still_asks_for_a_held_reply_gets_it_once_it_is_released(
    rig: FaultRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect that the fault is there for: a call that is never given up."""
    rig.arm(order("hold_reply", hold_steps=1))
    session = rig.drafter.link.session
    assert session is not None
    with monkeypatch.context() as planted:
        planted.setattr(session.transport, "cancel", lambda sequence: None)
        assert rig.step(3).reason == "timeout"
    call = max(session.transport._sent)  # type: ignore[attr-defined]
    rig.observer.begin(list)
    assert session.transport.wait(call, deadline_ns=0)
    assert [moment for moment, _ in rig.moments()] == ["armed", "held", "released"]


def test_a_reply_of_an_older_generation_is_seen_and_refused(rig: FaultRig) -> None:
    rig.arm(order("old_generation"))
    assert rig.step(3).reason == "bad_reply"
    (exchanged,) = rig.exchanges()
    assert (exchanged.reply, exchanged.slots[0].generation, exchanged.slots[0].generation_echoed) == (
        "unreadable",
        1,
        0,
    )
    assert rig.moments() == [("armed", 1), ("struck", 1)]
    assert rig.step(1).ok.all()


@pytest.mark.parametrize(
    "action",
    [
        "drop_before_final",
        "disconnect_before_final",
        "disconnect_after_final",
        "hold_reply",
        "old_generation",
    ],
)
def test_nobody_elses_traffic_is_met(rig: FaultRig, action: str) -> None:
    more = {"hold_steps": 1} if action == "hold_reply" else {}
    rig.arm(order(action, request="two", **more))
    prefill_and_final(rig)
    assert replies(rig.exchanges()) == ["in time"] * 3
    assert rig.moments() == [("armed", 1)]


@pytest.mark.parametrize("action", ["drop_before_final", "disconnect_before_final", "disconnect_after_final"])
def test_what_comes_after_the_final_message_is_not_met(rig: FaultRig, action: str) -> None:
    prefill_and_final(rig)
    rig.arm(order(action))
    rig.step(1)
    rig.step(1, n_out=0, remaining=1)
    rig.step(1)
    assert set(replies(rig.exchanges())) == {"in time"}
    assert rig.moments() == [("armed", 4)]


def test_a_name_that_the_engine_made_longer_is_its_owners(rig: FaultRig) -> None:
    rig.arm(order("old_generation"))
    assert rig.step(3, name="one-0123abcd").reason == "bad_reply"


def test_a_plan_that_lacks_a_fault_disarms_it_and_one_that_has_it_again_arms_it_again(rig: FaultRig) -> None:
    fault = order("old_generation")
    rig.arm(fault)
    rig.step(3, n_out=0)
    rig.arm()
    assert rig.step(3).ok.all()
    rig.arm(fault)
    assert rig.step(1).reason == "bad_reply"
    rig.arm(fault, order("hold_reply", request="two", hold_steps=1))
    assert rig.step(1).ok.all(), "it struck already"
    rig.plan.unlink()
    rig.step(1)
    rig.arm(fault)
    assert rig.step(1).reason == "bad_reply"


def test_a_plan_that_cannot_be_followed_is_a_lost_observation(rig: FaultRig) -> None:
    rig.arm({"case": "c"})
    assert rig.step(3).ok.all()
    assert rig.step(1).ok.all()
    assert [type(error) for error in rig.sink.defects] == [PlanError]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "an object"),
        (json.dumps(order("hold_reply")), "hold_steps must be 1"),
        (json.dumps(order("hold_reply", hold_steps=True)), "hold_steps"),
        (json.dumps(order("hold_reply", hold_steps=HOLD_STEPS_MAX + 1)), "hold_steps"),
        (json.dumps(order("explode")), "'explode' is no action"),
        (json.dumps(order("old_generation", request="")), "request must be a text"),
        (json.dumps(order("old_generation") | {"round": 3}), "an object of case"),
        ("\n".join([json.dumps(order("old_generation"))] * 2), "twice"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(line: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read_plan(line)


def test_a_plan_is_read_when_it_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    plan = PlanFile(path)
    assert plan.changed() is None
    path.write_text(json.dumps(order("hold_reply", hold_steps=3)) + "\n\n")
    assert plan.changed() == (FaultOrder("c", "one", "hold_reply", 3),)
    assert plan.changed() is None
    path.unlink()
    assert plan.changed() == ()
