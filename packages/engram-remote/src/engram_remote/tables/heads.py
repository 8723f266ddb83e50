"""Which rows a model's Engram layers have, and which of them belong to a tensor-parallel rank.

A position is hashed as n-grams of 2 .. max_ngram_size tokens, each with n_heads heads.  Every (n-gram size,
head) pair owns a range of its layer's table whose length is a prime: the smallest prime from engram_vocab_size
on that no pair, of any layer, owns yet.  Pairs follow one another in the table, and a rank owns ceil(pairs /
ranks) whole pairs.  The rule is that of vLLM's `EngramLayout` and `ParallelEngramEmbedding`; tests/contracts
compares this file with every supported release.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

from ofl.files import read_plain

from engram_remote.tables.errors import SourceError
from engram_remote.tables.files import TEXT_BYTES_MAX

ROWS_MAX = 1 << 31
"""Rows of one layer: ids are 32-bit integers with a sign."""

_COUNTS = ("engram_max_ngram_size", "engram_n_heads", "engram_head_dim", "engram_vocab_size")


@dataclass(frozen=True)
class LayerHeads:
    """One layer's table.

    layer: the model's layer.  head_sizes: rows of each hash column, in table order.  num_embeddings: rows of
    the checkpoint's tensor, not below their sum; the rows past the sum belong to no head and are never looked
    up.
    """

    layer: int
    num_embeddings: int
    head_sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows that a lookup can name: ids 0 .. rows-1."""
        return sum(self.head_sizes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """First row of each hash column."""
        return tuple(sum(self.head_sizes[:column]) for column in range(len(self.head_sizes)))

    def rank_rows(self, rank: int, ranks: int) -> tuple[int, int]:
        """First row of a rank's shard, and past its last.

        Raises ValueError where a rank would get no head, which stock refuses too.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank: {rank} is not one of {ranks}")
        heads = -(-len(self.head_sizes) // ranks)
        if (ranks - 1) * heads >= len(self.head_sizes):
            raise ValueError(
                f"ranks: {len(self.head_sizes)} hash columns over {ranks} ranks leave ranks without any"
            )
        return sum(self.head_sizes[: rank * heads]), sum(self.head_sizes[: (rank + 1) * heads])


@dataclass(frozen=True)
class HeadLayout:
    """All Engram layers of a model.  columns: values of a row (engram_head_dim)."""

    columns: int
    layers: tuple[LayerHeads, ...]

    @property
    def hash_columns(self) -> int:
        """Rows that one token reads from each layer."""
        return len(self.layers[0].head_sizes)


def next_free_prime(start: int, taken: set[int]) -> int:
    """The smallest prime from `start` on that is not in `taken`."""
    candidate = max(start, 2)
    while candidate in taken or not _is_prime(candidate):
        candidate += 1
    return candidate


def head_layout(config: Mapping[str, object], where: str = "config.json") -> HeadLayout:
    """The layout that a model's configuration says.

    config: the parsed config.json; the engram_* keys stand in it, or in its "text_config".  Raises SourceError
    naming the key.
    """
    nested = config.get("text_config")
    if "engram_layer_ids" not in config and isinstance(nested, Mapping):
        config = nested
    layers = _counts(config, "engram_layer_ids", where, least=0)
    embeddings = _counts(config, "engram_num_embeddings", where, least=1)
    if not layers or len(set(layers)) != len(layers):
        raise SourceError(f"{where}: engram_layer_ids: layers without repetition are needed, not {layers}")
    if len(embeddings) != len(layers):
        raise SourceError(
            f"{where}: engram_num_embeddings: {len(embeddings)} values for {len(layers)} layers"
        )
    ngrams, heads, columns, smallest = (_count(config, name, where) for name in _COUNTS)
    if ngrams < 2:
        raise SourceError(f"{where}: engram_max_ngram_size: {ngrams} leaves no n-gram to hash")
    taken: set[int] = set()
    found = []
    for layer, rows in zip(layers, embeddings, strict=True):
        sizes: list[int] = []
        room = min(rows, ROWS_MAX)
        for _ in range(ngrams - 1):
            prime = smallest - 1
            for _ in range(heads):
                prime = next_free_prime(prime + 1, taken)
                taken.add(prime)
                sizes.append(prime)
                room -= prime
                if room < 0:  # told at once, however many heads there are to be
                    raise SourceError(
                        f"{where}: engram_num_embeddings: {rows} rows cannot hold {(ngrams - 1) * heads} heads, "
                        f"of which the first {len(sizes)} have {sum(sizes)}"
                    )
        found.append(LayerHeads(layer, rows, tuple(sizes)))
    return HeadLayout(columns, tuple(found))


def read_head_layout(path: Path) -> HeadLayout:
    """The layout of a model folder's config.json, or of that file itself.  Raises SourceError, OSError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(read_plain(file, TEXT_BYTES_MAX))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{file}: is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise SourceError(f"{file}: is not a JSON object")
    return head_layout(config, str(file))


def _is_prime(number: int) -> bool:
    """Trial division: heads have millions of rows, so a few thousand divisors decide."""
    if number < 4:
        return number > 1
    if number % 2 == 0 or number % 3 == 0:
        return False
    return all(number % low and number % (low + 2) for low in range(5, isqrt(number) + 1, 6))


def _count(config: Mapping[str, object], name: str, where: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 < value <= ROWS_MAX:
        raise SourceError(f"{where}: {name}: a whole number from 1 on is needed, not {value!r}")
    return value


def _counts(config: Mapping[str, object], name: str, where: str, least: int) -> list[int]:
    value = config.get(name)
    if not isinstance(value, list) or not all(type(item) is int and item >= least for item in value):
        raise SourceError(
            f"{where}: {name}: a list of whole numbers from {least} on is needed, not {value!r}"
        )
    return value
