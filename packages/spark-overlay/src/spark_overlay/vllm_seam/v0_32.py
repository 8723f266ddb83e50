"""vLLM 0.32: the remote drafter as this version's model runner V2 calls it, in capacity policy.

Owns the step between the runner and the round: tap -> gather -> requests -> round -> drafts.  It holds no
weights, no draft KV and no graphs.  It must never change what the target says: whatever fails, the runner
gets zero drafts, which its verification rejects exactly.  One thread, the engine's, calls it.
"""

import inspect
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from spark_overlay.gather import Gathered, StepInputs, TapGather
from spark_overlay.interface import Drafter, EngineFacts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.acceptance import AcceptanceLedger
from spark_overlay.vllm_seam.additions import Additions
from spark_overlay.vllm_seam.errors import RemoteRoundFailed, SeamError
from spark_overlay.vllm_seam.facts import engine_facts
from spark_overlay.vllm_seam.startup import on_up

PROPOSE_PARAMETERS = (
    "self", "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states",
    "num_sampled", "num_rejected", "last_sampled", "next_prefill_tokens", "temperature", "seeds",
    "dp_sync_state", "dummy_run", "skip_attn_for_dummy_run", "mm_inputs", "is_profile",
    "num_speculative_tokens",
)  # fmt: skip
"""The runner passes some by position and some by name, so all of them are checked before an engine runs."""


def check_interface() -> None:
    """Raises SeamError where this vLLM calls speculators otherwise than 0.32.0 does."""
    found = tuple(inspect.signature(BaseSpeculator.propose).parameters)
    if found != PROPOSE_PARAMETERS:
        raise SeamError(
            f"BaseSpeculator.propose of this vLLM takes {', '.join(found)}: not vLLM 0.32.0's signature"
        )


def build(
    vllm_config: Any, device: torch.device, request_states: Any, settings: Settings, version: str
) -> "RemoteDSparkSpeculator":
    """One engine's speculator, its drafter not yet started.  Raises SeamError on a shape we cannot state."""
    facts = engine_facts(vllm_config)
    drafter = RemoteDrafter(settings, facts)
    up = on_up(settings, facts, drafter, version)
    return RemoteDSparkSpeculator(vllm_config, device, request_states, facts, drafter, up)


class RemoteDSparkSpeculator(BaseSpeculator):
    """A speculator without a model: each step's taps go to the worker, its drafts come back.

    The attributes below are what the runner reads on any speculator.  A plain `BaseSpeculator`, not vLLM's
    `DraftModelSpeculator`, so the runner loads no draft model and registers no draft attention layer.
    """

    drafts_remotely = True
    """The guard's mark; see `spark_overlay.vllm_seam.guard`."""
    supports_mm_inputs = False
    """Drafting reads taps, never multimodal embeddings."""
    draft_logits: torch.Tensor | None = None
    """None: drafts are greedy, and verification takes them as one-hot."""
    enable_adaptive_verification = False
    pcp_manager: Any = None
    """Set by the runner; None without prefill context parallelism."""

    def __init__(
        self,
        vllm_config: Any,
        device: torch.device,
        request_states: Any,
        facts: EngineFacts,
        drafter: Drafter,
        on_up: Callable[[Any], None],
    ) -> None:
        """on_up: called with the model runner when the engine is about to serve."""
        model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
        self.num_speculative_steps: int = vllm_config.speculative_config.num_speculative_tokens
        self.facts = facts
        self.drafter = drafter
        self._max_model_len: int = model.max_model_len
        self._on_up = on_up
        self._additions = Additions(request_states)
        self._seen_additions: dict[int, int] = {}
        self._ledger = AcceptanceLedger()
        self.taps = TapGather(
            max_requests=scheduler.max_num_seqs,
            max_tokens=scheduler.max_num_batched_tokens,
            max_drafts=self.num_speculative_steps,
            tap_count=facts.tap_count,
            hidden_size=model.get_hidden_size(),
            dtype=model.dtype,
            device=device,
            window=facts.window,
        )
        shape = (scheduler.max_num_seqs, self.num_speculative_steps)
        self._drafts = torch.zeros(shape, dtype=torch.int64, device=device)
        self._host_drafts = torch.zeros(shape, dtype=torch.int64, pin_memory=device.type != "cpu")
        self._host_drafts_view = self._host_drafts.numpy()

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Nothing to capture: there is no draft model on this host."""

    def capture(self) -> None:
        """Nothing to capture."""

    def engine_is_up(self, model_runner: Any) -> None:
        """The last step of the engine's start: connect, and say so."""
        self._on_up(model_runner)

    def close(self) -> None:
        """End the drafter's session and threads.  Safe to call twice."""
        self.drafter.close()

    def propose(
        self,
        input_batch: InputBatch,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        dp_sync_state: Any = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        mm_inputs: Any = None,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
    ) -> torch.Tensor:
        """Drafts of every request of the batch, int64 [num_reqs, num_speculative_steps]; zeros where there
        are none.

        The tensor is a view of our own buffer that holds until the next call; the runner writes into its
        tail.  Raises RemoteRoundFailed where the operator asked for that (ON_FAIL=raise), and nothing else on
        account of the worker.
        """
        num_reqs = input_batch.num_reqs
        if dummy_run or is_profile:
            return self._drafts[:num_reqs].zero_()
        started_ns = perf_counter_ns()
        gathered = self.taps.gather(
            StepInputs(
                taps=aux_hidden_states or (),
                positions=input_batch.positions,
                num_sampled=num_sampled,
                num_rejected=num_rejected,
                last_sampled=last_sampled,
                next_prefill=next_prefill_tokens,
                slots=input_batch.idx_mapping,
                starts=input_batch.query_start_loc_np[: num_reqs + 1],
                draft_counts=_draft_counts(input_batch),
            )
        )
        gather_us = (perf_counter_ns() - started_ns) / 1000
        lives = self._lives(input_batch)
        self._account(input_batch, gathered, lives)
        wanted = self.num_speculative_steps if num_speculative_tokens is None else num_speculative_tokens
        requests = self._requests(input_batch, gathered, lives, wanted)
        result = self.drafter.round(requests, gathered.rows, gather_us)
        if self.drafter.must_raise(result):
            raise RemoteRoundFailed(
                f"a round failed and the setting is to stop on that: {result.reason} {result.detail}"
            )
        self._ledger.put(requests, lives, result)
        return self._to_device(result, num_reqs)

    def _lives(self, input_batch: InputBatch) -> list[tuple[str, int]]:
        """For each request its name and how often its slot was filled: together they name one life in the
        slot.
        """
        slots = input_batch.idx_mapping_np.tolist()
        return [(name, self._additions[slot]) for name, slot in zip(input_batch.req_ids, slots, strict=True)]

    def _account(self, input_batch: InputBatch, gathered: Gathered, lives: list[tuple[str, int]]) -> None:
        """Count what this step's verification said about the last round's drafts."""
        scheduled, sampled = _draft_counts(input_batch).tolist(), gathered.num_sampled.tolist()
        for index, slot in enumerate(input_batch.idx_mapping_np.tolist()):
            verified = self._ledger.take(slot, lives[index], scheduled[index], sampled[index])
            if verified is not None:
                self.drafter.record_acceptance(verified.accepted, verified.drafted, verified.position)

    def _requests(
        self, input_batch: InputBatch, gathered: Gathered, lives: list[tuple[str, int]], wanted: int
    ) -> list[RoundRequest]:
        """The round's descriptors.  A request whose prompt is not read to its end gives rows and wants no
        draft.
        """
        requests = []
        for index, slot in enumerate(input_batch.idx_mapping_np.tolist()):
            name, addition = lives[index]
            first, n_rows = int(gathered.first_positions[index]), int(gathered.n_rows[index])
            # The last position that can hold a token bounds what is worth drafting after the anchor.
            room = self._max_model_len - 1 - (first + n_rows)
            n_out = max(0, min(wanted, room)) if gathered.num_sampled[index] > 0 else 0
            requests.append(
                RoundRequest(
                    slot=slot,
                    request_id=name,
                    first_position=first,
                    n_rows=n_rows,
                    row_offset=int(gathered.row_offsets[index]),
                    anchor=int(gathered.anchors[index]) if n_out else 0,
                    n_out=n_out,
                    added=self._seen_additions.get(slot) != addition,
                )
            )
            self._seen_additions[slot] = addition
        return requests

    def _to_device(self, result: RoundResult, num_reqs: int) -> torch.Tensor:
        """The drafts in a fresh view.  The host buffer is free again: the next gather waits for this copy
        first.
        """
        self._host_drafts_view[:num_reqs] = result.drafts[:num_reqs, : self.num_speculative_steps]
        out = self._drafts[:num_reqs]
        out.copy_(self._host_drafts[:num_reqs], non_blocking=True)
        return out


def _draft_counts(input_batch: InputBatch) -> Any:
    """int32 [num_reqs]: drafts that this step verified."""
    counts = input_batch.num_draft_tokens_per_req
    return np.zeros(input_batch.num_reqs, dtype=np.int32) if counts is None else counts
