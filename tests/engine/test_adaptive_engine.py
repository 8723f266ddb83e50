"""A real engine that adapts its verification to remote drafts: it says the plain text, with fewer drafts verified."""

import json
import sys
from pathlib import Path

import pytest
from adaptive_process import TOKEN_MS, VERIFY_MS
from driver import Engine, dspark, engine_environment
from served_worker import ServedWorker
from tokenizers import Tokenizer

pytestmark = pytest.mark.engine

PAIR = Path(__file__).parents[2] / "demo" / "pair"
"""It really accepts drafts, more of the first than of the last."""
BLOCK, TOKENS, DRAFT_MS = 5, 60, 4.0
ENGINE = {"max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 256}
ADAPTS = [sys.executable, str(Path(__file__).with_name("adaptive_process.py"))]


@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_an_engine_that_trims_remote_drafts_says_the_plain_text_and_counts_what_it_verified(
    tmp_path: Path, policy: str
) -> None:
    texts = json.loads((PAIR / "prompts.json").read_text())["prompts"][:3]
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    requests = {
        f"r{at}": {"prompt": tokenizer.encode(text).ids, "max_tokens": TOKENS}
        for at, text in enumerate(texts)
    }
    with Engine(tmp_path / "plain.log", engine_environment()) as engine:
        assert engine.start(model=str(PAIR / "target"), **ENGINE)["event"] == "ready"
        right = engine.run(requests)["tokens"]
        engine.quit()
    worker = ServedWorker(tmp_path, PAIR / "drafter", PAIR / "target", ["--dtype", "float32"])
    worker.start()
    environment = engine_environment(
        **worker.settings(policy, _TIMEOUT_MS="20000", _DRAFT_MS=str(DRAFT_MS)),
    )
    try:
        with Engine(tmp_path / "engine.log", environment, ADAPTS) as engine:
            found = engine.start(
                model=str(PAIR / "target"),
                speculative_config=dspark(PAIR / "drafter", BLOCK, enable_adaptive_verification=True),
                **ENGINE,
            )
            assert found["event"] == "ready", found
            assert engine.on_ranks("wait_connected", 20.0) == [True]
            assert engine.run(requests)["tokens"] == right
            stats = engine.stats()
            (adapted,) = engine.on_ranks("adapted")
            engine.quit()
    finally:
        worker.kill()
    assert adapted["draft_ms"] == [DRAFT_MS] * (ENGINE["max_num_seqs"] + 1)
    assert adapted["verify_ms"][:3] == [VERIFY_MS + TOKEN_MS * tokens for tokens in range(3)]
    scheduled, verified = (sum(column) for column in zip(*adapted["seen"], strict=True))
    assert 0 < verified < scheduled
    assert any(0 < chosen < given for given, chosen in adapted["seen"]), "some step was trimmed, not emptied"
    counters, acceptance = stats["counters"], stats["acceptance"]
    assert counters["rounds_ok"] == counters["rounds"] > 0
    # What the seam took for verified is what the manager chose; a request's last drafts are verified by nobody.
    assert acceptance["drafted"] == verified
    assert acceptance["accepted"] > 0
