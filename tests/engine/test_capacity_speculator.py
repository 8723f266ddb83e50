"""The speculator alone, between a batch as vLLM builds it and a drafter that writes down what it is asked."""

import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ofl.contract.dspark_v1 import RowDtype
from spark_overlay.interface import EngineFacts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.vllm_seam.errors import RemoteRoundFailed

with warnings.catch_warnings():
    # torch decorates classes of its own with functions that it has deprecated, and vLLM imports those.
    warnings.simplefilter("ignore", DeprecationWarning)
    from spark_overlay.vllm_seam.v0_32 import RemoteDSparkSpeculator, check_interface

pytestmark = pytest.mark.engine

SLOTS, DRAFTS, BLOCK, HIDDEN, TAPS, LEN_MAX = 4, 3, 5, 2, 2, 50


class Asked:
    """A drafter that answers k+1, k+2, .. after anchor k, or fails, and keeps what it was asked."""

    def __init__(self) -> None:
        self.rounds: list[list[RoundRequest]] = []
        self.accepted: list[tuple[int, int]] = []
        self.fails = False
        self.raises = False

    def round(self, requests: Sequence[RoundRequest], rows: Any, gather_us: float = 0.0) -> RoundResult:
        self.rounds.append(list(requests))
        drafts = np.zeros((len(requests), BLOCK), np.int32)
        ok = np.zeros(len(requests), bool)
        for index, request in enumerate(requests):
            if request.n_out and not self.fails:
                drafts[index, : request.n_out] = request.anchor + 1 + np.arange(request.n_out)
                ok[index] = True
        outcomes = np.zeros(len(requests), np.int32)
        reason = "timeout" if self.fails else ""
        zeros = np.zeros(drafts.shape, np.float32)
        return RoundResult(drafts, zeros, zeros, np.zeros(len(requests), bool), ok, outcomes, reason)

    def record_acceptance(self, accepted: int, drafted: int, position: int) -> None:
        self.accepted.append((accepted, drafted))

    def must_raise(self, result: RoundResult) -> bool:
        return self.raises and result.failed


class States:
    """The engine's request states, as far as slots go."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}

    def add_request(self, req_id: str, slot: int) -> None:
        self.req_id_to_index[req_id] = slot


class Bench:
    """A speculator and the batches that it is given."""

    def __init__(self) -> None:
        self.states, self.drafter = States(), Asked()
        model = SimpleNamespace(max_model_len=LEN_MAX, dtype=torch.float32, get_hidden_size=lambda: HIDDEN)
        config = SimpleNamespace(
            model_config=model,
            scheduler_config=SimpleNamespace(max_num_seqs=SLOTS, max_num_batched_tokens=64),
            speculative_config=SimpleNamespace(num_speculative_tokens=DRAFTS),
        )
        facts = EngineFacts(1000, HIDDEN * TAPS, RowDtype.FLOAT32, TAPS, 0, LEN_MAX, BLOCK, SLOTS)
        self.speculator = RemoteDSparkSpeculator(
            config, torch.device("cpu"), self.states, facts, self.drafter, lambda runner: None
        )

    def step(
        self, *requests: tuple[str, int, int, int, int, int], wanted: int | None = None, **more: Any
    ) -> Any:
        """One step.  Each request: name, first position, scheduled tokens, drafts verified, tokens sampled, anchor."""
        names = [request[0] for request in requests]
        lengths = [request[2] for request in requests]
        slots = [self.states.req_id_to_index[name] for name in names]
        positions = torch.cat([torch.arange(first, first + length) for _, first, length, *_ in requests])
        sampled = torch.tensor([request[4] for request in requests], dtype=torch.int32)
        verified = np.array([request[3] for request in requests], dtype=np.int32)
        rejected = [
            count + 1 - got if got else 0 for count, got in zip(verified, sampled.tolist(), strict=True)
        ]
        last = torch.zeros(SLOTS, 1, dtype=torch.int64)
        for slot, request in zip(slots, requests, strict=True):
            last[slot] = request[5]
        batch = SimpleNamespace(
            num_reqs=len(requests),
            req_ids=names,
            idx_mapping=torch.tensor(slots),
            idx_mapping_np=np.array(slots),
            positions=positions,
            query_start_loc_np=np.cumsum([0, *lengths]).astype(np.int32),
            num_draft_tokens_per_req=verified if verified.any() else None,
        )
        taps = [torch.zeros(sum(lengths), HIDDEN) for _ in range(TAPS)]
        return self.speculator.propose(
            batch,
            None,
            None,
            taps[0],
            taps,
            sampled,
            torch.tensor(rejected, dtype=torch.int32),
            last,
            torch.full((1, SLOTS), 7, dtype=torch.int32),
            None,
            None,
            num_speculative_tokens=DRAFTS if wanted is None else wanted,
            **more,
        )


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.states.add_request("a", slot=2)
    made.states.add_request("b", slot=0)
    return made


def test_this_vllm_calls_speculators_as_the_seam_expects() -> None:
    check_interface()


def test_drafts_come_back_in_the_batchs_order_as_the_runner_takes_them(bench: Bench) -> None:
    drafts = bench.step(("b", 0, 4, 0, 1, 40), ("a", 0, 2, 0, 1, 90))
    assert drafts.dtype == torch.int64
    assert drafts.tolist() == [[41, 42, 43], [91, 92, 93]]
    first, second = bench.drafter.rounds[0]
    assert (first.slot, first.request_id, first.first_position, first.n_rows, first.row_offset) == (
        0,
        "b",
        0,
        4,
        0,
    )
    assert (second.slot, second.request_id, second.n_rows, second.row_offset, second.anchor) == (
        2,
        "a",
        2,
        4,
        90,
    )


def test_what_the_runner_writes_into_the_tail_does_not_come_back(bench: Bench) -> None:
    drafts = bench.step(("a", 0, 4, 0, 1, 40), wanted=1)
    assert drafts.tolist() == [[41, 0, 0]]
    drafts[:, 1:] = -1
    bench.drafter.fails = True
    assert bench.step(("a", 4, 1, 0, 1, 41)).tolist() == [[0, 0, 0]]


def test_a_prompt_that_is_still_being_read_gives_its_rows_and_wants_no_draft(bench: Bench) -> None:
    drafts = bench.step(("a", 0, 20, 0, 0, 0), ("b", 0, 3, 0, 1, 60))
    reading, ready = bench.drafter.rounds[0]
    assert (reading.n_rows, reading.n_out, reading.anchor) == (20, 0, 0)
    assert (ready.n_rows, ready.n_out) == (3, DRAFTS)
    assert drafts.tolist() == [[0, 0, 0], [61, 62, 63]]


def test_with_no_drafts_scheduled_the_context_is_kept_all_the_same(bench: Bench) -> None:
    bench.step(("a", 0, 4, 0, 1, 40), wanted=0)
    (request,) = bench.drafter.rounds[0]
    assert (request.n_rows, request.n_out) == (4, 0)


@pytest.mark.parametrize(
    ("end", "n_out"), [(LEN_MAX - 5, 3), (LEN_MAX - 3, 2), (LEN_MAX - 2, 1), (LEN_MAX - 1, 0)]
)
def test_nothing_is_drafted_beyond_the_longest_sequence(bench: Bench, end: int, n_out: int) -> None:
    # The anchor stands at `end`; the last position that may hold a token is LEN_MAX - 1.
    bench.step(("a", 0, end, 0, 1, 40))
    assert bench.drafter.rounds[0][0].n_out == n_out


def test_dummy_and_profiling_runs_ask_nobody(bench: Bench) -> None:
    for more in ({"dummy_run": True}, {"dummy_run": True, "is_profile": True}):
        assert bench.step(("a", 0, 4, 0, 1, 40), **more).tolist() == [[0, 0, 0]]
    assert bench.drafter.rounds == []


def test_accepted_drafts_are_counted_and_rejected_rows_are_left_out(bench: Bench) -> None:
    bench.step(("a", 0, 4, 0, 1, 40))
    # Of three drafts two were taken, and one token came on top: three sampled, one rejected.
    bench.step(("a", 4, 4, 3, 3, 43))
    assert bench.drafter.accepted == [(2, 3)]
    (request,) = bench.drafter.rounds[1]
    assert (request.first_position, request.n_rows, request.anchor) == (4, 3, 43)


def test_a_failed_rounds_zeros_are_verified_and_not_counted(bench: Bench) -> None:
    bench.drafter.fails = True
    bench.step(("a", 0, 4, 0, 1, 40))
    bench.step(("a", 4, 4, 3, 1, 41))
    assert bench.drafter.accepted == []


def test_a_request_that_is_added_again_to_its_slot_is_told_as_added_once(bench: Bench) -> None:
    bench.step(("a", 0, 4, 0, 1, 40))
    bench.step(("a", 4, 1, 0, 1, 41))
    bench.states.add_request("a", slot=2)
    bench.step(("a", 2, 3, 0, 1, 42))
    bench.step(("a", 5, 1, 0, 1, 43))
    assert [asked[0].added for asked in bench.drafter.rounds] == [True, False, True, False]
    assert bench.drafter.accepted == []


def test_where_the_operator_asked_for_it_a_failed_round_ends_the_engine(bench: Bench) -> None:
    bench.drafter.fails = bench.drafter.raises = True
    with pytest.raises(RemoteRoundFailed, match="timeout"):
        bench.step(("a", 0, 4, 0, 1, 40))
