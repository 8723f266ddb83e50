"""What counts as accepted: drafts of a good round, verified by the same request's next step."""

import numpy as np
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.vllm_seam.acceptance import AcceptanceLedger, Verified
from spark_overlay.vllm_seam.additions import Additions


def request(slot: int, n_out: int = 5) -> RoundRequest:
    return RoundRequest(slot, f"r{slot}", 10, 1, 0, 7, n_out)


def result(*ok: bool) -> RoundResult:
    shape = (len(ok), 5)
    return RoundResult(
        drafts=np.zeros(shape, np.int32),
        confidences=np.zeros(shape, np.float32),
        margins=np.zeros(shape, np.float32),
        partial=np.zeros(len(ok), bool),
        ok=np.array(ok, dtype=bool),
        outcomes=np.zeros(len(ok), np.int32),
        reason="" if any(ok) else "timeout",
    )


def test_accepted_is_what_was_sampled_beyond_the_one_token_that_is_always_there() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0), request(3)], ["a", "b"], result(True, True))
    assert ledger.take(0, "a", scheduled=5, sampled=4) == Verified(3, 5, 11)
    assert ledger.take(3, "b", scheduled=5, sampled=1) == Verified(0, 5, 11)


def test_a_rounds_drafts_count_once() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0)], ["a"], result(True))
    assert ledger.take(0, "a", 5, 2) == Verified(1, 5, 11)
    assert ledger.take(0, "a", 5, 6) is None


def test_failed_rounds_count_nothing_though_the_engine_verifies_their_zeros() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0), request(1)], ["a", "b"], result(False, True))
    assert ledger.take(0, "a", 5, 1) is None
    assert ledger.take(1, "b", 5, 3) == Verified(2, 5, 11)


def test_a_failed_round_after_a_good_one_does_not_bring_the_good_one_back() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0)], ["a"], result(True))
    assert ledger.take(0, "a", 5, 2) is not None
    ledger.put([request(0)], ["a"], result(False))
    assert ledger.take(0, "a", 5, 2) is None


def test_drafts_of_a_slots_former_request_count_for_nobody() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0)], [("a", 1)], result(True))
    assert ledger.take(0, ("a", 2), scheduled=5, sampled=6) is None


def test_steps_that_verify_no_draft_count_nothing() -> None:
    ledger = AcceptanceLedger()
    for scheduled, sampled in ((0, 1), (5, 0)):
        ledger.put([request(0)], ["a"], result(True))
        assert ledger.take(0, "a", scheduled, sampled) is None


def test_the_engine_may_verify_fewer_drafts_than_there_were_and_never_more() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0, n_out=5)], ["a"], result(True))
    assert ledger.take(0, "a", scheduled=2, sampled=3) == Verified(2, 2, 11)
    ledger.put([request(0, n_out=2)], ["a"], result(True))
    assert ledger.take(0, "a", scheduled=5, sampled=5) == Verified(2, 2, 11)


class States:
    """Stands for the engine's request states: it puts every request into slot 4."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}

    def add_request(self, req_id: str, prompt_len: int = 0) -> str:
        self.req_id_to_index[req_id] = 4
        return f"{req_id}:{prompt_len}"


def test_a_request_that_is_added_again_is_another_life_of_its_slot() -> None:
    states = States()
    additions = Additions(states)
    other = States()
    assert additions[4] == 0
    assert states.add_request("a", prompt_len=3) == "a:3"
    assert additions[4] == 1
    states.add_request(req_id="a")
    assert additions[4] == 2
    other.add_request("a")
    assert additions[4] == 2


def test_after_a_defect_nothing_is_out_for_verification() -> None:
    ledger = AcceptanceLedger()
    ledger.put([request(0)], ["a"], result(True))
    ledger.forget()
    assert ledger.take(0, "a", scheduled=5, sampled=4) is None
