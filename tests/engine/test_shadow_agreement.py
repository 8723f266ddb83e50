"""Shadow on the demo's trained pair: vLLM's own drafter and the project's worker draft alike, block for block.

Four requests at a time, until at least BLOCKS_MIN blocks were compared.  Both sides compute in float32 with the same
weights, so whatever differs is an order of summation or a defect; each mismatch is printed.  Remote drafts are the
ones verified, and the text is still that of an engine without a drafter, which says the first runs' texts again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from driver import END_S, Engine, dspark, engine_environment
from served_worker import ServedWorker
from tokenizers import Tokenizer

pytestmark = pytest.mark.engine

PAIR = Path(__file__).parents[2] / "demo" / "pair"
DRAFTS, AT_ONCE, TOKENS = 5, 4, 200
BLOCKS_MIN, RUNS_MAX, RUNS_SAID_AGAIN = 2000, 16, 2
ENGINE: dict[str, Any] = {
    "model": str(PAIR / "target"),
    "max_model_len": 512,
    "max_num_batched_tokens": 512,
    "enable_prefix_caching": False,
}
Requests = dict[str, dict[str, Any]]


def requests_of_run(number: int) -> Requests:
    """Four requests that no other run has: the pair's prompts, each cut at another place."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    prompts = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))["prompts"]
    made = {}
    for index in range(AT_ONCE):
        which = number * AT_ONCE + index
        ids = tokenizer.encode(prompts[which % len(prompts)]).ids
        length = len(ids) - 3 * (which // len(prompts))
        made[f"run{number}-{index}"] = {"prompt": ids[:length], "max_tokens": TOKENS}
    return made


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What both engines said, and the figures of the one that drafts."""
    folder = tmp_path_factory.mktemp("agreement")
    worker = ServedWorker(folder, PAIR / "drafter", PAIR / "target", ["--dtype", "float32"])
    worker.start()
    # A busy machine must not decide who drafts.
    settings = worker.settings("shadow", _SHADOW_USE="remote", _TIMEOUT_MS="5000")
    tokens: dict[str, list[int]] = {}
    try:
        with Engine(folder / "shadow.log", engine_environment(**settings)) as engine:
            speculative = dspark(PAIR / "drafter", DRAFTS)
            found = engine.start(speculative_config=speculative, max_num_seqs=AT_ONCE, **ENGINE)
            assert found["event"] == "ready", found
            assert engine.on_ranks("wait_connected", END_S / 2) == [True], engine.said()[-2000:]
            for number in range(RUNS_MAX):
                tokens |= engine.run(requests_of_run(number))["tokens"]
                figures = engine.stats()
                if figures["shadow"]["eligible"] >= BLOCKS_MIN:
                    break
            assert engine.quit() == 0
    finally:
        worker.kill()
    with Engine(folder / "plain.log", engine_environment()) as engine:
        assert engine.start(max_num_seqs=AT_ONCE, **ENGINE)["event"] == "ready"
        right = {}
        for number in range(RUNS_SAID_AGAIN):
            right |= engine.run(requests_of_run(number))["tokens"]
        assert engine.quit() == 0
    return {"tokens": tokens, "right": right, "figures": figures}


def test_remote_and_local_blocks_agree_over_thousands_of_rounds(compared: dict[str, Any]) -> None:
    shadow = compared["figures"]["shadow"]
    print(json.dumps({name: value for name, value in shadow.items() if name != "examples"}))
    for example in shadow["examples"]:
        print(json.dumps(example))
    assert shadow["eligible"] >= BLOCKS_MIN
    assert shadow["eligible_share"] >= 0.9
    assert shadow["full_block_agree_rate"] >= 0.999
    assert len(shadow["examples"]) == shadow["mismatches"], "each mismatch is listed"


def test_where_remote_drafts_are_verified_the_text_stays_the_plain_one(compared: dict[str, Any]) -> None:
    right = compared["right"]
    assert len(right) == RUNS_SAID_AGAIN * AT_ONCE
    assert {name: compared["tokens"][name] for name in right} == right
    counters = compared["figures"]["counters"]
    assert counters["rounds_failed"] == counters["rounds_some_failed"] == 0
    assert compared["figures"]["acceptance"]["accepted"] > BLOCKS_MIN
