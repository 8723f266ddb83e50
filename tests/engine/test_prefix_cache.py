"""What capacity frees, and what vLLM keeps of the drafter all the same, measured on the demo's pair: KV cache for the
same bytes, and the tokens that a repeated prompt finds in the prefix cache.

Three engines with one configuration: vLLM's own DSpark, capacity, and capacity with `disable_eagle_block_drop`.  No
worker is there: what a prompt finds in the cache does not depend on drafts.  docs/operations/capacity.md has the
figures that this test prints.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from driver import Engine, dspark, engine_environment
from worker_process import IDENTITY, MARKOV_IDENTITY

pytestmark = pytest.mark.engine

PAIR = Path(__file__).parents[2] / "demo" / "pair"
BLOCK_TOKENS, DRAFTS = 32, 5
KV_BYTES = 16 << 20
ENGINE: dict[str, Any] = {
    "model": str(PAIR / "target"),
    "max_model_len": 512,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "block_size": BLOCK_TOKENS,
    "kv_cache_memory_bytes": KV_BYTES,
    "enable_prefix_caching": True,
}
LENGTHS = (97, 128, 200)
"""Of prompts: just past a block's end, at one, and inside a block."""
VARIANTS = {
    "stock": (False, False),
    "capacity": (True, False),
    "capacity without the drop": (True, True),
}
"""Whether the overlay is on, and whether the trailing block is kept."""


def _measured(name: str, folder: Path) -> dict[str, Any]:
    """One engine's memory, room for tokens, cached tokens by length of a prompt that comes twice, and texts."""
    overlay, no_drop = VARIANTS[name]
    bare = folder / name / "config-only"
    bare.mkdir(parents=True)
    shutil.copy(PAIR / "drafter" / "config.json", bare)
    settings = {
        "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
        "VLLM_DSPARK_REMOTE_IDENTITY": IDENTITY,
        "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": MARKOV_IDENTITY,
    }
    more = {"disable_eagle_block_drop": True} if no_drop else {}
    speculative = dspark(bare if overlay else PAIR / "drafter", DRAFTS, **more)
    environment = engine_environment(**(settings if overlay else {}))
    cached, texts = {}, {}
    with Engine(folder / name / "log", environment) as engine:
        found = engine.start(speculative_config=speculative, **ENGINE)
        assert found["event"] == "ready", found
        (memory,) = engine.on_ranks("memory")
        for length in LENGTHS:
            prompt = [3 + (7 * position + length) % 500 for position in range(length)]
            wanted = {"prompt": prompt, "max_tokens": 4}
            first = engine.run({f"{length}-first": wanted})
            again = engine.run({f"{length}-again": wanted})
            assert first["cached"] == {f"{length}-first": 0}
            cached[length] = again["cached"][f"{length}-again"]
            texts |= first["tokens"] | again["tokens"]
        figures = engine.stats() if overlay else {}
        room = re.search(r"KV cache size: ([\d,]+) tokens", engine.said())
        assert room is not None
        assert engine.quit() == 0
    return {
        "memory": memory,
        "tokens": int(room[1].replace(",", "")),
        "cached": cached,
        "texts": texts,
        "overlay_memory": figures.get("memory"),
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By variant."""
    folder = tmp_path_factory.mktemp("prefix")
    return {name: _measured(name, folder) for name in VARIANTS}


def test_the_figures_of_the_document_are_these(measured: dict[str, dict[str, Any]]) -> None:
    for name, figures in measured.items():
        print(name, json.dumps({key: value for key, value in figures.items() if key != "texts"}))
    assert measured["capacity"]["memory"]["drafter_parameter_bytes"] == 0
    assert measured["stock"]["memory"]["drafter_parameter_bytes"] > 0


def test_capacity_has_no_layers_of_a_drafter_in_the_kv_cache(measured: dict[str, dict[str, Any]]) -> None:
    target = json.loads((PAIR / "target" / "config.json").read_text())["num_hidden_layers"]
    drafter = json.loads((PAIR / "drafter" / "config.json").read_text())["num_hidden_layers"]
    assert measured["stock"]["memory"]["kv_layers"] == target + drafter
    assert measured["capacity"]["memory"]["kv_layers"] == target
    assert measured["capacity"]["overlay_memory"]["kv_draft_layers"] == 0
    for figures in measured.values():
        assert figures["memory"]["kv_bytes"] <= KV_BYTES
    assert measured["capacity"]["tokens"] > measured["stock"]["tokens"]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_repeated_prompt_finds_a_block_less_for_the_drop_and_another_less_where_it_ends_with_a_block(
    measured: dict[str, dict[str, Any]], length: int
) -> None:
    """A prompt's last token is always computed, so its whole blocks are those before it.

    With the drafter's layers there are several groups, and vLLM looks for the block to be dropped also behind the
    last one that may be used; with the target's alone it drops one of those that may be used.
    """
    found = {name: figures["cached"][length] // BLOCK_TOKENS for name, figures in measured.items()}
    usable = (length - 1) // BLOCK_TOKENS
    assert found == {
        "stock": length // BLOCK_TOKENS - 1,
        "capacity": usable - 1,
        "capacity without the drop": usable,
    }


def test_what_the_cache_held_changes_no_text(measured: dict[str, dict[str, Any]]) -> None:
    texts = [figures["texts"] for figures in measured.values()]
    assert texts[0] == texts[1] == texts[2]
    for length in LENGTHS:
        assert texts[0][f"{length}-first"] == texts[0][f"{length}-again"]
