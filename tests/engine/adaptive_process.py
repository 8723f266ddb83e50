"""An engine process (`engine_process`) whose engine adapts its verification, on a CPU.

vLLM refuses adaptive verification without full CUDA graphs, which also give it its cost tables.  What is taken away
here is that refusal and CUDA's streams; tables are put in place of measured ones.  All else is stock's: scheduler,
manager, runner, rejection.  Run it in front of the command of `driver.Engine`.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

VERIFY_MS, TOKEN_MS = 9.0, 1.0
"""Verifying t tokens costs VERIFY_MS + t x TOKEN_MS."""


class Nothing:
    """A stream, or an event, of a device that does everything at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def adapt() -> None:
    """Let this process's engines adapt their verification."""
    import vllm.v1.worker.gpu.model_runner as model_runner
    from vllm.config import VllmConfig
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as stock

    for name in ("Stream", "Event", "current_stream"):
        setattr(torch.cuda, name, Nothing)
    stock.stream = lambda *streams: contextlib.nullcontext()
    stock.gpu_sync_allowed = contextlib.nullcontext
    stock._assign_draft_token_budget_compiled = stock._assign_draft_token_budget
    stock.get_varlen_cudagraph_unsupported_backend = lambda *args, **kwargs: None
    model_runner.resolve_adaptive_cudagraph_mode = lambda mode, **kwargs: mode
    VllmConfig._validate_adaptive_verification = lambda config: None
    # It reads the device's boundaries, which on a CPU are the host's own tensor.
    CPUAttentionBackend.supports_device_cpu_query_lens_mismatch = classmethod(lambda backend: True)
    original = model_runner.maybe_create_adaptive_verification_manager

    def created(**arguments: Any) -> Any:
        manager = original(**arguments)
        if manager is not None:
            states = manager.req_states
            tokens = np.arange(states.max_num_batched_tokens + 1)
            manager.cost_tables = (np.zeros(states.max_num_reqs + 1), VERIFY_MS + TOKEN_MS * tokens)
            _watch(manager)
        return manager

    model_runner.maybe_create_adaptive_verification_manager = created


def _watch(manager: Any) -> None:
    """Keep how many drafts were scheduled and chosen in each step, for `engine_ranks.adapted`."""
    manager.seen = []
    original = manager.get_num_tokens

    def get_num_tokens(num_tokens_per_req: Any, draft_tokens: Any) -> int:
        tokens = int(original(num_tokens_per_req, draft_tokens))
        scheduled = sum(map(len, draft_tokens.values()))
        manager.seen.append((scheduled, tokens - sum(num_tokens_per_req.values()) + scheduled))
        return tokens

    manager.get_num_tokens = get_num_tokens


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as events:
        os.dup2(2, 1)
        adapt()
        from engine_process import EngineProcess

        EngineProcess(sys.stdin, events).serve()
