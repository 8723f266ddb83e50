"""A Qwen3-DSpark drafter's folder with its target's: the configuration and exactly the tensors that
drafting uses.

Tensors have one canonical name here, without the `model.` that some exports put in front.  Shapes and types
are checked against the configuration, so that a drafter built from this can index without looking.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from x86_worker.checkpoint.config import DrafterConfig, read_drafter_config
from x86_worker.checkpoint.errors import CheckpointError
from x86_worker.checkpoint.folder import read_tensors
from x86_worker.checkpoint.safetensors_file import StoredTensor
from x86_worker.checkpoint.target import TargetCheckpoint, TargetFacts

EMBEDDING = "embed_tokens.weight"
HEAD = "lm_head.weight"
DRAFT_TO_TARGET = "d2t"
MARKOV_EMBEDDING = "markov_head.markov_w1.weight"
MARKOV_HEAD = "markov_head.markov_w2.weight"
CONFIDENCE = "confidence_head."

FLOAT_DTYPES = ("F32", "BF16", "F16")
_RENAMED = (
    ("midlayer.", "layers.0."),
    ("encoder.output_norm_enc.", "hidden_norm."),
    ("encoder.fc.", "fc."),
    ("draft_id_to_target_id", DRAFT_TO_TARGET),
)
_UNUSED = ("t2d", "mask_embedding", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


@dataclass(frozen=True)
class DrafterCheckpoint:
    """Everything that drafting uses.

    tensors: by canonical name, ascending; each StoredTensor keeps the file it came from.  has_confidence:
    the confidence head is enabled and its tensors are there.  draft_rows: rows of head and Markov head to
    use; fewer than there are where the drafter's vocabulary is padded beyond the target's.
    """

    config: DrafterConfig
    target: TargetFacts
    tensors: Mapping[str, StoredTensor]
    has_confidence: bool

    @property
    def draft_rows(self) -> int:
        return min(self.config.draft_vocab_size, self.target.vocabulary)


def read_drafter(drafter: Path, target: Path) -> DrafterCheckpoint:
    """Opens both folders.  Raises CheckpointError with one sentence that names the file and the key or
    tensor.

    The target's config.json and tokenizer.json are always read, its weights only for an embedding or a head
    that the drafter's folder lacks.
    """
    config = read_drafter_config(drafter)
    target_checkpoint = TargetCheckpoint(target)
    facts = target_checkpoint.facts
    own = _canonical(read_tensors(drafter))
    _check_vocabularies(drafter, config, facts, own)
    _check_layer_ids(drafter, config, facts)
    has_confidence = config.confidence and any(name.startswith(CONFIDENCE) for name in own)
    if not has_confidence:
        own = {name: tensor for name, tensor in own.items() if not name.startswith(CONFIDENCE)}
    if EMBEDDING not in own:
        own[EMBEDDING] = replace(target_checkpoint.embedding(), name=EMBEDDING)
    if HEAD not in own:
        own[HEAD] = replace(target_checkpoint.head(), name=HEAD)
    _check_tensors(drafter, own, dict(_expected_shapes(config, facts, has_confidence)))
    if DRAFT_TO_TARGET in own:
        _check_draft_to_target(own[DRAFT_TO_TARGET], facts.vocabulary)
    return DrafterCheckpoint(config, facts, {name: own[name] for name in sorted(own)}, has_confidence)


def _canonical(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for stored_name, tensor in tensors.items():
        if any(part in stored_name for part in _UNUSED):
            continue
        name = stored_name.removeprefix("model.")
        for old, new in _RENAMED:
            name = name.replace(old, new)
        if name in found:
            raise CheckpointError(f"{tensor.file}: tensor {stored_name} is a second {name}")
        found[name] = replace(tensor, name=name)
    return found


def _check_vocabularies(
    drafter: Path, config: DrafterConfig, target: TargetFacts, own: Mapping[str, StoredTensor]
) -> None:
    """vLLM's conditions on who may borrow what, and on the map from draft ids to target ids."""
    where = f"{drafter / 'config.json'}:"
    if config.vocab_size < target.vocabulary:
        raise CheckpointError(
            f"{where} vocab_size is {config.vocab_size}, below the target's {target.vocabulary}"
        )
    if config.vocab_size > target.vocabulary and EMBEDDING not in own:
        raise CheckpointError(f"{drafter}: needs its own {EMBEDDING}, since vocab_size is above the target's")
    if config.draft_vocab_size != target.vocabulary and HEAD not in own:
        raise CheckpointError(
            f"{drafter}: needs its own {HEAD}, since draft_vocab_size is not the target's vocab_size"
        )
    reduced = config.draft_vocab_size < target.vocabulary
    if reduced and DRAFT_TO_TARGET not in own:
        raise CheckpointError(
            f"{drafter}: needs a {DRAFT_TO_TARGET} tensor, since draft_vocab_size is reduced"
        )
    if not reduced and DRAFT_TO_TARGET in own:
        raise CheckpointError(
            f"{own[DRAFT_TO_TARGET].file}: tensor {DRAFT_TO_TARGET} without a reduced draft_vocab_size"
        )


def _check_layer_ids(drafter: Path, config: DrafterConfig, target: TargetFacts) -> None:
    if config.target_layer_ids[-1] >= target.num_hidden_layers:
        raise CheckpointError(
            f"{drafter / 'config.json'}: target_layer_ids name layer {config.target_layer_ids[-1]}, "
            f"and the target has {target.num_hidden_layers} layers (--target names its folder)"
        )


def _expected_shapes(
    config: DrafterConfig, target: TargetFacts, has_confidence: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, rank = config.hidden_size, config.markov_rank
    yield EMBEDDING, (config.vocab_size, hidden)
    yield HEAD, (config.draft_vocab_size, hidden)
    yield "fc.weight", (hidden, config.row_elements)
    yield "hidden_norm.weight", (hidden,)
    yield "norm.weight", (hidden,)
    yield MARKOV_EMBEDDING, (config.vocab_size, rank)
    yield MARKOV_HEAD, (config.draft_vocab_size, rank)
    if has_confidence:
        yield "confidence_head.proj.weight", (1, hidden + rank * config.confidence_with_markov)
        yield "confidence_head.proj.bias", (1,)
    if config.draft_vocab_size < target.vocabulary:
        yield DRAFT_TO_TARGET, (config.draft_vocab_size,)
    for layer in range(len(config.layers)):
        for name, shape in _layer_shapes(config):
            yield f"layers.{layer}.{name}", shape


def _layer_shapes(config: DrafterConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield f"self_attn.{name}.weight", (rows, hidden)
        if config.attention_bias:
            yield f"self_attn.{name}.bias", (rows,)
    yield "self_attn.o_proj.weight", (hidden, queries)
    if config.attention_bias:
        yield "self_attn.o_proj.bias", (hidden,)
    yield "self_attn.q_norm.weight", (head_dim,)
    yield "self_attn.k_norm.weight", (head_dim,)
    yield "mlp.gate_proj.weight", (inner, hidden)
    yield "mlp.up_proj.weight", (inner, hidden)
    yield "mlp.down_proj.weight", (hidden, inner)


def _check_tensors(
    drafter: Path, tensors: Mapping[str, StoredTensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"{drafter}: tensor {name} is missing")
        if tensor.shape != shape:
            raise CheckpointError(
                f"{tensor.file}: tensor {name} has shape {list(tensor.shape)}, not {list(shape)}"
            )
        allowed = ("I64", "I32") if name == DRAFT_TO_TARGET else FLOAT_DTYPES
        if tensor.dtype not in allowed:
            raise CheckpointError(
                f"{tensor.file}: tensor {name} is {tensor.dtype}, not one of {', '.join(allowed)}"
            )
    for name, tensor in tensors.items():
        if name not in shapes:
            raise CheckpointError(
                f"{tensor.file}: tensor {name} is none of a Qwen3-DSpark drafter with this config.json"
            )


def _check_draft_to_target(tensor: StoredTensor, vocabulary: int) -> None:
    """d2t holds differences: draft id i is target id i + d2t[i]."""
    code = "q" if tensor.dtype == "I64" else "i"
    for draft_id, (difference,) in enumerate(struct.iter_unpack(f"<{code}", tensor.data)):
        target_id = draft_id + difference
        if not 0 <= target_id < vocabulary:
            raise CheckpointError(
                f"{tensor.file}: tensor {DRAFT_TO_TARGET} maps draft id {draft_id} to {target_id}, "
                f"outside the target's vocabulary of {vocabulary}"
            )
