"""What the remote speculators of every vLLM version share: two mixins before a version's own classes.

Owns the attributes that model runners read, and the way from a call of `propose` to the policy.  Imports torch,
never vLLM: a version's module names its parameters and joins these with vLLM's `BaseSpeculator` (capacity) or
`DSparkSpeculator` (shadow, resilience).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from spark_overlay.interface import Drafter
from spark_overlay.vllm_seam.depth import is_adaptive
from spark_overlay.vllm_seam.policies import Local, Policy
from spark_overlay.vllm_seam.step import EngineStep, engine_step


class DraftsRemotely:
    """A speculator's ties to its policy.

    propose_parameters: names of `propose`'s parameters after self; runners pass some by position.
    """

    drafts_remotely = True
    """The guard's mark; see `spark_overlay.vllm_seam.guard`."""
    propose_parameters: ClassVar[tuple[str, ...]] = ()
    num_speculative_steps: int
    enable_adaptive_verification = False
    """Whether the engine trims drafts by their confidences; vLLM's own speculators say so themselves."""
    draft_token_confidence_probs: torch.Tensor
    """float32 [max_requests, K]; vLLM's own speculators have one."""

    def bind(self, policy: Policy, policy_name: str, on_up: Callable[[Any], None]) -> None:
        """Give it its policy.  on_up: called with the model runner when the engine is about to serve."""
        self.policy, self.policy_name = policy, policy_name
        self._on_up = on_up
        self._up = False

    @property
    def drafter(self) -> Drafter | None:
        """Rank 0's drafter; None on the others."""
        lead = self.policy.rounds.lead
        return None if lead is None else lead.drafter

    def engine_is_up(self, model_runner: Any) -> None:
        """The last step of the engine's start, on every rank: connect, and say so."""
        self._on_up(model_runner)
        self._up = True

    def close(self) -> None:
        """End the drafter's session and threads.  Safe to call twice."""
        if self.drafter is not None:
            self.drafter.close()

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self.propose_parameters, args, strict=False)) | kwargs

    def _step(self, call: dict[str, Any]) -> EngineStep:
        return engine_step(call, self.num_speculative_steps, trimmed=self.enable_adaptive_verification)

    def _is_real(self, call: dict[str, Any]) -> bool:
        """Whether a call belongs to a step of requests.

        Not so are dummy and profiling runs, and the made-up requests with which runners warm up before the
        engine is up: none of them asks or tells anybody.
        """
        return self._up and not call.get("dummy_run") and not call.get("is_profile")


class RemoteOnly(DraftsRemotely):
    """Capacity: no model, no draft KV, no graphs.  Comes before a version's `BaseSpeculator`.

    Not vLLM's `DraftModelSpeculator`, so the runner loads no draft model and registers no draft attention layer.
    """

    supports_mm_inputs = False
    """Drafting reads taps, never multimodal embeddings."""
    draft_logits: torch.Tensor | None = None
    """None: drafts are greedy, and verification takes them as one-hot."""
    pcp_manager: Any = None
    """Set by the runner; None without prefill context parallelism."""

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__()
        self.num_speculative_steps = vllm_config.speculative_config.num_speculative_tokens
        self.enable_adaptive_verification = is_adaptive(vllm_config.speculative_config)
        shape = (vllm_config.scheduler_config.max_num_seqs, self.num_speculative_steps)
        self.draft_token_confidence_probs = torch.zeros(shape, dtype=torch.float32, device=device)

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Nothing to capture: there is no draft model on this host."""

    def capture(self) -> None:
        """Nothing to capture."""

    def propose(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Drafts of every request of the batch, int64 [requests, K]; zeros where there are none.

        A view of our own buffer that holds until the next call; the runner writes into its tail.  Raises
        RemoteRoundFailed where the operator asked for that (ON_FAIL=raise), and nothing else on account of the
        worker.
        """
        call = self._named(args, kwargs)
        if not self._is_real(call):
            return self.policy.rounds.nothing(call["input_batch"].num_reqs)
        return self.policy.drafts(self._step(call), None)


class RemoteAndLocal(DraftsRemotely):
    """Shadow and resilience: vLLM's own drafter is really there.  Comes before a version's `DSparkSpeculator`."""

    _context_only = False

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)  # type: ignore[call-arg]

    def propose(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As `RemoteOnly.propose`; also vLLM's own buffer where its drafts are used as they are."""
        call = self._named(args, kwargs)
        stock: Callable[..., torch.Tensor] = super().propose  # type: ignore[misc]
        if not self._is_real(call):
            return stock(**call)
        local = Local(lambda: stock(**call), lambda: self._keep_context(stock, call))
        return self.policy.drafts(self._step(call), local)

    def _keep_context(self, stock: Callable[..., torch.Tensor], call: dict[str, Any]) -> None:
        """Store the step's context K/V without the query pass.

        These versions have no such half: it is their whole proposal, eager so that no graph replays the query
        pass (which is all that `is_profile` means to it), and with `_generate_draft` left out.
        """
        self._context_only = True
        try:
            stock(**(call | {"is_profile": True}))
        finally:
            self._context_only = False

    def _generate_draft(self, *args: Any, **kwargs: Any) -> None:
        if not self._context_only:
            super()._generate_draft(*args, **kwargs)  # type: ignore[misc]
