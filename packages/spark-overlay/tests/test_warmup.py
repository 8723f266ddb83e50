"""`warmup` sends prompts of exact lengths and is content only with what it asked for."""

import json
import socket
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_engine_http import FakeEngine, Planted, fake_engine
from spark_overlay.cli import main
from spark_overlay.http_api.replies import Model
from spark_overlay.warmup import WarmupFailed, plan


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["warmup", *arguments])


def asked(engine: FakeEngine) -> list[tuple[int, int]]:
    """Prompt and completion tokens of each request."""
    return [(len(request["prompt"]), request["max_tokens"]) for request in engine.requests]


def test_short_and_long_prompts_are_sent_and_what_came_back_is_told() -> None:
    with fake_engine() as engine:
        done = run("--url", engine.url, "--tokens", "20,900", "--generate", "10")
    assert done.exit_code == 0, done.output
    assert asked(engine) == [(20, 10), (900, 10)]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("prompt of 20 tokens, 10 generated: first token after 0.")
    assert lines[-1] == "warm: 2 prompts were read and answered as asked"
    assert all(request["ignore_eos"] and request["min_tokens"] == 10 for request in engine.requests)


def test_prompts_are_new_each_time() -> None:
    with fake_engine() as engine:
        for _ in range(2):
            assert run("--url", engine.url, "--tokens", "300,301").exit_code == 0
    prompts = {tuple(request["prompt"][:16]) for request in engine.requests}
    salts = [request["cache_salt"] for request in engine.requests]
    assert len(prompts) == 4
    assert len(set(salts)) == 2


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (1024, (64, 992)),
        (4096, (64, 2048, 4064)),
        (300_000, (64, 2048, 32768)),
        (64, (32,)),
        (33, (1,)),
    ],
)
def test_without_tokens_the_engines_longest_sequence_decides(longest: int, expected: tuple[int, ...]) -> None:
    assert plan(Model("m", longest), None, 32, 1.0).prompt_tokens == expected


def test_by_default_the_longest_prompt_fits_the_engine() -> None:
    with fake_engine() as engine:
        assert run("--url", engine.url).exit_code == 0
    assert asked(engine) == [(64, 32), (992, 32)]


@pytest.mark.parametrize(
    ("model", "tokens", "clause"),
    [
        (Model("m", None), None, "does not tell max_model_len in /v1/models: --tokens must be given"),
        (Model("m", 32), None, "1 prompt tokens and 32 generated ones are more than the 32 tokens"),
        (Model("m", 100), (69,), "69 prompt tokens and 32 generated ones are more than the 100 tokens"),
    ],
)
def test_what_the_engine_could_not_take_is_refused_before_anything_is_sent(
    model: Model, tokens: tuple[int, ...] | None, clause: str
) -> None:
    with pytest.raises(WarmupFailed) as caught:
        plan(model, tokens, 32, 1.0)
    assert clause in str(caught.value)


@pytest.mark.parametrize(
    ("planted", "clause"),
    [
        (Planted(fewer=3), "32 tokens were asked for and 29 generated (finish_reason length"),
        (Planted(prompt_off=1), "a prompt of 50 tokens was counted as 51"),
        (Planted(cached=16), "16 tokens of the prompt of 50 came from the prefix cache"),
        (Planted(status=400, said="no such thing"), "HTTP 400"),
        (Planted(error_after=1), "the stream ended in an error: EngineCore died"),
        (Planted(models=("a", "b")), "the models are: a, b; --model must name one of them"),
        (Planted(max_model_len=60), "more than the 60 tokens"),
    ],
)
def test_an_engine_that_did_not_do_it_is_status_1_and_a_sentence(planted: Planted, clause: str) -> None:
    with fake_engine(planted) as engine:
        done = run("--url", engine.url, "--tokens", "50")
    assert done.exit_code == 1
    assert clause in done.stderr
    assert done.stderr.startswith("spark-overlay warmup: ")
    assert "warm:" not in done.stdout


def test_without_token_ids_the_usage_alone_is_believed() -> None:
    with fake_engine(Planted(token_ids=False)) as engine:
        assert run("--url", engine.url, "--tokens", "50").exit_code == 0


def test_an_engine_that_is_not_there_or_too_slow_is_status_3() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        done = run("--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert done.exit_code == 3
    assert "Connection refused" in done.stderr
    with fake_engine(Planted(first_s=2.0)) as engine:
        done = run("--url", engine.url, "--tokens", "50", "--timeout-s", "0.5")
    assert done.exit_code == 3
    assert "no whole answer within" in done.stderr


def test_json_has_every_request_and_the_reason_of_a_failure() -> None:
    with fake_engine() as engine:
        good: dict[str, Any] = json.loads(run("--url", engine.url, "--tokens", "50", "--json").stdout)
        engine.planted.fewer = 1
        bad: dict[str, Any] = json.loads(run("--url", engine.url, "--tokens", "50", "--json").stdout)
    (one,) = good["warmed"]
    assert (good["exit_status"], good["url"]) == (0, engine.url)
    assert (one["prompt_tokens"], one["generated_tokens"]) == (50, 32)
    assert 0 <= one["first_token_s"] <= one["total_s"]
    assert (bad["exit_status"], bad["warmed"]) == (1, [])
    assert "31 generated" in bad["error"]


@pytest.mark.parametrize(
    ("arguments", "clause"),
    [
        (["--url", "localhost:8000"], "no address such as http://127.0.0.1:8000"),
        (["--tokens", "0"], "numbers above 0 with commas between are needed, not '0'"),
        (["--tokens", "1,,2"], "numbers above 0 with commas between"),
        (["--tokens", "8,8"], "'8,8' has a number twice"),
        (["--tokens", "99999999999"], "numbers above 0"),
        (["--timeout-s", "nan"], "seconds above 0 are needed, not 'nan'"),
        (["--timeout-s", "soon"], "seconds above 0"),
        (["--generate", "0"], "--generate"),
    ],
)
def test_wrong_usage_is_said_in_a_sentence(arguments: list[str], clause: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert clause in " ".join(done.stderr.split())


def test_the_key_of_the_api_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_engine(Planted(key="right")) as engine:
        monkeypatch.setenv("VLLM_API_KEY", "right")
        assert run("--url", engine.url, "--tokens", "50").exit_code == 0
        monkeypatch.setenv("VLLM_API_KEY", "wrong")
        assert "HTTP 401" in run("--url", engine.url, "--tokens", "50").stderr
