"""Rows and ranks of the Engram tables are those of every vLLM release that has them, by running the release's own rule.

Nothing of vLLM is imported: the class, its two helpers, the lines that share heads among ranks and the mapper of tensor
names are taken from the sources by name and run alone, so a release that renames them fails here.
"""

import __future__

import ast
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engram_remote.tables.heads import LayerHeads, head_layout
from engram_remote.tables.source import TENSOR_NAME

FOLDER = Path(os.environ["VLLM_RELEASES"]).resolve()
VERSIONS = ("0.30.0", "0.32.0", "0.33.0")
"""Releases that have Engram layers and that we support."""
FILE = "vllm/models/deepseek_v41/common/engram.py"
MODEL, UTILS = "vllm/models/deepseek_v41/nvidia/model.py", "vllm/model_executor/models/utils.py"
SHARE = ("part_n_hash_cols", "head_start", "head_end", "vocab_start_idx", "vocab_end_idx")
"""What a rank's share of the heads is computed through, in this order, in ParallelEngramEmbedding.__init__."""

CONFIGS: list[dict[str, Any]] = [
    {"engram_layer_ids": [1, 14], "max_ngram": 3, "heads": 2, "smallest": 10},
    {"engram_layer_ids": [1, 14], "max_ngram": 4, "heads": 8, "smallest": 15_700_000},
    {"engram_layer_ids": [0], "max_ngram": 2, "heads": 1, "smallest": 2},
    {"engram_layer_ids": [9, 3, 27], "max_ngram": 5, "heads": 5, "smallest": 104_729},
]


def configuration(shape: dict[str, Any]) -> dict[str, Any]:
    layers = shape["engram_layer_ids"]
    return {
        "engram_layer_ids": layers,
        "engram_num_embeddings": [1 << 31] * len(layers),
        "engram_max_ngram_size": shape["max_ngram"],
        "engram_n_heads": shape["heads"],
        "engram_head_dim": 256,
        "engram_vocab_size": shape["smallest"],
        "engram_compressed_vocab_size": 1000,
        "engram_pad_token_id": 0,
    }


def tree(version: str, file: str = FILE) -> ast.Module:
    return ast.parse((FOLDER / version / file).read_text(encoding="utf-8"))


def run(nodes: list[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
    """Run statements of a release alone, annotations unread.  names: what they may use; returned with what they add."""
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(nodes, []), "release", "exec", flags=flags, dont_inherit=True), names)
    return names


def stock_layout(version: str, config: dict[str, Any]) -> Any:
    """The release's EngramLayout of a configuration; its one tensor is an array here."""
    wanted = {"_is_prime", "find_next_prime", "EngramLayout"}
    nodes = [node for node in tree(version).body if getattr(node, "name", None) in wanted]
    assert {getattr(node, "name", None) for node in nodes} == wanted
    names = run(nodes, {"np": np, "torch": SimpleNamespace(tensor=np.asarray)})
    return names["EngramLayout"](SimpleNamespace(**config))


def stock_share(version: str, head_sizes: tuple[int, ...], rank: int, ranks: int) -> tuple[int, int]:
    """First row of a rank and past its last, by the release's own lines."""
    [cls] = [node for node in tree(version).body if getattr(node, "name", None) == "ParallelEngramEmbedding"]
    assert isinstance(cls, ast.ClassDef)
    [init] = [node for node in cls.body if getattr(node, "name", None) == "__init__"]
    chosen = [node for node in ast.walk(init) if isinstance(node, ast.Assign) and _target(node) in SHARE]
    assert [_target(node) for node in chosen] == list(SHARE)
    this = SimpleNamespace(n_hash_cols=len(head_sizes), tp_size=ranks)
    triton = SimpleNamespace(cdiv=lambda whole, parts: math.ceil(whole / parts))
    names = {"self": this, "triton": triton, "num_shards": ranks, "head_rank": rank, "head_sizes": head_sizes}
    run(list(chosen), names)
    return this.vocab_start_idx, this.vocab_end_idx


def stock_mapper(version: str, expert_dtype: str) -> Any:
    """The release's mapper of tensor names for a model of that expert type."""
    mapper = [node for node in tree(version, UTILS).body if getattr(node, "name", None) == "WeightsMapper"]
    maker = "_make_deepseek_v4_weights_mapper"
    made = [node for node in tree(version, MODEL).body if getattr(node, "name", None) == maker]
    assert len(mapper) == len(made) == 1
    names = run([*mapper, *made], {"dataclass": dataclass, "field": field, "re": re})
    return names[maker](expert_dtype)


def _target(node: ast.Assign) -> str | None:
    target = node.targets[0]
    return (
        target.attr
        if isinstance(target, ast.Attribute)
        else target.id
        if isinstance(target, ast.Name)
        else None
    )


def test_every_release_that_has_engram_layers_is_compared() -> None:
    assert {path.name for path in FOLDER.iterdir() if (path / FILE).is_file()} == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", CONFIGS, ids=str)
def test_head_sizes_offsets_and_columns_are_stocks(version: str, shape: dict[str, Any]) -> None:
    config = configuration(shape)
    ours, stock = head_layout(config), stock_layout(version, config)
    assert tuple(layer.layer for layer in ours.layers) == stock.layer_ids
    assert tuple(layer.num_embeddings for layer in ours.layers) == stock.num_embeddings
    flat = [tuple(size for order in layer for size in order) for layer in stock.primes]
    assert [layer.head_sizes for layer in ours.layers] == flat
    assert [list(layer.offsets) for layer in ours.layers] == stock.offsets.tolist()
    assert (ours.columns, ours.hash_columns) == (stock.head_dim, stock.n_hash_cols)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_a_ranks_rows_are_stocks(version: str, ranks: int) -> None:
    heads = LayerHeads(1, 1000, (11, 13, 17, 19, 23, 29, 31))
    for rank in range(ranks):
        each = math.ceil(7 / ranks)
        if (ranks - 1) * each >= 7:
            with pytest.raises(ValueError, match="leave ranks without any"):
                heads.rank_rows(rank, ranks)
        else:
            assert heads.rank_rows(rank, ranks) == stock_share(version, heads.head_sizes, rank, ranks)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_still_refuses_ranks_without_heads_and_zeroes_what_a_rank_does_not_own(
    version: str,
) -> None:
    text = (FOLDER / version / FILE).read_text(encoding="utf-8")
    assert "(num_shards - 1) * self.part_n_hash_cols < self.n_hash_cols" in text
    assert "sum(head_sizes) <= num_embeddings" in text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("expert_dtype", ["fp4", "fp8"])
def test_the_tensors_that_a_build_takes_are_those_that_stock_loads_into_the_table(
    version: str, expert_dtype: str
) -> None:
    mapper = stock_mapper(version, expert_dtype)
    table = "model.layers.14.engram.embed_tokens."
    spellings = {
        "layers.14.engram.embed.weight": table + "weight",
        "layers.14.engram.embed.scale": table + "weight_scale_inv",
        "model.layers.14.engram.embed_tokens.weight": table + "weight",
        "model.layers.14.engram.embed_tokens.weight_scale_inv": table + "weight_scale_inv",
    }
    for name, parameter in spellings.items():
        assert mapper._map_name(name) == parameter
        match = TENSOR_NAME.fullmatch(name)
        assert match
        assert (match["layer"], match["part"] == "weight") == ("14", parameter.endswith(".weight"))
    for name in (
        "layers.14.engram.wkv.weight",
        "embed.weight",
        "mtp.0.engram.embed.weight",
        "layers.14.ffn.gate.bias",
    ):
        assert mapper._map_name(name) not in spellings.values()
        assert TENSOR_NAME.fullmatch(name) is None
