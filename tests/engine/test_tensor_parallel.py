"""Two ranks that draft together: rank 0 alone talks, all do alike, and whatever the scheduler does the text is the
plain one.

The schedules that vLLM knows are all in one engine: prompts in chunks, hits of the prefix cache, preemptions, and
fewer drafts where more requests run (`num_speculative_tokens_per_batch_size`).  One rank with a local drafter goes
through the same, since capacity on one rank is in test_capacity.py.
"""

import os
import select
from collections.abc import Iterator
from typing import Any

import pytest
from driver import END_S
from reference.tiny_checkpoints import BLOCK
from stages import (
    WINDOW,
    Pair,
    Requests,
    Stage,
    TextsByRanks,
    drafting_stage,
    make_request,
    make_tiny_pair,
    texts_by_ranks,
)

pytestmark = pytest.mark.engine

ENGINE: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": True,
}
PLAIN = ENGINE | {"kv_cache_memory_bytes": 16 << 20}
FEW = 2
SCHEDULE = [(1, 2, BLOCK), (3, 4, FEW)]
"""All drafts for up to two running requests, few for more."""
PREFIX = make_request(99, 96, 0)["prompt"]
ALONE: Requests = {"alone": make_request(1, 20, 20)}
CHUNKED: Requests = {"short": make_request(2, 5, 30), "chunked": make_request(3, 150, 20)}
CACHED: Requests = {
    "first": make_request(7, 8, 12, PREFIX),
    "second": make_request(8, 5, 16, PREFIX, at_step=24),
}
CROWD: Requests = {f"crowd{index}": make_request(20 + index, 70, 40) for index in range(4)}
ALL = ALONE | CHUNKED | CACHED | CROWD
TIMEOUT_MS = "5000"
"""A busy machine must not decide who drafts."""
SETUPS = [("resilience", 1), ("capacity", 2)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_tiny_pair(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> TextsByRanks:
    return texts_by_ranks(pair, ALL, **PLAIN)


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: f"{setup[0]}-tp{setup[1]}")
def stage(request: pytest.FixtureRequest, pair: Pair, plain: TextsByRanks) -> Iterator[Stage]:
    policy, ranks = request.param
    # Room for 320 tokens of the target on each rank: four requests of 110 do not fit.  The drafter's layers, where
    # they are, take blocks of the same pool.
    blocks = 10 if policy == "capacity" else 20
    settings = {"POLICY": policy, "TIMEOUT_MS": TIMEOUT_MS}
    room = ENGINE | {"kv_cache_memory_bytes": blocks * 32 * 2048 // ranks}
    made = drafting_stage(
        pair, plain(ranks), ALL, name=f"{policy}-{ranks}", ranks=ranks, local_weights=policy != "capacity",
        settings=settings, engine=room, worker_first=True,
        speculative={
            "num_speculative_tokens_per_batch_size": SCHEDULE,
            "disable_eagle_block_drop": policy == "capacity",
        },
    )  # fmt: skip
    with made as stage:
        stage.connect()
        yield stage


def test_rank_0_alone_has_a_drafter_and_a_session(stage: Stage) -> None:
    figures = stage.engine.on_ranks("figures")
    assert figures[0]["connected"]
    assert figures[0]["counters"]["hellos"] == 1
    assert figures[1:] == [None] * (len(figures) - 1)
    assert stage.worker.sessions_opened() == 1


def run(stage: Stage, requests: Requests) -> tuple[dict[str, Any], dict[str, int]]:
    """The run's end, its text compared, and the counters that grew; no round may fail."""
    before = stage.counters()
    done = stage.engine.run(requests)
    assert done["event"] == "finished", done
    assert done["tokens"] == stage.right(requests)
    grown = stage.grown(before)
    assert not {name for name in grown if "failed" in name or name.startswith(("fallback_", "req_status_"))}
    assert grown["rounds_ok"] > 0
    return done, grown


def test_a_request_alone_is_drafted_for_in_full(stage: Stage) -> None:
    stage.worker.blocks()
    done, grown = run(stage, ALONE)
    assert done["steps"] < ALONE["alone"]["max_tokens"], "drafts were accepted"
    assert "rounds_n_out_cut" not in grown
    assert {len(block["drafts"]) for block in stage.worker.blocks()} == {BLOCK}


def test_prompts_in_chunks_leave_the_text_alone(stage: Stage) -> None:
    run(stage, CHUNKED)
    assert all(block["start"] <= max(0, block["position"] - WINDOW) for block in stage.worker.blocks())


def test_a_hit_of_the_prefix_cache_is_drafted_from_the_rows_that_come_after_it(stage: Stage) -> None:
    done, grown = run(stage, CACHED)
    cached = done["cached"]["second"]
    # A local drafter's KV needs the trailing block dropped, which leaves more rows to compute than a window has.
    assert cached == (len(PREFIX) if stage.engine.stats()["policy"] == "capacity" else len(PREFIX) - 32)
    assert ("partial_rounds" in grown) == (len(CACHED["second"]["prompt"]) - cached < WINDOW)


def test_preempted_requests_say_the_same_and_where_many_run_few_drafts_are_asked_for(stage: Stage) -> None:
    stage.worker.blocks()
    done, grown = run(stage, CROWD)
    assert done["preemptions"] > 0
    assert grown["rounds_n_out_cut"] > 0
    lengths = {len(block["drafts"]) for block in stage.worker.blocks()}
    assert FEW in lengths
    assert max(lengths) <= BLOCK
    figures = stage.engine.stats()
    assert figures["n_out_by_reqs"] == [0, BLOCK, BLOCK, FEW, FEW]


@pytest.mark.parametrize("ranks", [1, 2])
def test_where_the_operator_wants_it_a_failed_round_ends_every_rank_with_its_sentence(
    pair: Pair, plain: TextsByRanks, ranks: int
) -> None:
    sentence = "a round failed and the setting is to stop on that"
    made = drafting_stage(
        pair, plain(ranks), ALL, name=f"raise-{ranks}", ranks=ranks, local_weights=False,
        settings={"ON_FAIL": "raise", "TIMEOUT_MS": TIMEOUT_MS}, engine=PLAIN, worker_first=True,
    )  # fmt: skip
    with made as stage:
        processes = [os.pidfd_open(rank["pid"]) for rank in stage.found["ranks"]]
        assert stage.engine.run(ALONE, pauses=[5])["event"] == "paused"
        stage.worker.kill()
        event = stage.engine.go()
        assert event["event"] == "failed", event
        assert sentence in event["text"]
        stage.engine.quit()
        for process in processes:
            assert select.select([process], [], [], END_S)[0], "the rank lives on"
            os.close(process)
        if ranks == 2:
            said = stage.engine.said().splitlines()
            for rank in stage.found["ranks"]:
                own = [line for line in said if f"pid={rank['pid']}" in line]
                assert any(sentence in line for line in own), f"rank {rank['rank']} ended for another reason"
