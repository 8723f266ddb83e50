"""The calls of an engine's API against a server that speaks it, and against ones that do not."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from fake_engine_http import Planted, fake_engine
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.http_api.api import Asked, EngineApi
from spark_overlay.http_api.errors import (
    EngineApiError,
    EngineRefused,
    EngineReplyInvalid,
    EngineTimedOut,
    EngineUnreachable,
)
from spark_overlay.http_api.gauges import Load
from spark_overlay.http_api.replies import Model, StreamReader, Usage

ASKED = Asked(prompt=(0, 5, 6), max_tokens=9, timeout_s=20.0, cache_salt="salt")


def test_the_short_calls_say_what_the_engine_says() -> None:
    with fake_engine() as engine:
        api = EngineApi(f"{engine.url}/v1")
        api.health()
        assert api.models() == (Model("tiny", 1024),)
        assert api.model() == api.model("tiny") == Model("tiny", 1024)
        assert api.load() == Load(0, 0)
        assert api.tokenize("tiny", "one three") == [0, 4, 6]


def test_a_stream_has_the_time_and_the_tokens_of_each_step() -> None:
    with fake_engine(Planted(accepted=3, first_s=0.05, step_s=0.02)) as engine:
        streamed = EngineApi(engine.url).stream("tiny", ASKED)
    assert [chunk.tokens for chunk in streamed.chunks] == [1, 4, 4]
    assert streamed.usage == Usage(prompt_tokens=3, completion_tokens=9, cached_tokens=None)
    assert streamed.finish_reason == "length"
    times = [chunk.at_s for chunk in streamed.chunks]
    assert streamed.first_token_s == times[0] >= 0.05
    assert times == sorted(times)
    assert times[2] >= 0.09, "each step after the first took 20 ms or more"


def test_it_asks_for_exactly_so_many_tokens_greedily_and_apart_from_the_cache() -> None:
    with fake_engine(Planted(cached=2)) as engine:
        reply = EngineApi(engine.url).complete("tiny", ASKED)
        (asked,) = engine.requests
    assert reply.text == " word" * 9
    assert reply.usage.cached_tokens == 2
    assert asked == {
        "model": "tiny",
        "prompt": [0, 5, 6],
        "max_tokens": 9,
        "min_tokens": 9,
        "ignore_eos": True,
        "temperature": 0.0,
        "cache_salt": "salt",
    }


def test_the_key_goes_with_every_call_and_a_wrong_one_is_said() -> None:
    with fake_engine(Planted(key="right")) as engine:
        assert EngineApi(engine.url, key="right").stream("tiny", ASKED).usage.completion_tokens == 9
        with pytest.raises(EngineRefused, match="HTTP 401"):
            EngineApi(engine.url, key="wrong").complete("tiny", ASKED)
        with pytest.raises(EngineRefused) as caught:
            EngineApi(engine.url).stream("tiny", ASKED)
        assert caught.value.status == 401


def test_a_model_must_be_told_where_there_are_several() -> None:
    with fake_engine(Planted(models=("a", "b"), max_model_len=None)) as engine:
        api = EngineApi(engine.url)
        assert api.model("b") == Model("b", None)
        with pytest.raises(EngineReplyInvalid, match="the models are: a, b; --model must name one of them"):
            api.model()
        with pytest.raises(EngineReplyInvalid, match="'c' is not one of them"):
            api.model("c")


def test_a_refusal_has_its_status_and_its_words_in_one_line() -> None:
    said = "too\nlong \x1b[31m" + "x" * 1000
    with fake_engine(Planted(status=400, said=said)) as engine, pytest.raises(EngineRefused) as caught:
        EngineApi(engine.url).complete("tiny", ASKED)
    assert caught.value.status == 400
    assert f"{engine.url}/v1/completions: HTTP 400: " in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_nobody_there_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineUnreachable, match="Connection refused"):
            EngineApi(url).health()


@pytest.mark.parametrize(
    ("planted", "clause"),
    [
        (Planted(cut_after=2), "the connection was lost in the middle of the reply"),
        (Planted(error_after=1), "the stream ended in an error: EngineCore died"),
    ],
)
def test_a_stream_that_breaks_off_is_no_result(planted: Planted, clause: str) -> None:
    with fake_engine(planted) as engine, pytest.raises(EngineApiError) as caught:
        EngineApi(engine.url).stream("tiny", ASKED)
    assert clause in str(caught.value) or "the stream ended before its [DONE]" in str(caught.value)


@contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and answers as it likes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                taken, _ = listener.accept()
                with taken, suppress(OSError):
                    taken.recv(1 << 16)
                    answer(taken)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
            assert not thread.is_alive()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


def drip(taken: socket.socket) -> None:
    """A byte now and then: a timeout of each read would never pass."""
    taken.sendall(HEAD)
    for _ in range(400):
        taken.sendall(b" ")
        time.sleep(0.05)


def silent(taken: socket.socket) -> None:
    taken.recv(1)  # until the other side gives up


@pytest.mark.parametrize("answer", [drip, silent])
def test_the_deadline_holds_for_the_whole_call(answer: Callable[[socket.socket], None]) -> None:
    start_s = time.monotonic()
    with raw_server(answer) as url, pytest.raises(EngineTimedOut, match=r"no whole answer within 0\.5 s"):
        EngineApi(url, timeout_s=0.5).health()
    assert time.monotonic() - start_s < 15, "the server would have gone on for 20 s"


@pytest.mark.parametrize(
    ("data", "kind", "clause"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", EngineReplyInvalid, "not HTTP as it should be"),
        (b"", EngineUnreachable, "Remote end closed"),
        (HEAD + b"{", EngineUnreachable, "lost in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]", EngineReplyInvalid, "the reply is not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", EngineReplyInvalid, "the reply has no data"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"data":',
            EngineReplyInvalid,
            "the reply is not JSON",
        ),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"data":7}',
            EngineReplyInvalid,
            "data of the reply is no list",
        ),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{"data":[{"id":"a","max_model_len":true}]}'[:-2]
            + b"]}",
            EngineReplyInvalid,
            "max_model_len of the reply is no int",
        ),
    ],
)
def test_whatever_comes_is_one_typed_sentence(data: bytes, kind: type[EngineApiError], clause: str) -> None:
    data = data.replace(b"Length: 40", b"Length: %d" % (len(data.partition(b"\r\n\r\n")[2])))
    with raw_server(lambda taken: taken.sendall(data)) as url, pytest.raises(kind) as caught:
        EngineApi(url).models()
    assert clause in str(caught.value)
    assert url in str(caught.value)


EVENT = {"choices": [{"index": 0, "text": "a", "token_ids": [1], "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


def read(*events: object, done: bool = True) -> StreamReader:
    reader = StreamReader("http://e")
    for at, event in enumerate(events):
        reader.line(float(at), b"data: " + json.dumps(event).encode())
        reader.line(float(at), b"\n")
    if done:
        reader.line(9.0, b"data: [DONE]\r\n")
    return reader


@pytest.mark.parametrize(
    ("reader", "clause"),
    [
        (lambda: read(EVENT, USAGE, done=False), "the stream ended before its [DONE]"),
        (lambda: read(USAGE), "the stream brought no token"),
        (lambda: read({"choices": [{"text": "a"}]}, USAGE), "the stream has no finish_reason"),
        (lambda: read(EVENT), "the stream has no usage"),
        (lambda: read({"choices": [{}]}), "the reply has no choices.0.text"),
        (lambda: read({}), "the reply has no choices"),
        (lambda: read(3), "the reply has no choices"),
        (lambda: read(EVENT, {"choices": [], "usage": {}}), "the reply has no usage.prompt_tokens"),
    ],
)
def test_a_stream_that_is_not_whole_says_what_it_lacks(
    reader: Callable[[], StreamReader], clause: str
) -> None:
    with pytest.raises(EngineReplyInvalid) as caught:
        reader().result()
    assert clause in str(caught.value)


def test_without_token_ids_a_chunk_is_one_with_text_and_its_tokens_are_unknown() -> None:
    empty = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    streamed = read({"choices": [{"text": "ab"}]}, empty, USAGE).result()
    assert [(chunk.at_s, chunk.tokens) for chunk in streamed.chunks] == [(0.0, None)]


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "text", "usage", "error", "token_ids", "finish_reason"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.lists(JSON | st.just(EVENT) | st.just(USAGE), max_size=5), st.booleans())
def test_any_events_are_a_whole_stream_or_a_typed_error(events: list[object], done: bool) -> None:
    try:
        streamed = read(*events, done=done).result()
    except EngineApiError:
        return
    assert streamed.chunks


@given(st.binary(max_size=60))
def test_any_line_is_taken_or_a_typed_error(line: bytes) -> None:
    with suppress(EngineApiError):
        StreamReader("http://e").line(0.0, b"data: " + line)


def test_an_https_address_of_a_server_without_tls_is_said() -> None:
    with fake_engine() as engine, pytest.raises(EngineUnreachable, match="TLS failed"):
        EngineApi(engine.url.replace("http:", "https:")).health()
