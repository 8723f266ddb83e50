"""Identities: what a drafter *is*, as digests that both hosts can compare without holding its weights.

The identity is a sha256 over every tensor the drafter uses (sorted by name: name, dtype, shape, bytes), its
canonical configuration, and the binding to its target.  The Markov identity covers the Markov tensors alone.
The target binding covers what both hosts can see of the target: its sizes and its tokenizer.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ofl.contract.records import Buffer

DIGEST_BYTES = 32
UNSTATED = bytes(DIGEST_BYTES)
"""A digest of zeros: this side does not state it, so it is not compared."""


@dataclass(frozen=True)
class Tensor:
    """One tensor as it lies in the checkpoint.

    dtype: safetensors' name (F32, BF16, ...).  data: row-major little-endian bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Buffer


def canonical_json(value: object) -> bytes:
    """Sorted keys, no spaces, ASCII: equal values give equal bytes.  Raises ValueError on NaN, infinity."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def tensors_digest(tensors: Iterable[Tensor]) -> bytes:
    """sha256 over tensors in ascending order of name.

    The iterable must be sorted and free of duplicates already, so that tensors can be streamed one at a time;
    raises ValueError naming the tensor that is out of order.
    """
    digest = hashlib.sha256(b"ofl-tensors-v1\0")
    for tensor in _ascending(tensors):
        head = canonical_json([tensor.name, tensor.dtype, list(tensor.shape), len(tensor.data)])
        digest.update(len(head).to_bytes(4, "little"))
        digest.update(head)
        digest.update(tensor.data)
    return digest.digest()


def identity(tensors_sha256: bytes, config: Mapping[str, object], binding_sha256: bytes) -> bytes:
    """The drafter's identity: its tensors, its canonical configuration and its target, in one digest."""
    text = canonical_json(config)
    return hashlib.sha256(b"ofl-dspark-identity-v1\0" + tensors_sha256 + binding_sha256 + text).digest()


def target_binding(
    *, vocabulary: int, hidden_size: int, num_hidden_layers: int, tokenizer_sha256: str | None
) -> bytes:
    """What both hosts can see of the target.

    tokenizer_sha256: hex digest of the bytes of tokenizer.json, None where there is none.
    """
    facts = {
        "vocabulary": vocabulary,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_hidden_layers,
        "tokenizer_sha256": tokenizer_sha256,
    }
    return hashlib.sha256(b"ofl-target-binding-v1\0" + canonical_json(facts)).digest()


def parse_digest(text: str, field: str) -> bytes:
    """64 lower-case hex digits to 32 bytes; raises ValueError naming the field."""
    wrong = len(text) != 2 * DIGEST_BYTES or any(c not in "0123456789abcdef" for c in text)
    if wrong:
        raise ValueError(f"{field}: a sha256 digest of 64 lower-case hex digits is needed, not {text!r}")
    return bytes.fromhex(text)


def is_markov_tensor(name: str) -> bool:
    """Whether a tensor belongs to the Markov head (vLLM's name for it: `markov_head.`)."""
    return name.startswith(("markov_head.", "model.markov_head."))


def _ascending(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    previous: str | None = None
    for tensor in tensors:
        if previous is not None and tensor.name <= previous:
            raise ValueError(
                f"tensor {tensor.name!r} follows {previous!r}: names must ascend without duplicates"
            )
        previous = tensor.name
        yield tensor


def hex_or_unstated(digests: Sequence[bytes]) -> list[str]:
    """Digests for logs and reports, with 'unstated' for zeros."""
    return ["unstated" if digest == UNSTATED else digest.hex() for digest in digests]
