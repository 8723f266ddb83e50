"""The speculators alone, between a batch as vLLM builds it and a drafter that writes down what it is asked."""

import importlib
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from spark_overlay.decision import DecisionLayout
from spark_overlay.gather import TapGather
from spark_overlay.interface import LocalDrafts
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.vllm_seam.errors import RemoteRoundFailed
from spark_overlay.vllm_seam.policies import Capacity, RemoteRounds, Resilience, Shadow
from spark_overlay.vllm_seam.speculators import RemoteAndLocal
from spark_overlay.vllm_seam.step import Lead
from spark_overlay.vllm_seam.versions import seam_for
from spark_overlay.vllm_seam.words import Words

with warnings.catch_warnings():
    # torch decorates classes of its own with functions that it has deprecated, and vLLM imports those.
    warnings.simplefilter("ignore", DeprecationWarning)
    import vllm

    seam = importlib.import_module(seam_for(vllm.__version__).module)

pytestmark = pytest.mark.engine

SLOTS, DRAFTS, BLOCK, HIDDEN, TAPS, LEN_MAX = 4, 3, 5, 2, 2, 50


class Asked:
    """A drafter that answers k+1, k+2, .. after anchor k, or fails, and keeps what it was asked.

    fails: the whole round.  refuses: slots that get nothing.  broken: raise where it must never.
    """

    def __init__(self) -> None:
        self.rounds: list[list[RoundRequest]] = []
        self.accepted: list[tuple[int, int]] = []
        self.compared: list[tuple[list[list[int]], float, list[RoundRequest], RoundResult]] = []
        self.fallbacks: list[int] = []
        self.aborts: list[Exception] = []
        self.refuses: set[int] = set()
        self.fails = self.raises = self.broken = self.closed = False
        self.depth_max: int | None = None

    def round(self, requests: Sequence[RoundRequest], rows: Any, gather_us: float = 0.0) -> RoundResult:
        if self.broken:
            raise RuntimeError("a defect of the rounds")
        self.rounds.append(list(requests))
        drafts = np.zeros((len(requests), BLOCK), np.int32)
        outcomes = np.full(len(requests), Outcome.NO_DRAFT, np.int32)
        for index, request in enumerate(requests):
            if request.n_out and self.fails:
                outcomes[index] = Outcome.ROUND_FAILED
            elif request.n_out and request.slot in self.refuses:
                outcomes[index] = Outcome.GAP
            elif request.n_out:
                drafts[index, : request.n_out] = request.anchor + 1 + np.arange(request.n_out)
                outcomes[index] = Outcome.OK
        return result(drafts, outcomes, "timeout" if self.fails else "")

    def abort(self, n_requests: int, error: Exception) -> RoundResult:
        self.aborts.append(error)
        outcomes = np.full(n_requests, Outcome.ROUND_FAILED, np.int32)
        return result(np.zeros((n_requests, BLOCK), np.int32), outcomes, "internal_error")

    def record_acceptance(self, accepted: int, drafted: int, position: int) -> None:
        self.accepted.append((accepted, drafted))

    def record_local(self, local: LocalDrafts, requests: Sequence[RoundRequest], got: RoundResult) -> None:
        if self.broken:
            raise RuntimeError("a defect of the figures")
        self.compared.append((local.drafts.tolist(), local.propose_us, list(requests), got))

    def record_local_fallback(self, requests: int) -> None:
        self.fallbacks.append(requests)

    def must_raise(self, got: RoundResult) -> bool:
        return self.raises and not np.isin(got.outcomes, (Outcome.OK, Outcome.NO_DRAFT)).all()

    def close(self) -> None:
        self.closed = True


def result(drafts: Any, outcomes: Any, reason: str) -> RoundResult:
    zeros = np.zeros(drafts.shape, np.float32)
    none = np.zeros(len(outcomes), bool)
    return RoundResult(drafts, zeros, zeros, none, outcomes == Outcome.OK, outcomes, reason)


class States:
    """The engine's request states, as far as slots go."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}

    def add_request(self, req_id: str, slot: int) -> None:
        self.req_id_to_index[req_id] = slot


class Heard:
    """The ranks' broadcast, as seen from outside: what rank 0 sent, in order."""

    rank, size = 0, 2

    def __init__(self, layout: DecisionLayout) -> None:
        self._layout = layout
        self.sent: list[Any] = []

    def broadcast(self, words: torch.Tensor) -> None:
        self.sent.append(self._layout.decode(words.numpy().copy()))

    def gather(self, text: str) -> list[str]:
        raise AssertionError("nothing is gathered in a step")


class Following:
    """The same on another rank: what rank 0 sent there arrives here."""

    rank, size = 1, 2

    def __init__(self) -> None:
        self.words: list[np.ndarray] = []

    def broadcast(self, words: torch.Tensor) -> None:
        words.copy_(torch.from_numpy(self.words.pop(0)))

    def gather(self, text: str) -> list[str]:
        raise AssertionError("nothing is gathered in a step")


class StockDrafter:
    """Stands for vLLM's DSparkSpeculator: drafts 500, 501, .. into a buffer of its own that is never cleared."""

    def __init__(self, config: Any, device: torch.device) -> None:
        self.num_speculative_steps = config.speculative_config.num_speculative_tokens
        self.draft_tokens = torch.full((SLOTS, DRAFTS), -7, dtype=torch.int64)
        self.calls: list[str] = []
        self.drafted = False

    def propose(self, *args: Any, **call: Any) -> torch.Tensor:
        assert not args, "the seam hands all arguments over by name"
        count = call["input_batch"].num_reqs
        if call.get("dummy_run"):
            self.calls.append("dummy")
            return self.draft_tokens[:count]
        self.drafted = False
        self._generate_draft(count)
        assert self.drafted or call["is_profile"], "only an eager proposal may leave the query pass out"
        self.calls.append("drafted" if self.drafted else "context")
        return self.draft_tokens[:count]

    def _generate_draft(self, count: int) -> None:
        self.drafted = True
        self.draft_tokens[:count] = 500 + torch.arange(DRAFTS)


class StandIn(RemoteAndLocal, StockDrafter):
    """Shadow's and resilience's speculator around it."""

    propose_parameters = seam.PROPOSE_PARAMETERS


class Bench:
    """A speculator, up and bound to a policy, and the batches that it is given."""

    def __init__(self, policy: str = "capacity", *, raises: bool = False, uses_remote: bool = False) -> None:
        self.states, self.drafter = States(), Asked()
        self.drafter.raises = raises
        self.layout = DecisionLayout(SLOTS, DRAFTS)
        self.ranks = Heard(self.layout)
        taps = TapGather(
            max_requests=SLOTS,
            max_tokens=64,
            max_drafts=DRAFTS,
            tap_count=TAPS,
            hidden_size=HIDDEN,
            dtype=torch.float32,
            device=torch.device("cpu"),
            window=0,
        )
        lead = Lead(self.drafter, taps, LEN_MAX, verifies_remote=policy != "shadow" or uses_remote)
        self.speculator = bound(policy, self.ranks, lead, raises, uses_remote)
        self.broken_taps = False
        lead.attach(self.states)
        self.speculator.engine_is_up(None)

    def step(
        self, *requests: tuple[str, int, int, int, int, int], wanted: int | None = None, **more: Any
    ) -> Any:
        """One step.  Each request: name, first position, scheduled tokens, drafts verified, tokens sampled, anchor."""
        slots = [self.states.req_id_to_index[request[0]] for request in requests]
        call = step_call(requests, slots, n_taps=1 if self.broken_taps else TAPS)
        return self.speculator.propose(
            *call, num_speculative_tokens=DRAFTS if wanted is None else wanted, **more
        )


def bound(policy: str, ranks: Any, lead: Lead | None, raises: bool, uses_remote: bool) -> Any:
    """A speculator bound to a policy, not up yet."""
    words = Words(DecisionLayout(SLOTS, DRAFTS), torch.device("cpu"))
    rounds = RemoteRounds(words, ranks, lead, raises=raises)
    policies = {
        "capacity": lambda: Capacity(rounds),
        "resilience": lambda: Resilience(rounds),
        "shadow": lambda: Shadow(rounds, uses_remote=uses_remote),
    }
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=DRAFTS),
        scheduler_config=SimpleNamespace(max_num_seqs=SLOTS),
    )
    made = (seam.RemoteDSparkSpeculator if policy == "capacity" else StandIn)(config, torch.device("cpu"))
    made.bind(policies[policy](), policy, lambda runner: None)
    return made


def step_call(
    requests: Sequence[tuple[str, int, int, int, int, int]], slots: Sequence[int], n_taps: int = TAPS
) -> list[Any]:
    """The arguments of `propose` that the runner passes by position."""
    lengths = [request[2] for request in requests]
    positions = torch.cat([torch.arange(first, first + length) for _, first, length, *_ in requests])
    sampled = torch.tensor([request[4] for request in requests], dtype=torch.int32)
    verified = np.array([request[3] for request in requests], dtype=np.int32)
    rejected = [count + 1 - got if got else 0 for count, got in zip(verified, sampled.tolist(), strict=True)]
    last = torch.zeros(SLOTS, 1, dtype=torch.int64)
    for slot, request in zip(slots, requests, strict=True):
        last[slot] = request[5]
    batch = SimpleNamespace(
        num_reqs=len(requests),
        req_ids=[request[0] for request in requests],
        idx_mapping=torch.tensor(slots),
        idx_mapping_np=np.array(slots),
        positions=positions,
        query_start_loc_np=np.cumsum([0, *lengths]).astype(np.int32),
        num_draft_tokens_per_req=verified if verified.any() else None,
    )
    taps = [torch.zeros(sum(lengths), HIDDEN) for _ in range(n_taps)]
    prefill = torch.full((1, SLOTS), 7, dtype=torch.int32)
    return [batch, None, None, taps[0], taps, sampled, torch.tensor(rejected, dtype=torch.int32), last, prefill,
            None, None]  # fmt: skip


def ready(made: Bench) -> Bench:
    made.states.add_request("a", slot=2)
    made.states.add_request("b", slot=0)
    return made


@pytest.fixture
def bench() -> Bench:
    return ready(Bench())


def test_this_vllm_calls_speculators_as_the_seam_expects() -> None:
    seam.check_interface()


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
    assert bench.ranks.sent == []


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


ONE = ("a", 0, 4, 0, 1, 40)


def test_where_the_operator_asked_for_it_a_failed_round_ends_the_engine_after_its_broadcast() -> None:
    bench = ready(Bench(raises=True))
    assert bench.step(ONE).tolist() == [[41, 42, 43]]
    bench.drafter.fails = True
    with pytest.raises(RemoteRoundFailed, match="timeout"):
        bench.step(("a", 4, 1, 0, 1, 41))
    assert [sent.must_raise for sent in bench.ranks.sent] == [False, True]


def test_the_end_names_what_became_of_the_requests_where_no_whole_round_failed() -> None:
    bench = ready(Bench(raises=True))
    bench.drafter.refuses = set(range(SLOTS))
    with pytest.raises(RemoteRoundFailed, match=r"stop on that: requests without drafts: GAP$"):
        bench.step(ONE)


# --- what every rank is told ---


def test_every_real_step_is_broadcast_once_with_what_became_of_it(bench: Bench) -> None:
    bench.step(ONE, ("b", 0, 3, 0, 0, 0))
    bench.drafter.fails = True
    bench.step(("a", 4, 1, 0, 1, 41))
    good, failed = bench.ranks.sent
    assert (good.round, failed.round) == (1, 2)
    assert good.outcomes.tolist() == [Outcome.OK, Outcome.NO_DRAFT]
    assert good.drafts.tolist() == [[41, 42, 43], [0, 0, 0]]
    assert (good.reason, failed.reason) == ("", "timeout")
    assert failed.without.tolist() == [True]


def test_before_the_engine_is_up_no_step_is_a_real_one() -> None:
    """Runners warm up with requests that nobody sent."""
    lead = Lead(Asked(), None, LEN_MAX)  # type: ignore[arg-type]
    ranks = Heard(DecisionLayout(SLOTS, DRAFTS))
    for policy in ("capacity", "shadow", "resilience"):
        speculator = bound(policy, ranks, lead, raises=False, uses_remote=False)
        speculator.propose(*step_call([ONE], [2]), num_speculative_tokens=DRAFTS)
    assert ranks.sent == []


@pytest.mark.parametrize("policy", ["capacity", "shadow", "resilience"])
@pytest.mark.parametrize("where", ["gather", "drafter", "additions"])
def test_whatever_breaks_on_rank_0_is_told_to_all_ranks_and_counted(policy: str, where: str) -> None:
    bench = ready(Bench(policy))
    bench.step(ONE)
    if where == "gather":
        bench.broken_taps = True
    elif where == "drafter":
        bench.drafter.broken = True
    else:
        bench.speculator.policy.rounds.lead._additions = None
    drafts = bench.step(("a", 4, 1, 0, 1, 41))
    assert len(bench.drafter.aborts) == 1
    told = bench.ranks.sent[-1]
    assert (told.reason, told.outcomes.tolist()) == ("internal_error", [Outcome.ROUND_FAILED])
    assert drafts.tolist() == ([[0, 0, 0]] if policy == "capacity" else [LOCAL])
    assert len(bench.ranks.sent) == 2


def test_of_drafts_that_adaptive_verification_left_out_none_counts(bench: Bench) -> None:
    bench.speculator.enable_adaptive_verification = True
    bench.step(ONE)
    # Three drafts were scheduled; the device verified one, accepted it, and drew one token on top.
    slots = [2]
    call = step_call([("a", 4, 2, 3, 2, 45)], slots)
    call[0].query_start_loc, call[0].num_scheduled_tokens = torch.tensor([0, 2]), np.array([4])
    call[0].query_start_loc_np = np.array([0, 4])
    call[6] = torch.zeros(1, dtype=torch.int32)
    bench.speculator.propose(*call, num_speculative_tokens=DRAFTS)
    assert bench.drafter.accepted == [(1, 1)]
    (request,) = bench.drafter.rounds[1]
    assert (request.first_position, request.n_rows, request.anchor) == (4, 2, 45)
    assert bench.drafter.aborts == []


def test_drafts_of_a_good_round_do_not_count_for_the_step_after_a_broken_one(bench: Bench) -> None:
    bench.step(ONE)
    bench.broken_taps = True
    bench.step(("a", 4, 4, 3, 4, 44))
    bench.broken_taps = False
    # What is verified now are the zeros of the broken step.
    bench.step(("a", 8, 4, 3, 1, 45))
    assert bench.drafter.accepted == []


def test_an_exception_that_is_no_mere_failure_still_leaves_its_broadcast_behind(bench: Bench) -> None:
    def ended(*_: Any) -> Any:
        raise KeyboardInterrupt

    bench.drafter.round = ended  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        bench.step(ONE)
    (told,) = bench.ranks.sent
    assert told.without.tolist() == [True]


LOCAL = [500, 501, 502]
MIXED = (("a", 0, 4, 0, 1, 40), ("b", 0, 3, 0, 1, 60))


class Pair:
    """Rank 0 and a rank that follows it, through the same steps."""

    def __init__(self, policy: str, **more: Any) -> None:
        self.first = ready(Bench(policy, **more))
        self.ranks = Following()
        options = {"raises": False, "uses_remote": False} | more
        self.second = bound(policy, self.ranks, None, **options)
        self.second.engine_is_up(None)
        original = self.first.ranks.broadcast

        def broadcast(words: torch.Tensor) -> None:
            original(words)
            self.ranks.words.append(words.numpy().copy())

        self.first.ranks.broadcast = broadcast  # type: ignore[method-assign]

    def step(self, *requests: tuple[str, int, int, int, int, int]) -> tuple[Any, Any]:
        """Both ranks' drafts, or what each raised."""
        slots = [self.first.states.req_id_to_index[request[0]] for request in requests]
        first = outcome(lambda: self.first.step(*requests))
        call = step_call(requests, slots)
        second = outcome(lambda: self.second.propose(*call, num_speculative_tokens=DRAFTS))
        assert self.ranks.words == []
        return first, second


def outcome(run: Any) -> Any:
    try:
        return run().tolist()
    except RemoteRoundFailed as error:
        return type(error)


@pytest.mark.parametrize("uses_remote", [False, True])
@pytest.mark.parametrize("policy", ["capacity", "shadow", "resilience"])
def test_all_ranks_hand_the_same_drafts_to_verification(policy: str, uses_remote: bool) -> None:
    pair = Pair(policy, uses_remote=uses_remote)
    expected = {
        "capacity": [[41, 42, 43], [0, 0, 0]],
        "resilience": [[41, 42, 43], LOCAL],
        "shadow": [[41, 42, 43], LOCAL] if uses_remote else [LOCAL, LOCAL],
    }[policy]
    pair.first.drafter.refuses = {0}
    assert pair.step(*MIXED) == (expected, expected)
    if policy != "capacity":
        assert pair.first.speculator.calls == pair.second.calls


@pytest.mark.parametrize("policy", ["capacity", "shadow", "resilience"])
def test_where_the_operator_asked_for_it_all_ranks_end(policy: str) -> None:
    pair = Pair(policy, raises=True)
    assert RemoteRoundFailed not in pair.step(*MIXED)
    pair.first.drafter.refuses = {0}
    assert pair.step(*MIXED) == (RemoteRoundFailed, RemoteRoundFailed)


def test_only_rank_0_has_a_drafter_to_close() -> None:
    pair = Pair("shadow")
    assert pair.second.drafter is None
    pair.second.close()
    pair.first.speculator.close()
    assert pair.first.drafter.closed


# --- resilience ---


def test_resilience_keeps_the_local_context_and_drafts_locally_only_where_somebody_lacks_drafts() -> None:
    bench = ready(Bench("resilience"))
    assert bench.step(*MIXED).tolist() == [[41, 42, 43], [61, 62, 63]]
    assert bench.speculator.calls == ["context"]
    bench.drafter.fails = True
    assert bench.step(("a", 4, 1, 0, 1, 41), ("b", 3, 1, 0, 1, 61)).tolist() == [LOCAL, LOCAL]
    assert bench.speculator.calls == ["context", "context", "drafted"]
    assert bench.drafter.fallbacks == [2]


def test_resilience_does_not_draft_locally_for_a_prompt_that_is_still_being_read() -> None:
    bench = ready(Bench("resilience"))
    bench.drafter.fails = True
    bench.step(("a", 0, 20, 0, 0, 0))
    bench.step(("a", 20, 4, 0, 1, 41), wanted=0)
    assert bench.speculator.calls == ["context", "context"]
    assert bench.drafter.fallbacks == []


def test_what_the_runner_writes_into_merged_drafts_reaches_neither_drafters_buffer() -> None:
    bench = ready(Bench("resilience"))
    bench.drafter.refuses = {0}
    drafts = bench.step(*MIXED)
    drafts[:, 1:] = -1
    assert bench.speculator.draft_tokens[:2].tolist() == [LOCAL, LOCAL]
    assert bench.step(("a", 4, 1, 0, 1, 41), ("b", 3, 1, 0, 1, 61)).tolist() == [[42, 43, 44], LOCAL]


def test_in_resilience_accepted_local_drafts_are_not_counted_as_remote_ones() -> None:
    bench = ready(Bench("resilience"))
    bench.drafter.refuses = {0}
    bench.step(*MIXED)
    bench.step(("a", 4, 4, 3, 3, 43), ("b", 3, 4, 3, 4, 64))
    assert bench.drafter.accepted == [(2, 3)]


def test_a_dummy_run_reaches_the_local_drafter_and_nobody_else() -> None:
    for policy in ("shadow", "resilience"):
        bench = ready(Bench(policy))
        bench.step(ONE, dummy_run=True)
        assert bench.speculator.calls == ["dummy"]
        assert (bench.drafter.rounds, bench.ranks.sent) == ([], [])


# --- shadow ---


def test_shadow_compares_both_and_verifies_the_local_drafts() -> None:
    bench = ready(Bench("shadow"))
    assert bench.step(*MIXED).tolist() == [LOCAL, LOCAL]
    ((local, propose_us, requests, got),) = bench.drafter.compared
    assert local == [LOCAL, LOCAL]
    assert propose_us > 0
    assert [request.request_id for request in requests] == ["a", "b"]
    assert got.drafts[0, :DRAFTS].tolist() == [41, 42, 43]
    # The local ones were verified: what became of them says nothing of the remote ones.
    bench.step(("a", 4, 4, 3, 3, 43))
    assert bench.drafter.accepted == []


def test_shadow_verifies_remote_drafts_where_asked_and_local_ones_for_whoever_has_none() -> None:
    bench = ready(Bench("shadow", uses_remote=True))
    bench.drafter.refuses = {0}
    assert bench.step(*MIXED).tolist() == [[41, 42, 43], LOCAL]
    bench.step(("a", 4, 4, 3, 3, 43), ("b", 3, 4, 3, 4, 64))
    assert bench.drafter.accepted == [(2, 3)]


def test_a_defect_in_comparing_is_told_with_the_next_round_and_not_to_the_engine() -> None:
    bench = ready(Bench("shadow"))
    compare = bench.drafter.record_local

    def fails_once(*_: Any) -> None:
        bench.drafter.record_local = compare  # type: ignore[method-assign]
        raise RuntimeError("a defect of the figures")

    bench.drafter.record_local = fails_once  # type: ignore[assignment]
    assert bench.step(ONE).tolist() == [LOCAL]
    assert bench.step(("a", 4, 1, 0, 1, 41)).tolist() == [LOCAL]
    assert [str(error) for error in bench.drafter.aborts] == ["a defect of the figures"]
    assert [told.reason for told in bench.ranks.sent] == ["", "internal_error"]
    bench.step(("a", 5, 1, 0, 1, 42))
    assert len(bench.drafter.aborts) == 1


# --- start ---


def test_the_start_proves_that_a_rank_reads_what_rank_0_sends() -> None:
    pair = Pair("capacity")
    assert pair.first.speculator.policy.rounds.prove()
    assert pair.second.policy.rounds.prove()
    pair.ranks.words = [np.zeros(DecisionLayout(SLOTS, DRAFTS).words, np.int32)]
    assert not pair.second.policy.rounds.prove()
