"""What a drafter is, as digests: read from its folder and its target's, without torch, one mapped tensor at
a time.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ofl.contract.identity import Tensor, identity, is_markov_tensor, tensors_digest

from x86_worker.checkpoint.drafter import DrafterCheckpoint, read_drafter
from x86_worker.checkpoint.safetensors_file import StoredTensor


@dataclass(frozen=True)
class IdentityRecord:
    """The digests that engines are configured with, and the sizes that HELLO compares beside them.

    identity, markov_identity, target_binding: 32 bytes.  row_elements: of a raw row, and of a projected
    one. window: the most rows before the anchor that any query attends to, 0 for all.  tensor_bytes: of all
    tensors used.
    """

    identity: bytes
    markov_identity: bytes
    target_binding: bytes
    tokenizer_sha256: str | None
    vocabulary: int
    block_length: int
    window: int
    max_positions: int
    tap_count: int
    target_layer_ids: tuple[int, ...]
    row_elements_raw: int
    row_elements_projected: int
    dtype: str
    has_confidence: bool
    tensor_count: int
    tensor_bytes: int

    def to_json(self) -> dict[str, object]:
        """Plain JSON values; digests as 64 lower-case hex digits."""
        values = asdict(self)
        for name in ("identity", "markov_identity", "target_binding"):
            values[name] = values[name].hex()
        return values | {"target_layer_ids": list(self.target_layer_ids)}


def read_identity(drafter: Path, target: Path) -> IdentityRecord:
    """Reads both folders and digests every tensor used.  Raises CheckpointError."""
    return identity_of(read_drafter(drafter, target))


def identity_of(checkpoint: DrafterCheckpoint) -> IdentityRecord:
    """The record of a drafter that is open already; reads all its bytes once, the Markov tensors twice."""
    config, target = checkpoint.config, checkpoint.target
    tensors = list(checkpoint.tensors.values())
    return IdentityRecord(
        identity=identity(_digest(tensors), config.canonical(), target.binding),
        markov_identity=_digest(tensor for tensor in tensors if is_markov_tensor(tensor.name)),
        target_binding=target.binding,
        tokenizer_sha256=target.tokenizer_sha256,
        vocabulary=target.vocabulary,
        block_length=config.block_length,
        window=config.window,
        max_positions=config.max_position_embeddings,
        tap_count=len(config.target_layer_ids),
        target_layer_ids=config.target_layer_ids,
        row_elements_raw=config.row_elements,
        row_elements_projected=config.hidden_size,
        dtype=config.dtype,
        has_confidence=checkpoint.has_confidence,
        tensor_count=len(tensors),
        tensor_bytes=sum(tensor.byte_count for tensor in tensors),
    )


def _digest(tensors: Iterable[StoredTensor]) -> bytes:
    return tensors_digest(Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data) for tensor in tensors)
