"""Counters of /metrics as typed values: read through Prometheus's own parser, added over cores, compared in time."""

import pytest
from fake_engine_http import Planted, fake_engine
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.http_api.api import EngineApi
from spark_overlay.http_api.counters import EngineCounters, observe, read_counters
from spark_overlay.http_api.errors import EngineReplyInvalid
from spark_overlay.http_api.gauges import Load

TEXT = """# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0"} 10.0
vllm:spec_decode_num_drafts_total{engine="1"} 2.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 50.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 10.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"} 11.0
vllm:inter_token_latency_seconds_count{engine="0"} 11.0
vllm:inter_token_latency_seconds_sum{engine="0"} 0.5
"""


def test_counters_of_all_cores_are_added_and_what_is_not_there_is_nought() -> None:
    counters = read_counters(TEXT)
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (12, 50, 30)
    assert (counters.decode_steps, counters.decode_s) == (11, 0.5)
    assert counters.accepted_by_position == (20, 10)
    assert counters.prefix_cache_hits == 0
    assert counters.speculative


def test_an_engine_without_speculation_is_told_from_one_that_drafted_nothing() -> None:
    assert not read_counters("vllm:prompt_tokens_total 3.0\n").speculative
    assert read_counters("vllm:spec_decode_num_drafts_total 0.0\n").speculative


def test_the_difference_of_two_readings_is_what_was_counted_between() -> None:
    before = EngineCounters(drafts=1, decode_s=0.25, accepted_by_position=(1,), speculative=True)
    after = EngineCounters(drafts=4, decode_s=1.0, accepted_by_position=(3, 2), speculative=True)
    assert after.since(before) == EngineCounters(
        drafts=3, decode_s=0.75, accepted_by_position=(2, 2), speculative=True
    )


def test_load_and_counters_come_from_one_reading() -> None:
    with fake_engine(Planted(running=1, waiting=2)) as engine:
        load, counters = observe(EngineApi(engine.url))
    assert load == Load(1, 2)
    assert counters == EngineCounters(accepted_by_position=(0.0,) * 5, speculative=True)


GAUGES = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("<html>", "it has no vllm:num_requests_running"),
        (GAUGES + "x{ 1\n", "not Prometheus's text format"),
        (
            GAUGES + 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="999999999"} 1\n',
            "draft position 999999999",
        ),
        (GAUGES + "vllm:spec_decode_num_accepted_tokens_per_pos_total 1\n", "'position'"),
    ],
)
def test_another_text_than_metrics_is_refused_by_the_address(text: str, clause: str) -> None:
    with fake_engine(Planted(metrics=text)) as engine, pytest.raises(EngineReplyInvalid) as caught:
        observe(EngineApi(engine.url))
    assert f"{engine.url}/metrics: " in str(caught.value)
    assert clause in str(caught.value)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_any_counts_are_read_as_they_are_written(drafts: int, hits: int) -> None:
    text = f"vllm:spec_decode_num_drafts_total {drafts}.0\nvllm:prefix_cache_hits_total {float(hits)}\n"
    counters = read_counters(text)
    assert (counters.drafts, counters.prefix_cache_hits) == (drafts, hits)
