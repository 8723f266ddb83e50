"""vLLM's default way of running, several processes, started through the overlay's launcher as an operator would."""

import shutil
import sys
from pathlib import Path

import pytest
from driver import Engine, dspark, engine_environment
from reference.tiny_checkpoints import BLOCK, HIDDEN, KINDS, TAPS, VOCABULARY, make_pair
from spark_overlay.readiness import read_record
from worker_process import IDENTITY, MARKOV_IDENTITY, OracleWorker

pytestmark = pytest.mark.engine

LEN_MAX, TOKENS = 128, 24
ENGINE = {"max_model_len": LEN_MAX, "max_num_seqs": 2, "max_num_batched_tokens": 64}
REQUESTS = {
    "a": {"prompt": [5, 81, 300, 17], "max_tokens": TOKENS},
    "b": {"prompt": [400, 33, 9, 9, 250, 77], "max_tokens": TOKENS},
}


def launcher(*options: str) -> list[str]:
    """The front of a launched command."""
    return [str(Path(sys.executable).with_name("spark-overlay")), "launch", *options, "--"]


def test_a_launched_engine_of_several_processes_is_ready_drafts_and_says_the_plain_text(
    tmp_path: Path,
) -> None:
    drafter, target = make_pair(tmp_path, KINDS["sliding"])
    (tmp_path / "config-only").mkdir()
    shutil.copy(drafter / "config.json", tmp_path / "config-only")
    with Engine(tmp_path / "plain.log", engine_environment()) as engine:
        assert engine.start(model=str(target), **ENGINE)["event"] == "ready"
        right = engine.run(REQUESTS)["tokens"]
        engine.quit()

    shape = {
        "vocabulary": VOCABULARY, "row_elements": HIDDEN * len(TAPS), "tap_count": len(TAPS), "window": 23,
        "max_positions": LEN_MAX, "block_length": BLOCK,
    }  # fmt: skip
    texts = [[*REQUESTS[name]["prompt"], *tokens] for name, tokens in right.items()]
    worker = OracleWorker(tmp_path, shape, texts)
    worker.start()
    environment = engine_environment(
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
        VLLM_DSPARK_REMOTE=worker.endpoint,
        VLLM_DSPARK_REMOTE_IDENTITY=IDENTITY,
        VLLM_DSPARK_REMOTE_MARKOV_IDENTITY=MARKOV_IDENTITY,
        VLLM_DSPARK_REMOTE_TIMEOUT_MS="1000",
        VLLM_DSPARK_REMOTE_READY_FILE=str(tmp_path / "ready.json"),
    )
    try:
        with Engine(tmp_path / "engine.log", environment, launcher("--start-id", "s42")) as engine:
            found = engine.start(
                model=str(target), speculative_config=dspark(tmp_path / "config-only", BLOCK),
                distributed_executor_backend=None, **ENGINE,
            )  # fmt: skip
            assert found["event"] == "ready", found
            record = read_record(tmp_path / "ready.json")
            assert record is not None
            assert record.start_id == "s42"
            assert record.pid not in (found["pid"], engine.process.pid), (
                "another process holds the speculator"
            )
            assert engine.run(REQUESTS)["tokens"] == right
            assert len(worker.blocks()) > 0
            assert (
                f"process {record.pid} has the remote drafter (capacity) in place; the worker is connected"
                in (engine.said())
            )
            assert engine.quit() == 0
    finally:
        worker.kill()


def test_an_engine_that_is_refused_ends_the_launcher_with_its_sentence(tmp_path: Path) -> None:
    _, target = make_pair(tmp_path, KINDS["sliding"])
    environment = engine_environment(
        VLLM_DSPARK_REMOTE="tcp://127.0.0.1:9",
        VLLM_DSPARK_REMOTE_IDENTITY=IDENTITY,
        VLLM_DSPARK_REMOTE_MARKOV_IDENTITY=MARKOV_IDENTITY,
    )
    with Engine(tmp_path / "engine.log", environment, launcher()) as engine:
        answer = engine.start(model=str(target), **ENGINE)
        assert "speculative_config is missing" in answer["text"]
        assert engine.quit() == 3
        *_, last = engine.said().splitlines()
        assert (
            "ended with status 0 before the remote drafter was in place: speculative_config is missing"
            in last
        )
