"""What the seam of the remote tables relies on in every vLLM release that it supports, read from the release's sources.

VLLM_RELEASES names unpacked releases by version; releases that spark-overlay does not support lie below
VLLM_RELEASES_ENGRAM, where that is set.
"""

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from engram_remote.tables.heads import head_layout
from engram_remote.vllm_seam.versions import COMMON, SEAMS, SWITCH
from sources import Class, Sources, calls, parameters

ROOT = Path(__file__).parents[2]
FOLDERS = [
    Path(os.environ[name]).resolve()
    for name in ("VLLM_RELEASES", "VLLM_RELEASES_ENGRAM")
    if os.environ.get(name)
]
EMBEDDING = "ParallelEngramEmbedding"
SEAM = ROOT / "packages" / "engram-remote" / "src" / "engram_remote" / "vllm_seam"
MODEL = "vllm.models.deepseek_v41.nvidia.model"


def folder_of(version: str) -> Path:
    found = [folder / version for folder in FOLDERS if (folder / version / "vllm").is_dir()]
    assert found, f"vLLM {version} is not below {FOLDERS}"
    return found[0]


@pytest.fixture(params=sorted(SEAMS))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def release(version: str) -> Sources:
    return Sources(folder_of(version))


def embedding(version: str, release: Sources) -> Class:
    return release.class_of(SEAMS[version].module, EMBEDDING)


def methods(found: Class, name: str) -> Iterator[ast.AST]:
    """Every definition of a method along the line: a derived one calls the one that it replaces."""
    for one in stock_line(found):
        yield from (node for node in one.node.body if getattr(node, "name", None) == name)


def stock_line(found: Class) -> Iterator[Class]:
    """The class and those that it derives from, also where it was imported under another name."""
    yield found
    for base in found.node.bases:
        origin = found.module.imports.get(ast.unparse(base))
        if origin and origin[0].startswith("vllm."):
            yield from stock_line(found.sources.class_of(*origin))


def origin(release: Sources, module: str, name: str) -> str:
    """The module that a name of another one is imported from, relative imports resolved."""
    for node in ast.walk(release.module(module).tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            parts = module.split(".")[: -node.level] if node.level else []
            return ".".join([*parts, node.module or ""])
    raise LookupError(f"{module} imports no {name}")


def test_each_pinned_file_is_the_releases(version: str, release: Sources) -> None:
    for module, digest in SEAMS[version].files.items():
        data = release.module(module).path.read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest, module
        assert SWITCH not in data


def test_the_nvidia_models_engram_constructs_the_class_that_is_rebound(
    version: str, release: Sources
) -> None:
    seam = SEAMS[version]
    assert origin(release, MODEL, "Engram") == seam.module
    create = release.class_of(seam.module, "Engram").method("_create_embedding")
    [call] = calls(create, EMBEDDING)
    assert EMBEDDING not in release.module(MODEL).imports, "a copy of the name would not be rebound"
    given = [*(ast.unparse(one) for one in call.args), *(one.arg for one in call.keywords)]
    assert len(call.args) == 3
    assert set(given[3:]) <= {"cpu_offload", "dp_shared_memory", "use_thp"}


def test_nobody_else_in_the_release_names_the_class(version: str) -> None:
    folder = folder_of(version)
    namers = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in Path(folder, "vllm").rglob("*.py")
        if EMBEDDING in path.read_text(encoding="utf-8")
    }
    assert namers == {COMMON, SEAMS[version].module}, "another holder's copy would have to be rebound too"


def test_the_constructor_has_the_parameters_that_ours_names(version: str, release: Sources) -> None:
    for init in methods(embedding(version, release), "__init__"):
        assert isinstance(init, ast.FunctionDef)
        assert parameters(init)[:4] == ("num_embeddings", "dim", "head_sizes", "block_size")


def test_the_constructor_takes_its_table_and_loaders_from_what_ours_overrides(
    version: str, release: Sources
) -> None:
    texts = [ast.unparse(one) for one in methods(embedding(version, release), "__init__")]
    assert sum("weight, scales = self._allocate_weights()" in text for text in texts) == 1
    assert sum("'weight_loader': self._weight_loader" in text for text in texts) == 1
    for name in ("weight", "weight_scale_inv"):
        assert sum(f"self.{name} = nn.Parameter(" in text for text in texts) == 1


def test_stocks_lookup_reads_of_the_staging_view_only_what_the_view_has(
    version: str, release: Sources
) -> None:
    lookups = list(methods(embedding(version, release), "lookup"))
    [lookup] = lookups
    assert isinstance(lookup, ast.FunctionDef)
    assert parameters(lookup) == ("indices", "out", "background")
    read = {
        node.attr
        for node in ast.walk(lookup)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    guarded = {"peer_ptrs"}  # only where peer_rows is not 0
    assert read - guarded <= view_attributes() | {"_packed"}
    assert {"_storage", "vocab_start_idx", "vocab_end_idx", "head_start"} <= read
    if "_packed" in read:
        assert "_packed" in embedding(version, release).attributes, "a class attribute, None"


def view_attributes() -> set[str]:
    """What `_staging_view` sets, from its own source."""
    tree = ast.parse((SEAM / "embedding.py").read_text(encoding="utf-8"))
    [view] = [node for node in ast.walk(tree) if getattr(node, "name", None) == "_staging_view"]
    [names] = [node for node in ast.walk(view) if isinstance(node, ast.Dict)]
    return {key.value for key in names.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_only_stocks_lookup_reads_the_table(version: str, release: Sources) -> None:
    """Whatever else read the storage would find none: the classes' other methods, and other modules."""
    for one in stock_line(embedding(version, release)):
        for node in one.node.body:
            if isinstance(node, ast.FunctionDef) and node.name not in ("lookup", "_storage", "__init__"):
                assert not calls(node, "self._storage"), node.name
                assert "self.weight" not in ast.unparse(node), node.name
    for name in release.names("vllm.models.deepseek_v41"):
        assert "embed_tokens.weight." not in release.module(name).path.read_text(encoding="utf-8"), name
        assert "embed_tokens._storage" not in release.module(name).path.read_text(encoding="utf-8"), name


def test_the_kernel_gives_zeros_for_ids_below_the_range(version: str, release: Sources) -> None:
    text = ast.unparse(release.module(COMMON).function("_engram_lookup_kernel"))
    assert "owned &= (index >= vocab_start) & (index < vocab_end)" in text
    assert "mask=owned[:, None], other=0.0" in text
    assert "mask=owned[:, None], other=0)" in text


def test_the_head_layout_is_ours(version: str, release: Sources) -> None:
    """Stock's own class, its text run alone, against ours for a model of some layers."""
    kept = [
        node
        for node in release.module(COMMON).tree.body
        if getattr(node, "name", "") in ("_is_prime", "find_next_prime", "EngramLayout")
    ]
    numpy, torch = _Numbers(), _Numbers()
    names: dict[str, object] = {"np": numpy, "torch": torch}
    exec(compile(ast.Module(kept, []), "stock", "exec"), names)
    config = {
        "engram_layer_ids": [1, 14, 20],
        "engram_num_embeddings": [20000, 21000, 22000],
        "engram_max_ngram_size": 4,
        "engram_n_heads": 5,
        "engram_head_dim": 256,
        "engram_vocab_size": 997,
        "engram_compressed_vocab_size": 1000,
        "engram_pad_token_id": 0,
    }
    layout = names["EngramLayout"](type("Config", (), config))  # type: ignore[operator]
    ours = head_layout(config)
    assert layout.layer_ids == tuple(layer.layer for layer in ours.layers)
    stocks = [tuple(size for order in layer for size in order) for layer in layout.primes]
    assert stocks == [layer.head_sizes for layer in ours.layers]
    assert layout.n_hash_cols == ours.hash_columns


class _Numbers:
    """In place of numpy and torch, which only make the offsets."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 16])
def test_a_ranks_rows_are_ours(version: str, release: Sources, ranks: int) -> None:
    """Stock's own statements, from its constructor, against ours."""
    [init] = list(methods(release.class_of(COMMON, EMBEDDING), "__init__"))
    wanted = ("part_n_hash_cols", "head_start", "head_end", "vocab_start_idx", "vocab_end_idx")
    assert isinstance(init, ast.FunctionDef)
    statements: list[ast.stmt] = [
        node
        for node in init.body
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and ast.unparse(node.targets[0]).removeprefix("self.") in wanted
    ]
    assert len(statements) == len(wanted)
    layer = head_layout(
        {
            "engram_layer_ids": [1],
            "engram_num_embeddings": [20000],
            "engram_max_ngram_size": 3,
            "engram_n_heads": 8,
            "engram_head_dim": 64,
            "engram_vocab_size": 97,
        }
    ).layers[0]
    for rank in range(ranks):
        itself = type("Self", (), {"n_hash_cols": len(layer.head_sizes)})()
        names = {"self": itself, "num_shards": ranks, "head_rank": rank, "head_sizes": layer.head_sizes,
                 "triton": type("Triton", (), {"cdiv": staticmethod(lambda a, b: -(-a // b))})}  # fmt: skip
        exec(compile(ast.Module(statements, []), "stock", "exec"), names)
        assert (itself.vocab_start_idx, itself.vocab_end_idx) == layer.rank_rows(rank, ranks)


def test_the_guard_finds_what_it_wraps_and_reads(version: str, release: Sources) -> None:
    wrapper = release.class_of("vllm.v1.worker.worker_base", "WorkerWrapperBase")
    base = release.class_of("vllm.v1.worker.worker_base", "WorkerBase")
    assert parameters(wrapper.method("shutdown")) == ()
    assert wrapper.has("worker")
    assert wrapper.has("vllm_config")
    assert wrapper.has("compile_or_warm_up_model") or wrapper.has("__getattr__")
    assert base.has("compile_or_warm_up_model")
    for module in ("vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu_model_runner"):
        assert parameters(release.class_of(module, "GPUModelRunner").method("get_model")) == ()
    [loading] = calls(wrapper.method("init_worker"), "load_general_plugins")
    made = [call.lineno for call in calls(wrapper.method("init_worker"), "worker_class")]
    assert all(loading.lineno < line for line in made), "plugins are loaded before a worker is made"


def test_what_is_refused_has_the_names_that_refusals_read(version: str, release: Sources) -> None:
    engram = release.class_of("vllm.config.engram", "EngramConfig")
    assert engram.has("embedding_across_dp")
    assert engram.has("dp_shared_memory")
    assert release.class_of("vllm.config.vllm", "VllmConfig").has("engram_config")
    parallel = release.class_of("vllm.config.parallel", "ParallelConfig")
    assert parallel.has("data_parallel_size")
    assert parallel.has("pipeline_parallel_size")
    assert release.class_of("vllm.config.scheduler", "SchedulerConfig").has("max_num_batched_tokens")


def test_without_data_parallel_groups_nothing_is_exchanged_in_batches(version: str, release: Sources) -> None:
    module = release.module(SEAMS[version].module)
    batches = [node for node in module.tree.body if getattr(node, "name", "") == "EngramBatch"]
    for batch in batches:
        [create] = [node for node in ast.walk(batch) if getattr(node, "name", "") == "create"]
        assert "table.dp_size == 1 or" in ast.unparse(create)
    assert bool(batches) == (version >= "0.32")
