"""Capacity policy on a real engine: whatever becomes of the worker, the text is that of an engine that never
drafts.

One engine without speculation says what is right, then one engine with a remote drafter goes through the
worker's fates in the order of the tests below.  The worker is the project's own, with a drafter that knows
the texts.
"""

import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from driver import RUN_S, Engine, dspark, engine_environment
from reference.tiny_checkpoints import BLOCK, HIDDEN, KINDS, TAPS, VOCABULARY, make_pair
from worker_process import IDENTITY, MARKOV_IDENTITY, OracleWorker

pytestmark = pytest.mark.engine

WINDOW = 23
"""Of the `sliding` kind: layers see 24 keys, so 23 rows before the anchor."""
STEP_TOKENS, LEN_MAX = 64, 256
TIMEOUT_MS = 1000
CONNECT_S = 20.0
CACHE_BLOCK = 32
"""Tokens of a block of the prefix cache."""
ENGINE: dict[str, Any] = {
    "max_model_len": LEN_MAX,
    "max_num_seqs": 4,
    "max_num_batched_tokens": STEP_TOKENS,
    "enable_prefix_caching": True,
    # 14 blocks of 32 tokens at 2 KiB a token: four long requests do not fit at once.
    "kv_cache_memory_bytes": 14 * 32 * 2048,
}
Requests = dict[str, dict[str, Any]]


def request(
    seed: int, length: int, max_tokens: int, prefix: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    """A random prompt, after a given prefix."""
    source = random.Random(seed)
    prompt = [*(prefix or []), *(source.randrange(3, VOCABULARY - 1) for _ in range(length))]
    return {"prompt": prompt, "max_tokens": max_tokens, **more}


PREFIX = request(99, 96, 0)["prompt"]
SHORT: Requests = {"alone": request(1, 20, 12)}
COUNTED: Requests = {"counted": request(42, 20, 40)}
MIXED: Requests = {
    "short": request(2, 5, 40),
    "chunked": request(3, 150, 30),
    "late": request(4, 33, 24, at_step=4),
    "one": request(5, 1, 30, at_step=2),
    "later": request(6, 70, 20, at_step=6),
}
CACHED: Requests = {"first": request(7, 8, 16, PREFIX), "second": request(8, 5, 24, PREFIX, at_step=30)}
CROWD: Requests = {f"crowd{index}": request(20 + index, 90, 48) for index in range(4)}
LONG: Requests = {"long": request(40, 30, 70), "beside": request(41, 44, 50)}
ALL = SHORT | COUNTED | MIXED | CACHED | CROWD | LONG


@dataclass
class Stage:
    """Both sides and what is right.  texts: by request, its continuation by the engine that never drafts.

    vllm: the engine's version.
    """

    engine: Engine
    worker: OracleWorker
    texts: dict[str, list[int]]
    vllm: str

    @property
    def drafts_after_the_last_token(self) -> bool:
        """Whether a request's last step asks for drafts that nobody will verify; 0.33 asks for none there."""
        return numbers(self.vllm) < (0, 33)

    def right(self, requests: Requests) -> dict[str, list[int]]:
        return {name: self.texts[name][: wanted["max_tokens"]] for name, wanted in requests.items()}

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.engine.stats()["counters"]
        return counters

    def connect(self) -> None:
        """Wait until the engine has a session."""
        until = time.monotonic() + CONNECT_S
        while not self.engine.stats()["connected"]:
            assert time.monotonic() < until, self.engine.stats()

    def changed(self, before: dict[str, int], *names: str) -> tuple[int, ...]:
        after = self.counters()
        return tuple(after[name] - before[name] for name in names)


def numbers(version: str) -> tuple[int, ...]:
    """Major and minor number."""
    return tuple(map(int, version.split(".")[:2]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Working folder, drafter folder with config.json only, target folder."""
    folder = tmp_path_factory.mktemp("capacity")
    drafter, target = make_pair(folder, KINDS["sliding"])
    (folder / "config-only").mkdir()
    shutil.copy(drafter / "config.json", folder / "config-only")
    return folder, folder / "config-only", target


@pytest.fixture(scope="module")
def plain(folders: tuple[Path, Path, Path]) -> dict[str, Any]:
    """What the engine without speculation and the overlay's settings said, and what was found of it."""
    folder, _, target = folders
    with Engine(folder / "plain.log", engine_environment()) as engine:
        found = engine.start(model=str(target), **(ENGINE | {"kv_cache_memory_bytes": 16 << 20}))
        assert found["event"] == "ready", found
        # A block more than is asked for later, so that the last drafts of a text are right ones too.
        longer = {
            name: {"prompt": wanted["prompt"], "max_tokens": wanted["max_tokens"] + BLOCK + 1}
            for name, wanted in ALL.items()
        }
        done = engine.run(longer)
        assert engine.quit() == 0
    return {"found": found, "tokens": done["tokens"]}


@pytest.fixture(scope="module")
def stage(folders: tuple[Path, Path, Path], plain: dict[str, Any]) -> Iterator[Stage]:
    """The engine that drafts remotely, started while no worker is there."""
    folder, drafter, target = folders
    texts = [ALL[name]["prompt"] + tokens for name, tokens in plain["tokens"].items()]
    shape = {
        "vocabulary": VOCABULARY,
        "row_elements": HIDDEN * len(TAPS),
        "tap_count": len(TAPS),
        "window": WINDOW,
        "max_positions": LEN_MAX,
        "block_length": BLOCK,
    }
    worker = OracleWorker(folder, shape, texts)
    environment = engine_environment(
        VLLM_DSPARK_REMOTE=worker.endpoint,
        VLLM_DSPARK_REMOTE_IDENTITY=IDENTITY,
        VLLM_DSPARK_REMOTE_MARKOV_IDENTITY=MARKOV_IDENTITY,
        VLLM_DSPARK_REMOTE_TIMEOUT_MS=str(TIMEOUT_MS),
        VLLM_DSPARK_REMOTE_RETRY_MS="100",
        VLLM_DSPARK_REMOTE_RETRY_MAX_MS="200",
        VLLM_DSPARK_REMOTE_READY_FILE=str(folder / "ready.json"),
        VLLM_DSPARK_REMOTE_STATS_FILE=str(folder / "stats.json"),
        VLLM_DSPARK_REMOTE_LOG_EVERY="1",
        VLLM_DSPARK_REMOTE_START_ID="this start",
    )
    with Engine(folder / "engine.log", environment) as engine:
        no_drop = {"disable_eagle_block_drop": True} if numbers(plain["found"]["vllm"]) >= (0, 30) else {}
        speculative = dspark(drafter, BLOCK, **no_drop)
        found = engine.start(model=str(target), speculative_config=speculative, **ENGINE)
        assert found["event"] == "ready", found
        assert found["speculator"] == "RemoteDSparkSpeculator"
        try:
            yield Stage(engine, worker, plain["tokens"], found["vllm"])
        finally:
            worker.kill()


def accepted_of(blocks: list[dict[str, Any]], requests: Requests, stage: Stage) -> list[int]:
    """What verification must make of the drafted blocks: each one's leading drafts that the text has.

    A block that a request's last step asked for is never verified.  Works on texts that share no place and token.
    """
    accepted = []
    for name, wanted in requests.items():
        text = wanted["prompt"] + stage.texts[name]
        own = [block for block in blocks if text[block["position"]] == block["anchor"]]
        right = [_right_drafts(block, text) for block in own]
        for (block, following), count in zip(pairwise(own), right, strict=False):
            assert following["position"] == block["position"] + count + 1, (name, block, following)
        accepted += right[:-1] if stage.drafts_after_the_last_token else right
    return accepted


def _right_drafts(block: dict[str, Any], text: list[int]) -> int:
    """Leading drafts of a block that the text has."""
    following = text[block["position"] + 1 :]
    wrong = [draft != token for draft, token in zip(block["drafts"], following, strict=False)]
    return [*wrong, True].index(True)


def _written(folders: tuple[Path, Path, Path]) -> dict[str, Any]:
    """The engine's stats file."""
    written: dict[str, Any] = json.loads((folders[0] / "stats.json").read_text())
    return written


def test_without_the_setting_every_object_of_vllm_is_its_own(plain: dict[str, Any]) -> None:
    found = plain["found"]
    assert found["init_speculator_of"] == "vllm.v1.worker.gpu.spec_decode"
    assert found["wrapper_methods_of"] == ["vllm.v1.worker.worker_base"]
    # The entry point's own module and its packages, and nothing that they would need to do anything.
    assert set(found["overlay_modules"]) == {
        "spark_overlay", "spark_overlay.vllm_seam", "spark_overlay.vllm_seam.plugin",
    }  # fmt: skip


def test_the_engine_says_that_it_is_ready_and_what_capacity_frees(
    stage: Stage, folders: tuple[Path, Path, Path]
) -> None:
    record = json.loads((folders[0] / "ready.json").read_text())
    assert record["start_id"] == "this start"
    assert record["endpoint"] == stage.worker.endpoint
    assert record["identity"] == IDENTITY
    assert record["versions"]["vllm"] == stage.vllm
    said = stage.engine.said()
    assert "not here: the drafter's weights, graphs and KV cache; 4 KV layers, all the target's" in said
    assert "the worker is not there yet" in said


def test_with_no_worker_from_the_start_the_text_is_the_plain_one_and_rounds_are_counted(stage: Stage) -> None:
    before = stage.counters()
    done = stage.engine.run(SHORT)
    assert done["tokens"] == stage.right(SHORT)
    # Zero drafts: one token a step.
    assert done["steps"] >= SHORT["alone"]["max_tokens"]
    failed, fine = stage.changed(before, "fallback_not_ready", "rounds_ok")
    assert failed >= SHORT["alone"]["max_tokens"] - (not stage.drafts_after_the_last_token)
    assert fine == 0
    assert stage.engine.stats()["acceptance"]["verified"] == 0


def test_once_a_worker_comes_every_right_draft_is_accepted_and_counted(stage: Stage) -> None:
    stage.worker.start()
    stage.connect()
    before = stage.counters()
    done = stage.engine.run(COUNTED)
    assert done["tokens"] == stage.right(COUNTED)
    assert stage.changed(before, "rounds_failed", "rounds_some_failed") == (0, 0)
    blocks = stage.worker.blocks()
    accepted = accepted_of(blocks, COUNTED, stage)
    assert set(accepted) > {0, BLOCK}, "blocks of all kinds were drafted, from all wrong to all right"
    acceptance = stage.engine.stats()["acceptance"]
    assert acceptance["accepted"] == sum(accepted)
    assert acceptance["verified"] == len(accepted)
    assert acceptance["accepted_by_position"] == [
        sum(count > position for count in accepted) for position in range(BLOCK)
    ]


def test_chunked_prefill_and_concurrent_requests_leave_the_text_alone(stage: Stage) -> None:
    before = stage.counters()
    done = stage.engine.run(MIXED)
    assert done["tokens"] == stage.right(MIXED)
    fine, failed, in_part = stage.changed(before, "rounds_ok", "rounds_failed", "rounds_some_failed")
    assert (failed, in_part) == (0, 0)
    assert fine >= MIXED["short"]["max_tokens"] / (BLOCK + 1)
    blocks = stage.worker.blocks()
    tokens = sum(wanted["max_tokens"] for wanted in MIXED.values())
    assert len(blocks) < tokens, "drafts were accepted, so there are fewer rounds than tokens"
    for block in blocks:
        assert block["start"] <= max(0, block["position"] - WINDOW), "every window was whole"


def test_a_prefix_cache_hit_is_drafted_from_a_partial_window_that_is_counted(stage: Stage) -> None:
    before = stage.counters()
    done = stage.engine.run(CACHED)
    # Where the setting exists no block is dropped for a drafter; 0.26 always drops one.
    assert done["cached"]["second"] == len(PREFIX) - (0 if numbers(stage.vllm) >= (0, 30) else CACHE_BLOCK)
    assert done["tokens"] == stage.right(CACHED)
    partial, failed = stage.changed(before, "partial_rounds", "rounds_failed")
    assert failed == 0
    assert partial > 0
    starts = {
        block["start"] for block in stage.worker.blocks() if block["start"] > block["position"] - WINDOW > 0
    }
    assert done["cached"]["second"] in starts


def test_preempted_requests_come_back_and_say_the_same(stage: Stage) -> None:
    before = stage.counters()
    done = stage.engine.run(CROWD)
    assert done["preemptions"] > 0
    assert done["tokens"] == stage.right(CROWD)
    assert stage.changed(before, "rounds_failed", "rounds_some_failed", "req_bad") == (0, 0, 0)


def test_a_worker_killed_in_the_middle_costs_drafts_and_one_started_again_brings_them_back(
    stage: Stage,
) -> None:
    stage.worker.blocks()
    before = stage.counters()
    assert stage.engine.run(LONG, pauses=[6, 18]) == {"event": "paused", "step": 6}
    fine, failed = stage.changed(before, "rounds_ok", "rounds_failed")
    assert fine > 0
    assert failed == 0
    stage.worker.kill()
    assert stage.engine.go() == {"event": "paused", "step": 18}
    killed = stage.changed(before, "fallback_transport_error", "fallback_not_ready", "fallback_timeout")
    assert sum(killed) >= 11
    stage.worker.start()
    stage.connect()
    middle = stage.counters()
    done = stage.engine.go()
    assert done["event"] == "finished"
    assert done["tokens"] == stage.right(LONG)
    fine, failed, resent = stage.changed(middle, "rounds_ok", "rounds_failed", "resync_rows")
    assert fine > 5
    assert failed == 0
    assert resent > WINDOW, "both requests' windows were sent again"


def test_a_frozen_worker_costs_at_most_the_deadline_a_round_and_no_text(
    stage: Stage, folders: tuple[Path, Path, Path]
) -> None:
    before = stage.counters()
    assert stage.engine.run(LONG, pauses=[6])["event"] == "paused"
    stage.worker.freeze()
    stage.engine.order(go=True)
    # The engine is inside its rounds now and answers nobody; its figures are written beside them.
    until = time.monotonic() + CONNECT_S
    while _written(folders)["counters"]["rounds_failed"] < before["rounds_failed"] + 2:
        assert time.monotonic() < until, _written(folders)
        time.sleep(0.02)
    stage.worker.thaw()
    done = stage.engine.event(RUN_S)
    assert done["event"] == "finished"
    assert done["tokens"] == stage.right(LONG)
    stats = stage.engine.stats()
    late = stats["counters"]["fallback_timeout"] + stats["counters"]["fallback_transport_error"]
    assert late > before["fallback_timeout"] + before["fallback_transport_error"]
    assert stats["latency"]["rank0_round_us"]["max"] < 1.5 * TIMEOUT_MS * 1000


def test_a_worker_of_another_identity_is_refused_and_the_engine_goes_on_without_drafts(stage: Stage) -> None:
    stage.worker.kill()
    stage.worker.start(identity="ff" * 32)
    until = time.monotonic() + CONNECT_S
    before = stage.counters()
    done = stage.engine.run(SHORT)
    while not (stats := stage.engine.stats())["disabled"]:
        assert time.monotonic() < until, stats
        done = stage.engine.run(SHORT)
    assert done["tokens"] == stage.right(SHORT)
    assert IDENTITY in stats["disabled"]
    assert "ff" * 32 in stats["disabled"]
    done = stage.engine.run(SHORT)
    assert done["tokens"] == stage.right(SHORT)
    disabled, fine = stage.changed(before, "fallback_disabled", "rounds_ok")
    assert disabled >= SHORT["alone"]["max_tokens"]
    assert fine == 0


def test_the_engine_ends_in_good_order_and_leaves_its_figures(
    stage: Stage, folders: tuple[Path, Path, Path]
) -> None:
    last = stage.engine.stats()
    assert stage.engine.quit() == 0
    written = _written(folders)
    assert written["counters"]["rounds"] == last["counters"]["rounds"]
    assert written["acceptance"] == last["acceptance"]
