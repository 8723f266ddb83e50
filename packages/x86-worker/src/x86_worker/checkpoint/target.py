"""What a drafter needs of its target's folder: a few sizes, the tokenizer's digest, the embedding and the
head.

Reads config.json and tokenizer.json always, weights only when asked for a tensor that the drafter lacks.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ofl.contract.identity import target_binding

from x86_worker.checkpoint.errors import CheckpointError
from x86_worker.checkpoint.folder import CONFIG_NAME, read_config, read_tensors, tokenizer_sha256
from x86_worker.checkpoint.keys import Keys
from x86_worker.checkpoint.safetensors_file import StoredTensor

EMBEDDING_NAMES = (
    "model.embed_tokens.weight",
    "embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
)
HEAD_NAMES = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")


@dataclass(frozen=True)
class TargetFacts:
    """Sizes of the target that both hosts see.  tokenizer_sha256: hex, None where there is no
    tokenizer.json.
    """

    vocabulary: int
    hidden_size: int
    num_hidden_layers: int
    tokenizer_sha256: str | None

    @property
    def binding(self) -> bytes:
        """The 32-byte digest that HELLO carries."""
        return target_binding(
            vocabulary=self.vocabulary,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            tokenizer_sha256=self.tokenizer_sha256,
        )


class TargetCheckpoint:
    """A target folder, read as far as a drafter asks.  Raises CheckpointError naming the file and what is
    wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        keys = Keys(read_config(folder), folder / CONFIG_NAME)
        text = keys.section("text_config") if keys.get("text_config") is not None else keys
        self._tied = keys.flag("tie_word_embeddings", text.flag("tie_word_embeddings", False))
        self.facts = TargetFacts(
            vocabulary=text.count("vocab_size"),
            hidden_size=text.count("hidden_size"),
            num_hidden_layers=text.count("num_hidden_layers"),
            tokenizer_sha256=tokenizer_sha256(folder),
        )

    @cached_property
    def _tensors(self) -> dict[str, StoredTensor]:
        return read_tensors(self.folder)

    def embedding(self) -> StoredTensor:
        """The input embedding, [vocabulary, hidden_size]."""
        return self._first(EMBEDDING_NAMES)

    def head(self) -> StoredTensor:
        """The output head, [vocabulary, hidden_size]; the embedding where the two are tied."""
        return self.embedding() if self._tied else self._first(HEAD_NAMES)

    def _first(self, names: tuple[str, ...]) -> StoredTensor:
        for name in names:
            if name in self._tensors:
                return self._tensors[name]
        raise CheckpointError(
            f"{self.folder}: holds no tensor {names[0]}, which the drafter takes from its target"
        )
