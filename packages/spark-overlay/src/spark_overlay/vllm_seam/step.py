"""Rank 0's half of a step: taps and facts to the host, requests from them, the round.

Owns the step between the runner and the round: tap -> gather -> requests -> round.  Imports torch, never vLLM.
Must never raise on account of a step: whatever fails, the round is failed and counted, so that the other ranks
are told.  One thread, the engine's, calls it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spark_overlay.gather import Gathered, StepInputs, TapGather, Trimmed
from spark_overlay.interface import Drafter, LocalDrafts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.vllm_seam.acceptance import AcceptanceLedger
from spark_overlay.vllm_seam.additions import Additions

Life = tuple[str, int]
"""A request's name and how often its slot was filled: together they name one life in the slot."""


@dataclass(frozen=True)
class EngineStep:
    """One real step as every rank has it.

    inputs: tensors and host arrays of the batch.  names, slots: of its requests.  wanted: drafts that the engine
    will verify next, at most.
    """

    inputs: StepInputs
    names: Sequence[str]
    slots: Sequence[int]
    wanted: int

    @property
    def n_requests(self) -> int:
        """Requests of the batch."""
        return len(self.names)


@dataclass(frozen=True)
class Led:
    """A round as rank 0 had it.  requests: empty where it could not be begun."""

    requests: Sequence[RoundRequest]
    result: RoundResult


def engine_step(
    call: Mapping[str, Any],
    drafts: int,
    first_valid: NDArray[np.int32] | None = None,
    *,
    trimmed: bool = False,
) -> EngineStep:
    """The step of a call of `propose`.  call: its arguments by name, which all supported versions share.

    drafts: K.  first_valid: see `StepInputs`; None for targets that trim no rows, as Qwen3 never does.
    trimmed: adaptive verification, which decides on the device how many of a request's drafts are verified; what the
    host knows of a step with drafts is then an even split of their number.
    """
    batch, wanted = call["input_batch"], call.get("num_speculative_tokens")
    count = batch.num_reqs
    verified = batch.num_draft_tokens_per_req
    return EngineStep(
        inputs=StepInputs(
            taps=call["aux_hidden_states"] or (),
            positions=batch.positions,
            num_sampled=call["num_sampled"],
            num_rejected=call["num_rejected"],
            last_sampled=call["last_sampled"],
            # One row a lookahead; vLLM 0.26 has one and leaves the dimension out.
            next_prefill=torch.atleast_2d(call["next_prefill_tokens"]),
            slots=batch.idx_mapping,
            starts=batch.query_start_loc_np[: count + 1],
            draft_counts=np.zeros(count, np.int32) if verified is None else verified,
            first_valid=first_valid,
            trimmed=_trimmed(batch) if trimmed and verified is not None else None,
        ),
        names=batch.req_ids,
        slots=batch.idx_mapping_np[:count].tolist(),
        wanted=drafts if wanted is None else min(drafts, wanted),
    )


def _trimmed(batch: Any) -> Trimmed:
    count = batch.num_reqs
    undrafted = batch.num_scheduled_tokens[:count] - batch.num_draft_tokens_per_req
    return Trimmed(starts=batch.query_start_loc[: count + 1], undrafted=undrafted)


class Lead:
    """Rank 0's drafter and what it needs of each step.

    verifies_remote: whether the engine verifies remote drafts where there are any, so that their acceptance
    counts; False in a shadow that uses the local ones.
    """

    def __init__(
        self, drafter: Drafter, taps: TapGather, max_model_len: int, *, verifies_remote: bool = True
    ) -> None:
        self.drafter, self.taps = drafter, taps
        self._max_model_len, self._verifies_remote = max_model_len, verifies_remote
        self._additions: Additions | None = None
        self._seen_additions: dict[int, int] = {}
        self._ledger = AcceptanceLedger()
        self._late: Exception | None = None

    def attach(self, request_states: Any) -> None:
        """Count additions from here on: once, with the engine's request states, before its first request."""
        self._additions = Additions(request_states)

    def round(self, step: EngineStep) -> Led:
        """The whole of it; a failed result where anything of ours went wrong."""
        try:
            return self._round(step)
        except Exception as error:
            # Not narrower: the other ranks wait for a word of this round, whatever is wrong with us.
            self._ledger.forget()
            return Led((), self.drafter.abort(step.n_requests, error))

    def compare(self, local: LocalDrafts, led: Led) -> None:
        """Shadow: hand over the local drafts of the same step."""
        self._record(lambda: self.drafter.record_local(local, led.requests, led.result))

    def fell_back(self, requests: int) -> None:
        """Resilience: local drafts stood in for so many requests."""
        self._record(lambda: self.drafter.record_local_fallback(requests))

    def _record(self, record: Any) -> None:
        """After the broadcast no rank may fall out of step: a defect is told with the next round."""
        try:
            record()
        except Exception as error:
            self._late = error

    def _round(self, step: EngineStep) -> Led:
        if self._late is not None:
            late, self._late = self._late, None
            raise late
        started_ns = perf_counter_ns()
        gathered = self.taps.gather(step.inputs)
        gather_us = (perf_counter_ns() - started_ns) / 1000
        lives = self._lives(step)
        self._account(step, gathered, lives)
        requests = self._requests(step, gathered, lives)
        result = self.drafter.round(requests, gathered.rows, gather_us)
        if self._verifies_remote:
            self._ledger.put(requests, lives, result)
        return Led(requests, result)

    def _lives(self, step: EngineStep) -> list[Life]:
        assert self._additions is not None, "no real step comes before the engine is up"
        return [(name, self._additions[slot]) for name, slot in zip(step.names, step.slots, strict=True)]

    def _account(self, step: EngineStep, gathered: Gathered, lives: Sequence[Life]) -> None:
        """Count what this step's verification said about the last round's drafts."""
        scheduled, sampled = gathered.draft_counts.tolist(), gathered.num_sampled.tolist()
        for index, slot in enumerate(step.slots):
            verified = self._ledger.take(slot, lives[index], scheduled[index], sampled[index])
            if verified is not None:
                self.drafter.record_acceptance(verified.accepted, verified.drafted, verified.position)

    def _requests(self, step: EngineStep, gathered: Gathered, lives: Sequence[Life]) -> list[RoundRequest]:
        """The round's descriptors.  A request whose prompt is not read to its end gives rows and wants no
        draft.
        """
        requests = []
        cap = self.drafter.depth_max
        wanted = step.wanted if cap is None else min(step.wanted, cap)
        for index, slot in enumerate(step.slots):
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
