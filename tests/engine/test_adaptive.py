"""Adaptive verification: vLLM's own manager, fed by a remote speculator, chooses and trims alike on every rank.

The manager is stock's code, run on the CPU with its CUDA streams left out: an engine needs full CUDA graphs for it,
which no CPU has.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from spark_overlay.decision import DecisionLayout
from spark_overlay.gather import StepInputs
from spark_overlay.round.messages import Outcome, RoundResult
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.depth import price_drafts
from spark_overlay.vllm_seam.policies import Capacity, Local, RemoteRounds, Resilience, Shadow
from spark_overlay.vllm_seam.step import EngineStep, Led
from spark_overlay.vllm_seam.words import Words

with warnings.catch_warnings():
    # torch decorates classes of its own with functions that it has deprecated, and vLLM imports those.
    warnings.simplefilter("ignore", DeprecationWarning)
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as stock

pytestmark = pytest.mark.engine

SLOTS, DRAFTS, BLOCK = 4, 3, 5
DIGEST = "0" * 64
SURE, UNSURE = (0.9, 0.9, 0.9), (0.1, 0.1, 0.1)


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and events of the manager do nothing, its kernel is not compiled, its group is one rank."""

    class Nothing:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(stock, "stream", lambda *streams: contextlib.nullcontext())
    monkeypatch.setattr(stock, "gpu_sync_allowed", contextlib.nullcontext)
    monkeypatch.setattr(stock, "_assign_draft_token_budget_compiled", stock._assign_draft_token_budget)


class Lead:
    """Rank 0's half: each round's confidences as the test says, by request; None where a request got nothing."""

    def __init__(self) -> None:
        self.drafter = SimpleNamespace(must_raise=lambda result: False)
        self.next: Sequence[Sequence[float] | None] = ()

    def round(self, step: EngineStep) -> Led:
        count = len(self.next)
        confidences = np.zeros((count, BLOCK), np.float32)
        for index, given in enumerate(self.next):
            confidences[index, :DRAFTS] = given or 0.0
        ok = np.array([given is not None for given in self.next])
        outcomes = np.where(ok, Outcome.OK, Outcome.ROUND_FAILED).astype(np.int32)
        drafts = np.where(ok[:, None], 7, 0).repeat(BLOCK, axis=1).astype(np.int32)
        zeros = np.zeros((count, BLOCK), np.float32)
        return Led((), RoundResult(drafts, confidences, zeros, ~ok & False, ok, outcomes, ""))

    def compare(self, local: Any, led: Any) -> None: ...

    def fell_back(self, requests: int) -> None: ...


class Wire:
    """The broadcast of two ranks, rank 0 first."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []

    def of(self, rank: int) -> Any:
        def broadcast(words: torch.Tensor) -> None:
            if rank == 0:
                self.sent.append(words.clone())
            else:
                words.copy_(self.sent.pop(0))

        return SimpleNamespace(rank=rank, size=2, broadcast=broadcast)


class Rank:
    """One rank: its rounds, the buffer that vLLM reads confidences from, and stock's manager."""

    def __init__(self, rank: int, wire: Wire, policy: str, *, uses_remote: bool = True) -> None:
        words = Words(DecisionLayout(SLOTS, DRAFTS), torch.device("cpu"))
        self.lead = Lead() if rank == 0 else None
        rounds = RemoteRounds(words, wire.of(rank), self.lead)  # type: ignore[arg-type]
        self.buffer = torch.full((SLOTS, DRAFTS), 0.5)
        if uses_remote:
            rounds.confidences = self.buffer
        policies = {
            "capacity": lambda: Capacity(rounds),
            "resilience": lambda: Resilience(rounds),
            "shadow": lambda: Shadow(rounds, uses_remote=uses_remote),
        }
        self.policy = policies[policy]()
        self.manager = stock.AdaptiveVerificationManager(
            request_states(), torch.zeros(SLOTS + 1, dtype=torch.int32), 1, max_total_logits=1000
        )
        self.manager.cost_tables = costs(draft_ms=0.0)

    def step(self, requests: int) -> None:
        """One step's proposal, as a runner has it, and what it records of it."""
        step: Any = SimpleNamespace(n_requests=requests)
        self.policy.drafts(step, Local(lambda: self.local(requests), lambda: None))
        batch = SimpleNamespace(num_reqs=requests, idx_mapping=torch.arange(requests))
        self.manager.record_confidences(self.buffer, batch)

    def local(self, requests: int) -> torch.Tensor:
        """The local drafter, which is sure of its first draft and of nothing after it."""
        self.buffer[:requests] = torch.tensor([1.0, 0.0, 0.0])
        return torch.full((requests, DRAFTS), 5)

    def chosen(self, *requests: str) -> tuple[int, list[int]]:
        """Drafts that the next step verifies, in all and by request."""
        self.manager.get_num_tokens(
            dict.fromkeys(requests, 1 + DRAFTS), dict.fromkeys(requests, [0] * DRAFTS)
        )
        _, starts, budget = self.manager.reallocate_drafts(list(requests), torch.arange(len(requests)))[:3]
        return budget, (np.diff(starts[: len(requests) + 1].numpy()) - 1).tolist()


def request_states() -> Any:
    """Three requests that decode, in slots 0, 1 and 2."""
    return SimpleNamespace(
        num_speculative_steps=DRAFTS,
        device=torch.device("cpu"),
        max_num_reqs=SLOTS,
        max_num_batched_tokens=SLOTS * (1 + DRAFTS),
        req_id_to_index={"a": 0, "b": 1, "c": 2},
        num_computed_tokens_np=np.full(SLOTS, 10),
        prefill_len=SimpleNamespace(np=np.full(SLOTS, 5)),
    )


def costs(draft_ms: float) -> tuple[np.ndarray, np.ndarray]:
    """Verifying t tokens costs 9 + t ms."""
    return np.full(SLOTS + 1, draft_ms), 9.0 + np.arange(SLOTS * (1 + DRAFTS) + 1)


@pytest.fixture
def ranks() -> Iterator[tuple[Rank, Rank]]:
    wire = Wire()
    yield Rank(0, wire, "capacity"), Rank(1, wire, "capacity")
    assert not wire.sent


def both(ranks: tuple[Rank, Rank], *given: Sequence[float] | None) -> None:
    """A step of both ranks; rank 0's round brings these confidences."""
    first, second = ranks
    assert first.lead is not None
    first.lead.next = given
    first.step(len(given))
    second.step(len(given))


def agreed(ranks: tuple[Rank, Rank], *requests: str) -> tuple[int, list[int]]:
    first, second = (rank.chosen(*requests) for rank in ranks)
    assert first == second
    return first


def test_every_rank_verifies_alike_what_the_workers_confidences_are_worth(ranks: tuple[Rank, Rank]) -> None:
    # Two rounds, as stock chooses how many by the confidences before the last.
    for _ in range(2):
        both(ranks, UNSURE, SURE)
    # Two requests, 9 + 2 ms: 2 / 11 a ms.  Each token more costs 1 ms and brings 0.9, 0.81, 0.729, then 0.1.
    # 2.9/12 = .242, 3.71/13 = .285, 4.439/14 = .317, then 4.539/15 = .303: three drafts, all of the sure request's.
    assert agreed(ranks, "a", "b") == (3, [0, 3])


def test_a_failed_round_is_worth_no_draft_after_two_rounds_and_the_next_good_one_counts_again(
    ranks: tuple[Rank, Rank],
) -> None:
    for _ in range(2):
        both(ranks, SURE)
    assert agreed(ranks, "a") == (3, [3])
    both(ranks, None)
    assert agreed(ranks, "a") == (3, [3])
    both(ranks, None)
    assert agreed(ranks, "a") == (0, [0])
    for _ in range(2):
        both(ranks, SURE)
    assert agreed(ranks, "a") == (3, [3])


def test_in_resilience_local_drafts_come_with_the_local_drafters_own_confidences() -> None:
    wire = Wire()
    ranks = Rank(0, wire, "resilience"), Rank(1, wire, "resilience")
    for _ in range(2):
        both(ranks, SURE, None)
    for rank in ranks:
        assert rank.buffer[:2].tolist() == torch.tensor([SURE, (1.0, 0.0, 0.0)]).tolist()
    # 2/11, then 1.0, 0.9, 0.81, 0.729 more: all four; a fifth is worth nothing.
    assert agreed(ranks, "a", "b") == (4, [3, 1])


@pytest.mark.parametrize("uses_remote", [True, False])
def test_in_shadow_confidences_are_of_the_drafts_that_are_verified(uses_remote: bool) -> None:
    wire = Wire()
    ranks = tuple(Rank(rank, wire, "shadow", uses_remote=uses_remote) for rank in (0, 1))
    both(ranks, SURE, None)  # type: ignore[arg-type]
    local = [1.0, 0.0, 0.0]
    expected = torch.tensor([SURE if uses_remote else local, local])
    for rank in ranks:
        assert torch.equal(rank.buffer[:2], expected)


def test_only_the_draft_cost_is_replaced_and_it_changes_how_deep_is_best(ranks: tuple[Rank, Rank]) -> None:
    settings = Settings.from_environ(
        {
            "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
            "VLLM_DSPARK_REMOTE_IDENTITY": DIGEST,
            "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": DIGEST,
            "VLLM_DSPARK_REMOTE_DRAFT_MS": "10",
        }
    )
    assert settings is not None
    for _ in range(2):
        both(ranks, (0.06, 0.9, 0.9))
    # 1/10 without drafts; 1.06/11 = .096 with one: not worth it.
    assert agreed(ranks, "a") == (0, [0])
    for rank in ranks:
        before = rank.manager.cost_tables
        runner = SimpleNamespace(
            speculative_config=SimpleNamespace(enable_adaptive_verification=True),
            adaptive_verification=rank.manager,
        )
        price_drafts(runner, settings)
        assert before is not None
        assert rank.manager.cost_tables[1] is before[1]
    # With 10 ms of drafting in every step: 1/20 = .05; .0505 with one; 1.114/22 = .0506; 1.1626/23 = .0505: two.
    assert agreed(ranks, "a") == (2, [2])


def test_a_step_of_stocks_trimming_is_read_from_the_device(ranks: tuple[Rank, Rank]) -> None:
    """What the seam takes for the step's rows is what the manager wrote, not the host's even split."""
    from spark_overlay.vllm_seam.step import engine_step

    for _ in range(2):
        both(ranks, UNSURE, SURE)
    rank = ranks[0]
    scheduled = np.full(2, DRAFTS, np.int32)
    assert rank.manager.get_num_tokens({"a": 4, "b": 4}, {"a": [0] * 3, "b": [0] * 3}) == 5
    even, _ = rank.manager.compact_batch(scheduled, np.full(2, 4, np.int32), np.zeros(3, np.int32))
    assert even.tolist() == [3, 2]
    rank.manager.reallocate_drafts(["a", "b"], torch.arange(2))
    batch = SimpleNamespace(
        num_reqs=2,
        req_ids=["a", "b"],
        idx_mapping=torch.arange(2),
        idx_mapping_np=np.arange(2),
        positions=torch.arange(5),
        query_start_loc=rank.manager.query_start_loc,
        query_start_loc_np=np.cumsum([0, *even]).astype(np.int32),
        num_scheduled_tokens=np.full(2, 4, np.int32),
        num_draft_tokens_per_req=scheduled,
    )
    call = {"input_batch": batch, "aux_hidden_states": (), "next_prefill_tokens": torch.zeros(1, SLOTS)}
    call |= dict.fromkeys(("num_sampled", "num_rejected", "last_sampled"), torch.zeros(2))
    inputs: StepInputs = engine_step(call, DRAFTS, trimmed=True).inputs
    assert inputs.trimmed is not None
    assert inputs.trimmed.starts.tolist() == [0, 1, 5]
    assert inputs.trimmed.undrafted.tolist() == [1, 1]
    assert engine_step(call, DRAFTS).inputs.trimmed is None
    batch.num_draft_tokens_per_req = None
    assert engine_step(call, DRAFTS, trimmed=True).inputs.trimmed is None
