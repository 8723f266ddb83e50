"""Reading the folders that vLLM loads: a Qwen3-DSpark drafter, and what it takes from its target.

Standard library and `ofl` only.  Reads files, computes no drafts; every refusal is a CheckpointError of one
sentence.
"""

from x86_worker.checkpoint.attention_rules import LayerAttention
from x86_worker.checkpoint.config import DrafterConfig, parse_drafter_config, read_drafter_config
from x86_worker.checkpoint.drafter import DrafterCheckpoint, read_drafter
from x86_worker.checkpoint.errors import CheckpointError
from x86_worker.checkpoint.identity import IdentityRecord, identity_of, read_identity
from x86_worker.checkpoint.safetensors_file import StoredTensor, read_safetensors
from x86_worker.checkpoint.target import TargetCheckpoint, TargetFacts

__all__ = [
    "CheckpointError",
    "DrafterCheckpoint",
    "DrafterConfig",
    "IdentityRecord",
    "LayerAttention",
    "StoredTensor",
    "TargetCheckpoint",
    "TargetFacts",
    "identity_of",
    "parse_drafter_config",
    "read_drafter",
    "read_drafter_config",
    "read_identity",
    "read_safetensors",
]
