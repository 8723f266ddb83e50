"""Shadow and resilience on real engines: the local drafter really loaded, the project's own worker with the same
weights.

An engine without speculation says what is right, and a stock engine that drafts with the same weights says in how
many steps.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from driver import END_S, Engine, dspark, engine_environment
from reference.tiny_checkpoints import BLOCK, DRAFTER_LAYERS, KINDS, TARGET_LAYERS, VOCABULARY, make_pair
from served_worker import ServedWorker

pytestmark = pytest.mark.engine

ENGINE: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 16 << 20,
}
TIMEOUT_MS = "5000"
"""A busy machine must not decide who drafts."""


def request(seed: int, length: int, max_tokens: int, **more: Any) -> dict[str, Any]:
    source = random.Random(seed)
    prompt = [source.randrange(3, VOCABULARY - 1) for _ in range(length)]
    return {"prompt": prompt, "max_tokens": max_tokens, **more}


REQUESTS = {
    "short": request(2, 5, 40),
    "chunked": request(3, 100, 30),
    "late": request(4, 33, 24, at_step=4),
    "one": request(5, 1, 30, at_step=2),
}


@dataclass
class Stage:
    """tokens, steps: of a stock engine with the same drafter.  right: tokens of an engine without one."""

    folder: Path
    drafter: Path
    target: Path
    worker: ServedWorker
    right: dict[str, list[int]]
    tokens: dict[str, list[int]]
    steps: int

    def engine(self, policy: str, **more: str) -> Engine:
        settings = self.worker.settings(
            policy, _TIMEOUT_MS=TIMEOUT_MS, _RETRY_MS="100", _RETRY_MAX_MS="200", **more
        )
        return Engine(self.folder / f"{policy}.log", engine_environment(**settings))

    def start(self, engine: Engine, **more: Any) -> dict[str, Any]:
        speculative = dspark(self.drafter, BLOCK)
        return engine.start(model=str(self.target), speculative_config=speculative, **(ENGINE | more))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("policies")
    drafter, target = make_pair(folder, KINDS["sliding"])
    done = []
    for speculative in (None, dspark(drafter, BLOCK)):
        with Engine(folder / "stock.log", engine_environment()) as engine:
            found = engine.start(model=str(target), speculative_config=speculative, **ENGINE)
            assert found["event"] == "ready", found
            done.append(engine.run(REQUESTS))
            assert engine.quit() == 0
    plain, stock = done
    worker = ServedWorker(folder, drafter, target)
    yield Stage(folder, drafter, target, worker, plain["tokens"], stock["tokens"], stock["steps"])
    worker.kill()


def connected(engine: Engine) -> None:
    assert engine.on_ranks("wait_connected", END_S / 2) == [True], engine.said()[-2000:]


def test_the_stock_engine_is_a_judge_worth_asking(stage: Stage) -> None:
    assert stage.tokens == stage.right
    assert stage.steps < max(len(tokens) for tokens in stage.right.values()) + 10


@pytest.mark.parametrize("use", ["local", "remote"])
def test_in_shadow_both_draft_alike_and_the_text_is_the_plain_one(stage: Stage, use: str) -> None:
    stage.worker.start()
    with stage.engine("shadow", _SHADOW_USE=use) as engine:
        ready = stage.start(engine)
        assert ready["event"] == "ready", ready
        assert ready["speculator"] == "RemoteAndLocalDSparkSpeculator"
        connected(engine)
        done = engine.run(REQUESTS)
        figures = engine.stats()
        assert engine.quit() == 0
    stage.worker.kill()
    assert done["tokens"] == stage.right
    assert done["steps"] == stage.steps
    counters, shadow = figures["counters"], figures["shadow"]
    assert counters["rounds_failed"] == 0
    assert counters["local_fallback_rounds"] == 0
    assert shadow["eligible"] >= 40
    assert shadow["mismatches"] == shadow["near_ties"]
    assert shadow["full_block_agree_rate"] > 0.95
    # Only remote drafts that were verified count as accepted ones.
    assert (figures["acceptance"]["drafted"] > 0) == (use == "remote")
    assert figures["latency"]["local_propose_us"]["count"] == counters["rounds"]


def test_the_local_drafter_is_kept_measured_and_said_to_be(stage: Stage) -> None:
    with stage.engine("resilience") as engine:
        assert stage.start(engine)["event"] == "ready"
        (held,) = engine.on_ranks("memory")
        memory = engine.stats()["memory"]
        said = engine.said()
        assert engine.quit() == 0
    assert memory["kv_draft_layers"] == DRAFTER_LAYERS
    assert memory["kv_target_layers"] == TARGET_LAYERS
    assert memory["target_parameter_bytes"] == held["target_parameter_bytes"]
    assert memory["drafter_parameter_bytes"] == held["drafter_parameter_bytes"] > 0
    assert memory["kv_blocks"] == held["kv_blocks"]
    # Layers of this pair hold 2 heads of 32 float32 for key and value alike; a block is 32 tokens.
    page = 2 * 2 * 32 * 4 * 32
    assert memory["kv_target_page_bytes"] == TARGET_LAYERS * page
    assert memory["kv_draft_page_bytes"] == DRAFTER_LAYERS * page
    # Windowed and full layers are groups of their own, and take turns in blocks as large as the larger group's.
    assert memory["kv_groups"] == 2
    assert memory["kv_block_bytes"] == TARGET_LAYERS * page
    assert (
        memory["kv_blocks"] * memory["kv_block_bytes"]
        == memory["kv_bytes"]
        == ENGINE["kv_cache_memory_bytes"]
    )
    assert "kept for policy resilience: the local drafter's" in said


def test_resilience_without_a_worker_is_local_drafting(stage: Stage) -> None:
    with stage.engine("resilience") as engine:
        assert stage.start(engine)["event"] == "ready"
        done = engine.run(REQUESTS)
        figures = engine.stats()
        assert engine.quit() == 0
    assert (done["tokens"], done["steps"]) == (stage.right, stage.steps)
    counters = figures["counters"]
    assert counters["rounds_ok"] == 0
    # vLLM 0.33 wants no drafts in a step that every request ends with.
    assert counters["fallback_not_ready"] == counters["rounds"] - counters["rounds_append_only"] > 0
    assert 0 < counters["local_fallback_rounds"] <= counters["rounds"]
    assert figures["acceptance"]["drafted"] == 0


def test_resilience_drafts_remotely_and_goes_on_locally_where_the_worker_dies_in_the_middle(
    stage: Stage,
) -> None:
    """The local context was kept all along, so no draft is worse for the change."""
    stage.worker.start()
    with stage.engine("resilience") as engine:
        assert stage.start(engine)["event"] == "ready"
        connected(engine)
        event = engine.order(run=REQUESTS, pauses=[8, 16]) or engine.event(END_S)
        assert event["event"] == "paused"
        before = engine.stats()["counters"]
        stage.worker.kill()
        assert engine.go()["event"] == "paused"
        alone = engine.stats()["counters"]
        stage.worker.start()
        connected(engine)
        done = engine.go()
        after = engine.stats()["counters"]
        assert engine.quit() == 0
    stage.worker.kill()
    assert (done["tokens"], done["steps"]) == (stage.right, stage.steps)
    assert before["local_fallback_rounds"] == 0
    assert before["rounds_ok"] > 0
    assert alone["local_fallback_rounds"] > 0
    assert after["rounds_ok"] > alone["rounds_ok"]
