"""The two gauges that say whether an engine is idle, read without Prometheus's parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from spark_overlay.http_api.gauges import GaugesError, Load, read_load

TEXT = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a {b} \\"c\\""} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""


def test_the_two_gauges_are_read_and_no_others() -> None:
    load = read_load(TEXT)
    assert load == Load(running=2, waiting=1)
    assert not load.idle
    assert str(load) == "2 running and 1 waiting"


def test_several_engine_cores_behind_one_api_are_added() -> None:
    more = (
        'vllm:num_requests_running{engine="1"} 3\nvllm:num_requests_waiting{engine="1"} 4e0 1700000000000\n'
    )
    assert read_load(TEXT + more) == Load(5, 5)


@pytest.mark.parametrize(("running", "waiting", "idle"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_idle_is_none_of_both(running: int, waiting: int, idle: bool) -> None:
    assert Load(running, waiting).idle is idle


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("", "it has no vllm:num_requests_running"),
        ("<html>vllm:num_requests_running 0</html>", "it has no vllm:num_requests_running"),
        ("vllm:num_requests_running 0.0\n", "it has no vllm:num_requests_waiting"),
        ("vllm:num_requests_running NaN\n", "vllm:num_requests_running is 'NaN', which counts nothing"),
        ("vllm:num_requests_running -1\n", "is '-1'"),
        ("vllm:num_requests_running 0.5\n", "is '0.5'"),
        ("vllm:num_requests_running +Inf\n", "is '+Inf'"),
        ("vllm:num_requests_running many\n", "is 'many'"),
    ],
)
def test_a_text_that_does_not_tell_is_refused(text: str, clause: str) -> None:
    with pytest.raises(GaugesError) as caught:
        read_load(text)
    assert clause in str(caught.value)


@given(
    st.lists(
        st.tuples(st.text(max_size=12), st.integers(0, 10**6), st.integers(0, 10**6)),
        min_size=1,
        max_size=3,
        unique_by=lambda entry: entry[0],
    )
)
def test_whatever_the_labels_hold_the_gauges_are_those_that_prometheus_wrote(
    engines: list[tuple[str, int, int]],
) -> None:
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "a\nb", ["model_name"], registry=registry)
    waiting = Gauge("vllm:num_requests_waiting", "c", ["model_name"], registry=registry)
    for name, some, others in engines:
        running.labels(name).set(some)
        waiting.labels(name).set(others)
    load = read_load(generate_latest(registry).decode())
    assert load == Load(sum(one[1] for one in engines), sum(one[2] for one in engines))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_load(text)
    except GaugesError:
        return
    assert "vllm:num_requests_running" in text
