"""What a Qwen3-DSpark drafter's config.json says, parsed once into a frozen value.

Two formats, as vLLM 0.32 loads them: the flat one of Transformers' Qwen3 class, and the speculators format
(`speculators_model_type: dspark`, the layers under `transformer_layer_config`).  What this project cannot
compute is refused by name; a key that changes results must never be passed over.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ofl.contract.dspark_v1.layout import BLOCK_LENGTH_MAX

from x86_worker.checkpoint.attention_rules import LayerAttention, layer_attention
from x86_worker.checkpoint.folder import CONFIG_NAME, read_config
from x86_worker.checkpoint.keys import Keys
from x86_worker.checkpoint.refusals import check_supported

ARCHITECTURE = "Qwen3DSparkModel"
SPECULATORS_MODEL_TYPE = "dspark"
SPECULATORS_KEYS = (
    "draft_vocab_size",
    "target_hidden_size",
    "mask_token_id",
    "markov_rank",
    "markov_head_type",
    "block_size",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "use_aux_hidden_state",
)
"""Keys of the speculators format's outer object that vLLM carries over to the layers' own."""
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class DrafterConfig:
    """The facts of a Qwen3-DSpark drafter that its mathematics needs.

    layers: one rule per decoder layer.  vocab_size: ids of embedding and Markov
    embedding.  draft_vocab_size: rows of the head.  target_layer_ids: the taps are the outputs of these
    target layers, from 0, ascending.  block_length: draft positions of a block, N.  sample_from_anchor: the
    block's queries are [anchor, mask x (N-1)] and query k predicts position anchor+1+k; otherwise [anchor,
    mask x N], and only the masks predict, each its own position. confidence: the head is enabled; whether
    it exists is for the tensors to say.  dtype: of the checkpoint.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    attention_bias: bool
    layers: tuple[LayerAttention, ...]
    target_layer_ids: tuple[int, ...]
    target_hidden_size: int
    mask_token_id: int
    block_length: int
    sample_from_anchor: bool
    markov_rank: int
    confidence: bool
    confidence_with_markov: bool
    logit_scale: float
    dtype: str

    @property
    def queries_per_block(self) -> int:
        """Queries of one block: N, or 1 + N in the fill-in layout."""
        return self.block_length + (not self.sample_from_anchor)

    @property
    def row_elements(self) -> int:
        """Elements of a raw context row: all taps, concatenated."""
        return self.target_hidden_size * len(self.target_layer_ids)

    @property
    def window(self) -> int:
        """The most rows before the anchor that any query attends to; 0 where some layer attends to all of
        them.

        A window of one key holds no context at all; it counts as one row, since 0 means all.
        """
        rows = [layer.context_rows for layer in self.layers]
        if None in rows:
            return 0
        return max(1, *(row for row in rows if row is not None))

    def canonical(self) -> dict[str, object]:
        """The configuration as plain JSON values, for the identity: equal mathematics gives equal values.

        Without block_length, which is the engine's choice and compared by itself.
        """
        values = asdict(self)
        del values["block_length"]
        return values


def read_drafter_config(folder: Path) -> DrafterConfig:
    """The configuration of a drafter folder; raises CheckpointError naming the file and the key."""
    return parse_drafter_config(read_config(folder), folder / CONFIG_NAME)


def parse_drafter_config(values: Mapping[str, object], path: Path = Path(CONFIG_NAME)) -> DrafterConfig:
    """The same from the parsed JSON object.  path: for messages."""
    outer = Keys(values, path)
    speculators = outer.get("speculators_model_type") is not None
    body = _speculators_body(outer) if speculators else outer
    _check_architecture(outer, body, speculators)
    check_supported(body)
    layers = body.count("num_hidden_layers")
    heads, kv_heads = body.count("num_attention_heads"), body.count("num_key_value_heads")
    if heads % kv_heads:
        raise body.refused("num_key_value_heads", f"is {kv_heads}, which does not divide {heads} heads")
    hidden_size, vocab_size = body.count("hidden_size"), body.count("vocab_size", low=2)
    head_dim = body.count("head_dim", hidden_size // heads if speculators else 128)
    if head_dim % 2:
        raise body.refused("head_dim", f"is {head_dim} where rotary embedding needs an even number")
    sample_from_anchor = body.flag("sample_from_anchor", True)
    return DrafterConfig(
        hidden_size=hidden_size,
        intermediate_size=body.count("intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        draft_vocab_size=body.count("draft_vocab_size", vocab_size, low=2),
        max_position_embeddings=body.count("max_position_embeddings", None if speculators else 32768),
        rms_norm_eps=body.number("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(body, 1e6 if speculators else 1e4),
        attention_bias=body.flag("attention_bias", False),
        layers=layer_attention(body, layers, qwen3_defaults=not speculators),
        target_layer_ids=_target_layer_ids(body),
        target_hidden_size=body.count("target_hidden_size", hidden_size),
        mask_token_id=_mask_token_id(body, vocab_size),
        block_length=_block_length(outer, body, speculators),
        sample_from_anchor=sample_from_anchor,
        markov_rank=body.count("markov_rank"),
        confidence=body.flag("enable_confidence_head", False),
        confidence_with_markov=body.flag("confidence_head_with_markov", False),
        logit_scale=body.number("logit_scale", 1.0),
        dtype=_dtype(outer, body),
    )


def _speculators_body(outer: Keys) -> Keys:
    """The speculators format in the words of the flat one, as vLLM translates it."""
    kind = outer.text("speculators_model_type", "")
    if kind != SPECULATORS_MODEL_TYPE:
        raise outer.refused(
            "speculators_model_type", f"is {kind!r}, and only {SPECULATORS_MODEL_TYPE} is supported"
        )
    inner = outer.get("transformer_layer_config")
    if not isinstance(inner, dict):
        raise outer.refused("transformer_layer_config", "is not an object")
    merged: dict[str, object] = dict(inner)
    ids = outer.counts("aux_hidden_state_layer_ids")
    if ids is None:
        raise outer.refused("aux_hidden_state_layer_ids", "is missing")
    merged["eagle_aux_hidden_state_layer_ids"] = list(ids)
    merged["sample_from_anchor"] = outer.flag("sample_from_anchor", False)
    for key in SPECULATORS_KEYS:
        if outer.get(key) is not None:
            merged[key] = outer.get(key)
    return Keys(merged, outer.path)


def _check_architecture(outer: Keys, body: Keys, speculators: bool) -> None:
    names = outer.get("architectures")
    if names is not None and not isinstance(names, list):
        raise outer.refused("architectures", "is not a list")
    if speculators:
        if names and "Qwen3OmniDSparkModel" in names and ARCHITECTURE not in names:
            raise outer.refused("architectures", f"is {names}, and only {ARCHITECTURE} is supported")
        return
    model_type = body.text("model_type", "")
    dense_alias = "DSparkDraftModel" in (names or []) and model_type == "qwen3"
    if ARCHITECTURE not in (names or []) and not dense_alias:
        raise outer.refused("architectures", f"is {names}, and only {ARCHITECTURE} is supported")
    if model_type != "qwen3":
        raise outer.refused("model_type", f"is {model_type!r} where 'qwen3' is needed")


def _rope_theta(body: Keys, default: float) -> float:
    rope = body.section("rope_parameters")
    return rope.number("rope_theta", body.number("rope_theta", default))


def _target_layer_ids(body: Keys) -> tuple[int, ...]:
    """The first list that vLLM would find.  The engine's own ids count from 1; the aux ids are stated that
    way.
    """
    dflash, eagle = body.section("dflash_config"), body.section("eagle_config")
    found = (
        ("eagle_aux_hidden_state_layer_ids", body.counts("eagle_aux_hidden_state_layer_ids"), 1),
        ("dflash_config.target_layer_ids", dflash.counts("target_layer_ids"), 0),
        ("dspark_target_layer_ids", body.counts("dspark_target_layer_ids"), 0),
        ("target_layer_ids", body.counts("target_layer_ids"), 0),
        ("dflash_config.layer_ids", dflash.counts("layer_ids"), 1),
        ("eagle_config.layer_ids", eagle.counts("layer_ids"), 1),
    )
    for key, ids, first in found:
        if ids is None:
            continue
        if list(ids) != sorted(set(ids)) or ids[0] < first:
            # vLLM taps layers in ascending order whatever the order written, and each once.
            raise body.refused(key, f"is {list(ids)} where ascending numbers from {first} on are needed")
        return tuple(layer - first for layer in ids)
    raise body.refused("target_layer_ids", "is missing")


def _mask_token_id(body: Keys, vocab_size: int) -> int:
    places = (
        (body.section("dflash_config"), "mask_token_id"),
        (body, "mask_token_id"),
        (body, "dspark_noise_token_id"),
        (body, "pard_token"),
        (body, "ptd_token_id"),
    )
    for keys, key in places:
        if keys.get(key) is not None:
            value = keys.count(key, low=0)
            if value >= vocab_size:
                raise keys.refused(key, f"is {value}, outside the vocabulary of {vocab_size}")
            return value
    raise body.refused("mask_token_id", "is missing")


def _block_length(outer: Keys, body: Keys, speculators: bool) -> int:
    """Draft tokens that vLLM takes by default: the proposal method's number, else the block size."""
    if speculators:
        methods = outer.section("speculators_config").get("proposal_methods")
        first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
        keys, key = Keys(first, outer.path, "speculators_config.proposal_methods[0]."), "speculative_tokens"
    else:
        legacy = body.get("block_size") is None and body.get("dspark_block_size") is not None
        keys, key = body, "dspark_block_size" if legacy else "block_size"
    length = keys.count(key)
    if length > BLOCK_LENGTH_MAX:
        raise keys.refused(key, f"is {length} where at most {BLOCK_LENGTH_MAX} draft positions are allowed")
    return length


def _dtype(outer: Keys, body: Keys) -> str:
    for keys in (outer, body):
        for key in ("dtype", "torch_dtype"):
            if keys.get(key) is not None:
                name = keys.text(key, "").removeprefix("torch.")
                if name not in DTYPES:
                    raise keys.refused(key, f"is {name!r}, and only {', '.join(DTYPES)} are supported")
                return name
    return "float32"
