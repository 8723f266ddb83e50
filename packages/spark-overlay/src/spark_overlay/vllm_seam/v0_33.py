"""vLLM 0.33: the remote speculators as this version's model runner V2 builds and calls them.

Its runner proposes with num_speculative_tokens=0 in steps whose drafts nobody could use: their rows still go to the
worker.
"""

from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.assembly import assemble
from spark_overlay.vllm_seam.signature import check_propose
from spark_overlay.vllm_seam.speculators import RemoteAndLocal, RemoteOnly

PROPOSE_PARAMETERS = (
    "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states",
    "num_sampled", "num_rejected", "last_sampled", "next_prefill_tokens", "temperature", "seeds",
    "dp_sync_state", "dummy_run", "skip_attn_for_dummy_run", "mm_inputs", "is_profile",
    "num_speculative_tokens",
)  # fmt: skip
"""The runner passes some by position and some by name, so all of them are checked before an engine runs."""


def check_interface() -> None:
    """Raises SeamError where this vLLM calls speculators otherwise than 0.33.0 does."""
    check_propose("0.33.0", PROPOSE_PARAMETERS, BaseSpeculator, DSparkSpeculator)


def build(
    vllm_config: Any, device: torch.device, settings: Settings, version: str
) -> RemoteOnly | RemoteAndLocal:
    """One rank's speculator, its drafter not yet started.  Raises SeamError where it cannot be."""
    return assemble(
        vllm_config, device, settings, version, RemoteDSparkSpeculator, RemoteAndLocalDSparkSpeculator
    )


class RemoteDSparkSpeculator(RemoteOnly, BaseSpeculator):
    """Capacity."""

    propose_parameters = PROPOSE_PARAMETERS


class RemoteAndLocalDSparkSpeculator(RemoteAndLocal, DSparkSpeculator):
    """Shadow and resilience."""

    propose_parameters = PROPOSE_PARAMETERS

    def _keep_context(self, stock: Callable[..., torch.Tensor], call: dict[str, Any]) -> None:
        """This version's own way: asked for no drafts, it stores the context K/V and skips the query pass."""
        stock(**(call | {"num_speculative_tokens": 0}))
