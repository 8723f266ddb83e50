"""vLLM 0.26: the remote speculators as this version's model runner V2 builds and calls them.

Proved against the release's sources, and with real engines on GPUs by `nox -s gpu_test`.  Its runner asks a speculator
for its model whatever it is, has no draft schedule at run time, and knows no proposal without drafts.
"""

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
    "num_tokens_across_dp", "dummy_run", "skip_attn_for_dummy_run", "mm_inputs", "is_profile",
)  # fmt: skip
"""The runner passes some by position and some by name, so all of them are checked before an engine runs."""


def check_interface() -> None:
    """Raises SeamError where this vLLM calls speculators otherwise than 0.26.0 does."""
    check_propose("0.26.0", PROPOSE_PARAMETERS, BaseSpeculator, DSparkSpeculator)


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

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        # This version's runner prepares communication buffers for a speculator's model, whether it has one or not.
        self.model = torch.nn.Module()


class RemoteAndLocalDSparkSpeculator(RemoteAndLocal, DSparkSpeculator):
    """Shadow and resilience; the context is kept by the inherited way."""

    propose_parameters = PROPOSE_PARAMETERS
