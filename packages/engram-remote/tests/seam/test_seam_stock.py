"""Outputs of the replacement are bit for bit those of stock's embedding that holds the same table."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from engram_seam_pairs import Pairs, pairs
from engram_seam_readers import HostExchange
from engram_seam_stock import releases

VERSIONS = sorted(releases())
# Among the 256 scale bytes are those that make a product overflow; numpy, in the interpreter, says so of stock's
# kernel.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|invalid value) encountered in multiply:RuntimeWarning"
)
PACKED = [version for version in VERSIONS if version >= "0.32"]


def same(pair: Pairs, layer: int, indices: Any, *, packed: bool = False, **storage: Any) -> Any:
    """Compares one lookup; returns what both gave, as bytes."""
    stocks, ours = pair.stocks(layer), pair.ours(layer, **storage)
    expected, found = (pair.out(stocks, len(indices), packed) for _ in range(2))
    stocks.lookup(indices, expected)
    ours.lookup(indices, found)
    assert torch.equal(expected.view(torch.uint8), found.view(torch.uint8))
    return found.view(torch.uint8)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("layer", [1, 14])
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_stocks_on_each_rank_and_layer(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str, layer: int, rank: int
) -> None:
    pair = pairs(stocks[version], tmp_path, rank)
    found = same(pair, layer, pair.ids(layer, 33))
    assert len(found.unique()) > 200, "rows that are all alike would prove nothing"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("version", PACKED)
def test_packed_rows_are_stocks(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str, rank: int
) -> None:
    pair = pairs(stocks[version], tmp_path, rank)
    same(pair, 14, pair.ids(14, 20), packed=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_ids_that_a_rank_does_not_hold_give_stocks_zeros(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 1)
    embedding = pair.stocks(1)
    start, end = embedding.vocab_start_idx, embedding.vocab_end_idx
    beyond = [-1, -2, 0, start - 1, start, end - 1, end, 2**31 - 1, -(2**31)]
    indices = torch.tensor(beyond, dtype=torch.int32)[:, None].repeat(1, embedding.n_hash_cols)
    found = same(pair, 1, indices).view(torch.bfloat16)
    empty = [index for index, one in enumerate(beyond) if not start <= one < end]
    assert len(empty) == 7
    assert not found[empty].any()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_rank_of_an_uneven_split_gives_stocks_zeros_for_heads_that_do_not_exist(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 1, model={"heads": 7, "ngrams": 2})
    found = same(pair, 14, pair.ids(14, 9)).view(torch.bfloat16)
    assert found.shape[1] == 4
    assert not found[:, 3].any()
    assert found[:, 2].any()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_batch_touches_nothing(stocks: dict[str, ModuleType], tmp_path: Path, version: str) -> None:
    pair = pairs(stocks[version], tmp_path, 0)
    ours = pair.ours(1)
    ours.lookup(pair.ids(1, 0), pair.out(ours, 0))
    assert ours.remote_tables.reader.lookups == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_ids_in_a_strided_view_of_all_layers_are_read_as_stock_reads_them(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 0)
    both = torch.stack([pair.ids(1, 12), pair.ids(14, 12, seed=5)], dim=1)
    for index, layer in enumerate((1, 14)):
        assert not both[:, index].is_contiguous()
        same(pair, layer, both[:, index])


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_256_values_are_stocks(stocks: dict[str, ModuleType], tmp_path: Path, version: str) -> None:
    pair = pairs(stocks[version], tmp_path, 1, model={"columns": 256})
    same(pair, 1, pair.ids(1, 7))


@pytest.mark.parametrize("version", PACKED)
def test_an_offloaded_table_that_stock_would_sort_is_read_unsorted_with_the_same_rows(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = stocks[version]
    pair = pairs(stock, tmp_path, 0)
    monkeypatch.setattr(stock, "_engram_lookup_thresholds", lambda device: (1, None))
    stocks_own = pair.stocks(1)
    stocks_own.cpu_offload = True  # after its constructor, which would pin memory
    ours = pair.ours(1, cpu_offload=True)
    indices = pair.ids(1, 16)
    expected, found = pair.out(ours, 16), pair.out(ours, 16)
    stocks_own.lookup(indices, expected)
    ours.lookup(indices, found)
    assert torch.equal(expected.view(torch.uint8), found.view(torch.uint8))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_hand_over_of_a_stream_brings_the_same_rows_again_and_again(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 0, exchange=HostExchange)
    both = {layer: (pair.stocks(layer), pair.ours(layer)) for layer in (1, 14)}
    tables = both[1][1].remote_tables
    assert both[14][1].remote_tables is tables, "one reader serves both layers"
    try:
        for round_ in range(20):
            for layer, (stocks_own, ours) in both.items():
                tokens = 1 + (round_ * 7) % 30
                indices = pair.ids(layer, tokens, seed=round_)
                expected, found = pair.out(ours, tokens), pair.out(ours, tokens)
                stocks_own.lookup(indices, expected)
                ours.lookup(indices, found)
                assert torch.equal(expected.view(torch.uint8), found.view(torch.uint8))
        assert tables.reader.lookups == 40
    finally:
        tables.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_forward_and_what_stocks_engram_reads_are_stocks(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 0, ranks=1)
    stocks_own, ours = pair.stocks(1), pair.ours(1)
    indices = pair.ids(1, 6)
    assert torch.equal(stocks_own(indices).view(torch.uint8), ours(indices).view(torch.uint8))
    inherited = vars(stocks_own).keys() - {"_parameters", "_views", "_view_src", "training"}
    public = {name for name in inherited if isinstance(vars(stocks_own)[name], int | tuple | str | bool)}
    assert {"dim", "head_start", "part_n_hash_cols", "n_hash_cols", "tp_size", "vocab_start_idx"} <= public
    assert {name: vars(ours)[name] for name in public} == {name: vars(stocks_own)[name] for name in public}
    assert dict(ours.named_parameters()).keys() == dict(stocks_own.named_parameters()).keys()
    assert [name for name, _ in ours.named_modules()] == [""]
