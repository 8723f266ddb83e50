"""Which rows exist and whose they are, against values that are worked out by hand here."""

import json
from pathlib import Path
from typing import Any

import pytest
from engram_remote.tables.errors import SourceError
from engram_remote.tables.heads import LayerHeads, head_layout, next_free_prime, read_head_layout
from engram_tables import primes_from, tiny_checkpoint
from hypothesis import given
from hypothesis import strategies as st

CONFIG: dict[str, Any] = {
    "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [100, 200],
    "engram_max_ngram_size": 3,
    "engram_n_heads": 2,
    "engram_head_dim": 64,
    "engram_vocab_size": 10,
}


def test_heads_are_the_primes_from_the_vocabulary_size_on_and_none_is_used_twice() -> None:
    layout = head_layout(CONFIG)
    # From 10 on: 11 13 | 17 19 for layer 1 (2-grams | 3-grams), then 23 29 | 31 37 for layer 14.
    assert [layer.head_sizes for layer in layout.layers] == [(11, 13, 17, 19), (23, 29, 31, 37)]
    assert layout.layers[0].offsets == (0, 11, 24, 41)
    assert (layout.columns, layout.hash_columns) == (64, 4)
    assert [(layer.layer, layer.num_embeddings, layer.rows) for layer in layout.layers] == [
        (1, 100, 60),
        (14, 200, 120),
    ]


def test_a_vocabulary_size_that_is_prime_is_the_first_head() -> None:
    assert head_layout(CONFIG | {"engram_vocab_size": 11}).layers[0].head_sizes == (11, 13, 17, 19)


def test_ranks_own_whole_heads_and_the_last_may_own_fewer() -> None:
    heads = LayerHeads(1, 100, (11, 13, 17, 19, 23))
    # Five heads over two ranks: three and two.
    assert [heads.rank_rows(rank, 2) for rank in range(2)] == [(0, 41), (41, 83)]
    assert [heads.rank_rows(rank, 5) for rank in range(5)] == [
        (0, 11),
        (11, 24),
        (24, 41),
        (41, 60),
        (60, 83),
    ]
    assert heads.rank_rows(0, 1) == (0, 83)


def test_a_rank_without_heads_is_refused() -> None:
    heads = LayerHeads(1, 100, (11, 13, 17, 19, 23))
    # ceil(5 / 4) = 2 heads each: the third rank has one, the fourth none.
    with pytest.raises(ValueError, match="5 hash columns over 4 ranks leave ranks without any"):
        heads.rank_rows(0, 4)
    with pytest.raises(ValueError, match="rank: 2 is not one of 2"):
        heads.rank_rows(2, 2)


@given(start=st.integers(0, 3000), taken=st.sets(st.integers(0, 3000)))
def test_the_next_free_prime_is_the_first_of_the_sieve_that_is_not_taken(start: int, taken: set[int]) -> None:
    expected = next(prime for prime in _PRIMES if prime >= start and prime not in taken)
    assert next_free_prime(start, taken) == expected


def _sieve(limit: int) -> list[int]:
    composite = bytearray(limit)
    for number in range(2, limit):
        if not composite[number]:
            composite[number * number :: number] = b"\1" * len(range(number * number, limit, number))
    return [number for number in range(2, limit) if not composite[number]]


_PRIMES = _sieve(40_000)


def test_large_primes_are_found_too() -> None:
    # 2**31 - 1 is prime (Euler); 46337 is the largest prime whose square is below it.
    assert next_free_prime(2**31 - 1, set()) == 2**31 - 1
    assert next_free_prime(46337**2, set()) > 46337**2


def test_a_model_folder_and_a_text_config_give_the_same(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", heads=3, ngrams=4, smallest=20)
    layout = read_head_layout(made.folder)
    assert {layer.layer: layer.head_sizes for layer in layout.layers} == made.head_sizes
    nested = tmp_path / "nested.json"
    nested.write_text(json.dumps({"text_config": json.loads((made.folder / "config.json").read_text())}))
    assert read_head_layout(nested) == layout
    assert sum(made.head_sizes[1]) == sum(primes_from(20, 9))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"engram_layer_ids": []}, "engram_layer_ids"),
        ({"engram_layer_ids": [1, 1]}, "engram_layer_ids"),
        ({"engram_layer_ids": None}, "engram_layer_ids"),
        ({"engram_layer_ids": [1, -14]}, "engram_layer_ids"),
        ({"engram_num_embeddings": [100]}, "engram_num_embeddings"),
        ({"engram_num_embeddings": [59, 200]}, "engram_num_embeddings"),
        ({"engram_n_heads": 1 << 31}, "engram_num_embeddings"),
        ({"engram_max_ngram_size": 1 << 31}, "engram_num_embeddings"),
        ({"engram_num_embeddings": [100.0, 200]}, "engram_num_embeddings"),
        ({"engram_max_ngram_size": 1}, "engram_max_ngram_size"),
        ({"engram_n_heads": 0}, "engram_n_heads"),
        ({"engram_n_heads": True}, "engram_n_heads"),
        ({"engram_head_dim": "64"}, "engram_head_dim"),
        ({"engram_vocab_size": None}, "engram_vocab_size"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_key(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SourceError, match=f"^here: {field}: "):
        head_layout(CONFIG | change, "here")


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_is_no_configuration_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SourceError, match=r"config\.json: is not"):
        read_head_layout(tmp_path)
