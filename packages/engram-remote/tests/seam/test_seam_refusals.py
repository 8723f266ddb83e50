"""What does not fit is refused with one sentence that names it: manifests, shards, checkpoints, engines."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from engram_remote.tables.errors import ManifestError, ShardError
from engram_remote.tables.layout import HEADER_BYTES
from engram_remote.vllm_seam.embedding import RemoteRows
from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.guard import check_model, guard
from engram_remote.vllm_seam.place import Place
from engram_remote.vllm_seam.refusals import refuse
from engram_seam_pairs import CPU, Pairs, pairs, settings_for
from engram_seam_readers import ShardReader
from engram_seam_stock import releases
from engram_seam_tables import model_config, sources, write_tables

VERSIONS = sorted(releases())
NEWEST = VERSIONS[-1]


@pytest.fixture
def pair(stocks: dict[str, ModuleType], tmp_path: Path) -> Pairs:
    return pairs(stocks[NEWEST], tmp_path, 1)


# ---- the table is not there ----


@pytest.mark.parametrize("version", VERSIONS)
def test_no_table_is_allocated_and_the_bytes_saved_are_said(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair = pairs(stocks[version], tmp_path, 1)
    ours = pair.ours(14, **({} if version < "0.30" else {"cpu_offload": False}))
    assert ours.weight.numel() == ours.weight_scale_inv.numel() == 0
    assert (ours.weight.dtype, ours.weight_scale_inv.dtype) == (torch.float8_e4m3fn, torch.uint8)
    rows, row_bytes = ours.part_num_embeddings, 64 + 2
    kept = ours._feed.host_bytes
    [said] = [record.getMessage() for record in caplog.records if "are not allocated" in record.getMessage()]
    assert f"layer 14: {rows} rows x {row_bytes} bytes are not allocated, {rows * row_bytes} bytes" in said
    assert f"{kept} bytes" in said
    assert not any("offloaded to pinned" in record.getMessage() for record in caplog.records)


def test_stocks_word_about_an_offloaded_table_is_not_said_of_one_that_is_not_there(
    pair: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair.ours(14, cpu_offload=True)
    assert not any("offloaded to pinned" in record.getMessage() for record in caplog.records)


# ---- the checkpoint's tensors ----


@pytest.mark.parametrize("version", VERSIONS)
def test_the_checkpoints_tensors_are_accepted_and_not_copied(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str
) -> None:
    pair = pairs(stocks[version], tmp_path, 1)
    ours = pair.ours(1)
    for param, tensor in zip((ours.weight, ours.weight_scale_inv), pair.tensors(1), strict=True):
        param.weight_loader(param, tensor)
        assert param.numel() == 0


def test_scales_may_come_as_bytes(pair: Pairs) -> None:
    ours = pair.ours(1)
    scales = pair.tensors(1)[1].view(torch.uint8)
    ours.weight_scale_inv.weight_loader(ours.weight_scale_inv, scales)


def _shorter(tensor: Any) -> Any:
    return tensor.view(torch.uint8)[:100].view(tensor.dtype)


def _narrower(tensor: Any) -> Any:
    return tensor.view(torch.uint8)[:, :1].contiguous().view(tensor.dtype)


@pytest.mark.parametrize(("which", "name"), [(0, "weight"), (1, "weight_scale_inv")])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensor: tensor.view(torch.uint8).to(torch.float32), "has dtype torch.float32, where"),
        (_shorter, "has shape"),
        (_narrower, "has shape"),
        (lambda tensor: tensor.view(torch.uint8).flatten().view(tensor.dtype), "has shape"),
    ],
)
def test_a_tensor_that_is_not_this_tables_is_refused(
    pair: Pairs, which: int, name: str, change: Callable[[Any], Any], says: str
) -> None:
    ours = pair.ours(1)
    param = (ours.weight, ours.weight_scale_inv)[which]
    with pytest.raises(SeamError, match=f"layer 1: the checkpoint's {name} {says}"):
        param.weight_loader(param, change(pair.tensors(1)[which]))


@pytest.mark.parametrize("which", [0, 1])
def test_tables_of_another_checkpoint_are_refused_at_load(
    stocks: dict[str, ModuleType], tmp_path: Path, which: int
) -> None:
    pair = pairs(stocks[NEWEST], tmp_path, 1)
    pair.tables = sources(pair.config, seed=8)
    ours = pair.ours(1)
    param = (ours.weight, ours.weight_scale_inv)[which]
    shard = pair.folder / ours._shard.file
    with pytest.raises(
        ShardError, match=rf"{shard}: rows: row {ours.vocab_start_idx} is not that of the checkpoint's"
    ):
        param.weight_loader(param, pair.tensors(1)[which])


def test_one_changed_row_among_those_compared_is_seen(pair: Pairs) -> None:
    ours = pair.ours(1)
    last = ours.vocab_end_idx - 1
    values = pair.tensors(1)[0].view(torch.uint8).clone()
    values[last, 63] ^= 1
    with pytest.raises(ShardError, match=f"row {last} is not that of the checkpoint's weight"):
        ours.weight.weight_loader(ours.weight, values.view(torch.float8_e4m3fn))


def test_most_of_the_checkpoints_table_is_never_read(pair: Pairs) -> None:
    """A tensor that says which of its rows were taken: 64 of some hundreds, whatever the table's size."""
    ours = pair.ours(1)
    taken: list[int] = []

    class Watched:
        def __init__(self, tensor: Any) -> None:
            self.tensor, self.dtype, self.shape, self.is_meta = tensor, tensor.dtype, tensor.shape, False

        def __getitem__(self, row: int) -> Any:
            taken.append(row)
            return self.tensor[row]

    ours.weight.weight_loader(ours.weight, Watched(pair.tensors(1)[0]))
    assert 64 <= len(set(taken)) <= 2 * 64 + 1
    assert min(taken) == ours.vocab_start_idx
    assert max(taken) == ours.vocab_end_idx - 1


# ---- manifest and shards ----


def test_a_manifest_for_other_ranks_is_refused(stocks: dict[str, ModuleType], tmp_path: Path) -> None:
    pair = pairs(stocks[NEWEST], tmp_path, 0, ranks=2)
    pair.stock.TP.size = pair.ranks = 1
    with pytest.raises(
        ManifestError, match=f"{tmp_path}/manifest.json: ranks: 2, where the engine has 1 head shards"
    ):
        pair.ours(1)


def test_a_manifest_without_the_layer_is_refused(stocks: dict[str, ModuleType], tmp_path: Path) -> None:
    pair = pairs(stocks[NEWEST], tmp_path, 0)
    one = model_config(layers=(1,))
    write_tables(tmp_path, one, sources(one), 2)
    pair.ours(1)
    with pytest.raises(ManifestError, match=r"layers: \[1\] lack the model's layer 14"):
        pair.ours(14)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"columns": 128}, "columns: 128, where the model's rows have 64"),
        ({"heads": 5}, r"layers\[0\].rows: \d+, where layer 1 of the model has heads of \d+ rows"),
    ],
)
def test_a_manifest_of_another_model_is_refused(
    stocks: dict[str, ModuleType], tmp_path: Path, model: dict[str, Any], says: str
) -> None:
    pair = pairs(stocks[NEWEST], tmp_path, 0)
    other = model_config(**model)
    write_tables(tmp_path, other, sources(other), 2)
    with pytest.raises(ManifestError, match=f"{tmp_path}/manifest.json: {says}"):
        pair.ours(1)


def test_a_layer_is_told_by_its_head_sizes_and_by_nothing_else(pair: Pairs) -> None:
    assert pair.ours(14).remote_layer == 14
    assert pair.ours(1).remote_layer == 1
    rows, dim, sizes = pair.arguments(1)
    with pytest.raises(SeamError, match="no Engram layer of this model has heads of"):
        pair.kind(rows, dim, tuple(reversed(sizes)))


@pytest.mark.parametrize(("change", "says"), [(-1, "bytes"), (1, "bytes")])
def test_a_shard_of_another_size_is_refused(pair: Pairs, change: int, says: str) -> None:
    shard = pair.folder / "layer001-rank1.engram"
    data = shard.read_bytes()
    shard.write_bytes(data[:change] if change < 0 else data + b"\0" * change)
    with pytest.raises(
        ShardError, match=f"{shard}: {says}: {len(data) + change}, where the manifest says {len(data)}"
    ):
        pair.ours(1)


def test_a_shard_that_is_not_there_is_refused(pair: Pairs) -> None:
    shard = pair.folder / "layer014-rank1.engram"
    shard.rename(shard.with_suffix(".away"))
    with pytest.raises(ShardError, match=f"{shard}: file: cannot be read: No such file"):
        pair.ours(1)


def test_a_swapped_shard_is_refused_by_its_header(pair: Pairs) -> None:
    mine, other = pair.folder / "layer001-rank1.engram", pair.folder / "layer001-rank0.engram"
    size = mine.stat().st_size
    mine.write_bytes(other.read_bytes()[:HEADER_BYTES] + mine.read_bytes()[HEADER_BYTES:])
    assert mine.stat().st_size == size
    with pytest.raises(ShardError, match=f"{mine}: header: "):
        pair.ours(1)


# ---- engines ----


def config(**given: Any) -> Any:
    parallel = SimpleNamespace(
        data_parallel_size=given.pop("data_parallel_size", 1), pipeline_parallel_size=1
    )
    engram = (
        SimpleNamespace(embedding_across_dp=False, dp_shared_memory=None)
        if given.pop("engram", True)
        else None
    )
    for name, value in given.items():
        setattr(engram, name, value)
    return SimpleNamespace(parallel_config=parallel, engram_config=engram)


def test_an_ordinary_engine_is_not_refused() -> None:
    refuse(config())
    refuse(config(dp_shared_memory=False))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engram": False}, "this model has no Engram layers"),
        ({"data_parallel_size": 2}, "data_parallel_size is 2: rows of data-parallel groups are not served"),
        ({"embedding_across_dp": True}, "engram_config.embedding_across_dp is set"),
        ({"dp_shared_memory": True}, "engram_config.dp_shared_memory is set"),
    ],
)
def test_an_engine_whose_replicas_share_rows_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SeamError, match=f"engram-remote: {says}"):
        refuse(config(**given))


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "0.32"])
def test_a_group_that_only_stocks_constructor_finds_is_refused(
    stocks: dict[str, ModuleType], tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs(stocks[version], tmp_path, 0, ranks=1)
    monkeypatch.setattr(pair.stock.DP, "size", 2)
    monkeypatch.setattr(pair.stock, "engram_head_shard_rank", lambda: 0)
    with pytest.raises(SeamError, match="a table over 2 data-parallel replicas is not served remotely"):
        pair.ours(1, cpu_offload=True)


def test_stock_code_that_would_read_the_table_itself_is_refused(pair: Pairs) -> None:
    with pytest.raises(SeamError, match="stock code reads an Engram table that is served remotely"):
        pair.ours(1)._storage()


def test_more_rows_than_staging_holds_are_refused(pair: Pairs) -> None:
    ours = pair.ours(1)
    tokens = pair.tokens_max + 1
    with pytest.raises(
        SeamError, match=f"{tokens * 4} rows are asked for at once, where staging holds {tokens * 4 - 4}"
    ):
        ours.lookup(pair.ids(1, tokens), pair.out(ours, tokens))


# ---- the guard ----


class Wrapper:
    """As vLLM's WorkerWrapperBase: hands unknown names to its worker."""

    def __init__(self, model: Any) -> None:
        runner = SimpleNamespace(get_model=lambda: model)
        self.worker = SimpleNamespace(model_runner=runner, compile_or_warm_up_model=lambda: "warm")
        self.vllm_config = config()

    def shutdown(self) -> str:
        return "down"


def guarded(settings: Any) -> Any:
    kind = type("Wrapper", (Wrapper,), {"shutdown": Wrapper.shutdown})
    guard(kind, settings, "0.33.0")
    guard(kind, settings, "0.33.0")  # as a process that loads plugins twice
    return kind


def test_an_engine_with_remote_tables_starts_and_leaves_its_record(pair: Pairs, tmp_path: Path) -> None:
    model = torch.nn.ModuleList([pair.ours(1), pair.ours(14)])
    ready = tmp_path / "ready"
    wrapper = guarded(settings_for(pair.folder, READY_FILE=str(ready), START_ID="s"))(model)
    assert wrapper.compile_or_warm_up_model() == "warm"
    record = json.loads((tmp_path / "ready.1").read_text())
    assert record["layers"] == [1, 14]
    assert (record["rank"], record["vllm"], record["start_id"]) == (1, "0.33.0", "s")
    assert record["identity"] == model[0].remote_tables.manifest.identity
    reader = model[0].remote_tables.reader
    assert not reader.closed
    assert wrapper.shutdown() == "down"
    assert reader.closed


def test_an_engine_without_remote_tables_does_not_start(pair: Pairs) -> None:
    kind = guarded(settings_for(pair.folder))
    with pytest.raises(SeamError, match="the model holds no Engram table that is served remotely"):
        kind(torch.nn.Linear(2, 2)).compile_or_warm_up_model()
    with pytest.raises(SeamError, match="holds no model"):
        kind(None).compile_or_warm_up_model()


def test_an_engine_with_a_table_of_stocks_own_does_not_start(pair: Pairs) -> None:
    both = torch.nn.ModuleList([pair.ours(1), pair.stocks(14)])
    with pytest.raises(SeamError, match="1 Engram tables of the model are stock's own"):
        guarded(settings_for(pair.folder))(both).compile_or_warm_up_model()


def test_a_pipelines_rank_may_hold_no_layer_with_a_table() -> None:
    assert check_model(torch.nn.Linear(2, 2), pipeline=True) == []


# ---- one reader a model ----


def test_two_models_of_one_process_have_readers_of_their_own(pair: Pairs) -> None:
    first = [pair.ours(1), pair.ours(14)]
    second = [pair.ours(1), pair.ours(14)]
    assert first[0].remote_tables is first[1].remote_tables
    assert second[0].remote_tables is second[1].remote_tables
    assert first[0].remote_tables is not second[0].remote_tables


def test_the_last_embedding_closes_its_reader(pair: Pairs) -> None:
    embedding = pair.ours(1)
    tables = embedding.remote_tables
    reader = tables.reader
    assert isinstance(reader, ShardReader)
    assert isinstance(embedding, RemoteRows)
    tables.close()
    tables.close()
    assert reader.closed


def test_a_place_is_what_stocks_layout_says(pair: Pairs) -> None:
    assert pair.place() == Place(1, 2, pair.tokens_max, pair.layers, CPU)
    assert sorted(pair.layers.values()) == [1, 14]
    assert all(len(sizes) == 8 for sizes in pair.layers)
