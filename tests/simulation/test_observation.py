"""The simulated engine, observed: stock without, the same with, and records of both ranks that hold no content."""

import re
from pathlib import Path
from typing import Any

import pytest
from observed import KEY, PROMPT, Observed
from ofl.contract import observation_v1 as seen
from ofl.contract.dspark_v1 import decode_reply as true_decode_reply
from ofl.contract.dspark_v1 import rules
from spark_overlay.round import core as core_module
from spark_overlay.simulation.engine_life import Policy
from x86_worker.simulation import ChainModel

VOCABULARY = 2_000_000_011
"""So large that the ids of a run are no count, position or slot of it."""


@pytest.mark.parametrize("policy", ["capacity", "shadow_local", "shadow_remote", "resilience"])
@pytest.mark.parametrize("trims", [False, True])
def test_an_observed_engine_says_and_does_the_same(tmp_path: Path, policy: Policy, trims: bool) -> None:
    requests = {1: ["one", "two"], 4: ["three"]}
    stock = Observed(tmp_path, policy, trims=trims, requests=requests, settings=False).run()
    assert not list(tmp_path.iterdir())
    observed = Observed(tmp_path, policy, trims=trims, requests=requests).run()
    assert observed.texts() == stock.texts()
    assert observed.simulation.clock() == stock.simulation.clock()
    counters = [run.simulation.engine.drafter.stats()["counters"] for run in (stock, observed)]
    assert counters[0] == counters[1]


def test_an_engine_that_is_not_observed_is_of_stock_classes_and_methods(tmp_path: Path) -> None:
    engine = Observed(tmp_path, settings=False).simulation.engine
    observed = Observed(tmp_path).simulation.engine

    def hooked(one: Any) -> set[str]:
        owners = (one, one.drafter, one.drafter.link, *one.ranks)
        return {
            name for owner in owners for name in vars(owner) if callable(getattr(type(owner), name, None))
        }

    assert hooked(engine) == set()
    assert hooked(observed) == {"close", "record_local", "propose", "run_round"}
    assert [type(rank) for rank in engine.ranks] == [type(rank) for rank in observed.ranks]


@pytest.mark.parametrize("trims", [False, True])
def test_both_ranks_record_every_step_alike(tmp_path: Path, trims: bool) -> None:
    observed = Observed(tmp_path, trims=trims, requests={1: ["one", "two"]}).run()
    for rank in (0, 1):
        lines = observed.lines(rank)
        assert [line.index for line in lines] == list(range(len(lines)))
        assert lines[-1].record == seen.Closed(len(lines) - 1, 0)
        assert [line.time_ns for line in lines] == sorted(line.time_ns for line in lines)
    facts = [observed.lines(rank)[0].record for rank in (0, 1)]
    assert [(one.rank, one.ranks) for one in facts if isinstance(one, seen.Facts)] == [(0, 2), (1, 2)]
    for kind in (seen.Scheduled, seen.Decided, seen.Published, seen.Verified):
        assert observed.records(kind) == observed.records(kind, rank=1) != []
    assert observed.records(seen.Exchanged)
    assert not observed.records(seen.Exchanged, rank=1)


@pytest.mark.parametrize(
    ("trims", "capabilities"), [(False, ("two_ranks",)), (True, ("row_reduction", "two_ranks"))]
)
def test_rows_that_the_target_trims_are_not_kept(
    tmp_path: Path, trims: bool, capabilities: tuple[str, ...]
) -> None:
    observed = Observed(tmp_path, trims=trims).run()
    (facts,) = observed.records(seen.Facts)
    assert facts.capabilities == capabilities
    prefill = [record.requests[0] for record in observed.records(seen.Scheduled)][:3]
    # 40 tokens a step; a drafter with a window of 8 needs the last 8 rows of each.
    assert [entry.q for entry in prefill] == [40, 40, PROMPT - 80]
    assert [entry.kept for entry in prefill] == ([8, 8, 8] if trims else [40, 40, 10])
    assert [entry.first_position for entry in prefill] == ([32, 72, 82] if trims else [0, 40, 80])
    assert [entry.sampled for entry in prefill] == [0, 0, 1]
    for record in observed.records(seen.Exchanged):
        (entry,) = observed.records(seen.Scheduled)[record.step - 1].requests
        (slot,) = record.slots
        assert slot.first_position + slot.n_rows == entry.first_position + entry.valid


def test_what_was_verified_is_what_the_text_grew_by(tmp_path: Path) -> None:
    observed = Observed(tmp_path).run()
    steps = observed.records(seen.Scheduled)
    verified = {record.step: record for record in observed.records(seen.Verified)}
    assert len(verified) == len(steps) - 3
    for record in steps[3:]:
        (entry,) = record.requests
        assert verified[record.step].accepted == entry.sampled - 1
        assert verified[record.step].position == entry.first_position
        assert verified[record.step].source == "remote"
    (request,) = observed.workload.all
    assert sum(record.requests[0].sampled for record in steps) == len(request.tokens) - request.prompt_length


@pytest.mark.parametrize(
    ("speculation", "policy", "kinds", "speculator"),
    [
        ("none", "capacity", {"facts", "closed"}, ""),
        ("local", "shadow_local", {"facts", "scheduled", "verified", "published", "closed"}, "LocalDrafter"),
        (
            "remote",
            "shadow_remote",
            {"facts", "scheduled", "verified", "exchanged", "decided", "drafter", "published", "closed"},
            "RemoteDrafter",
        ),
    ],
)
def test_each_arm_records_what_is_in_it(
    tmp_path: Path, speculation: Any, policy: Policy, kinds: set[str], speculator: str
) -> None:
    observed = Observed(tmp_path, policy, speculation=speculation).run()
    assert {line.record.kind for line in observed.lines()} == kinds
    (facts,) = observed.records(seen.Facts)
    assert (facts.speculator, facts.draft_layers) == (speculator, int(policy != "capacity"))
    assert all(record.common == record.drafted > 0 for record in observed.records(seen.Drafter))


# --- faults ---


def order(action: str, **more: Any) -> dict[str, Any]:
    return {"case": "c", "request": "one", "action": action, **more}


@pytest.mark.parametrize(
    ("action", "more", "moments", "reply", "reason"),
    [
        ("drop_before_final", {}, [("armed", 1), ("struck", 2)], "none", ""),
        ("disconnect_before_final", {}, [("armed", 1), ("struck", 3)], "none", "transport_error"),
        ("disconnect_after_final", {}, [("armed", 1), ("struck", 3)], "none", "transport_error"),
        ("hold_reply", {"hold_steps": 2}, [("armed", 1), ("held", 3), ("released", 5)], "late", "timeout"),
        ("old_generation", {}, [("armed", 1), ("struck", 3)], "unreadable", "bad_reply"),
    ],
)
def test_a_fault_strikes_its_owner_and_the_text_is_the_same(
    tmp_path: Path, action: str, more: dict[str, Any], moments: Any, reply: str, reason: str
) -> None:
    stock = Observed(tmp_path, model=ChainModel(window=0), settings=False).run()
    observed = Observed(tmp_path, model=ChainModel(window=0))
    observed.arm(order(action, **more))
    observed.run()
    assert observed.texts() == stock.texts()
    assert list(observed.moments()) == moments
    met = [record for record in observed.records(seen.Exchanged) if record.reply != "in time"]
    # What is dropped is all that a step says: here two messages.
    assert [record.reply for record in met] == [reply] * (2 if action == "drop_before_final" else 1)
    assert len({record.step for record in met}) == 1
    decided = observed.records(seen.Decided)
    final = decided[2]
    assert final.reason == reason
    assert final.requests[0].outcome == ("GAP" if action == "drop_before_final" else "ROUND_FAILED")
    assert final.requests[0].drafts == seen.NO_TAG
    assert {record.requests[0].outcome for record in decided[3:]} == {"OK"}
    assert observed.records(seen.Published)[2].drafts == (seen.NO_TAG,)


# --- defects of the product show ---


def any_reply_will_do(data: Any, envelope: Any, request: Any, shape: Any = None) -> Any:
    """Generations, epochs and rounds of a reply are not compared."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rules, "check_step_reply", lambda *_: None)
        return true_decode_reply(data, envelope, request, shape)


def test_drafts_of_a_reply_of_another_generation_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "decode_reply", any_reply_will_do)
    observed = Observed(tmp_path)
    observed.arm(order("old_generation"))
    observed.run()
    (met,) = [record for record in observed.records(seen.Exchanged) if record.reply == "unreadable"]
    (slot,) = met.slots
    assert slot.generation_echoed < slot.generation
    (decided,) = observed.records(seen.Decided)[met.step - 1].requests
    assert decided.outcome == "OK"
    assert decided.drafts == slot.drafts != seen.NO_TAG


# --- no content ---


def contents(observed: Observed) -> set[str]:
    """Every token id, anchor and draft, and every row, as a text could show them."""
    tokens = {token for request in observed.workload.all for token in request.tokens}
    rows = {bytes(row) for request in observed.workload.all for row in request.rows}
    texts = {row.hex() for row in rows} | {row.hex(" ") for row in rows}
    return texts | {form for token in tokens for form in forms(token)}


def forms(token: int) -> set[str]:
    little = token.to_bytes(4, "little").hex()
    return {str(token), f"{token:x}", f"{token:08x}", little}


def test_no_file_holds_a_token_a_draft_or_a_row(tmp_path: Path) -> None:
    observed = Observed(tmp_path, "shadow_remote", model=ChainModel(vocabulary=VOCABULARY))
    observed.arm(order("hold_reply", hold_steps=2))
    observed.run()
    wanted = contents(observed)
    assert len(wanted) > 400
    assert min(token for request in observed.workload.all for token in request.tokens) > 1_000_000
    for path in tmp_path.glob("observations-*.jsonl"):
        text = re.sub(r'"(time_ns":\d+|start_id":"[0-9a-f]+")', "", path.read_text(encoding="utf-8"))
        assert len(text) > 5_000
        assert not [form for form in wanted if form in text], "content in clear"
        assert not re.search(r"\[\s*-?\d", text), "a list of numbers"
        assert KEY.hex() not in text
