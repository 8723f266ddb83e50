"""Log lines: ours are kept, with what may quote others replaced; nobody else's are."""

import ast
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spark_overlay
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.report import log_line
from spark_overlay.support_bundle.known_text import (
    LAUNCHER_LINES,
    LEFT_OUT,
    OVERLAY_LINES,
    WORKER_LINES,
    reason,
    sentence,
)
from spark_overlay.support_bundle.logs import LogError, end_of_log

PROMPT = "tell me about the patient Jane Roe"
VLLM = "(EngineCore_DP0 pid=4711) INFO 12-01 02:03:04 [link.py:336] "
WORKER = "2026-12-01 02:03:04,567 WARNING "
JOURNAL = "Dec  1 02:03:04 spark-1 vllm[4711]: "
NOT_KEPT = {
    "remote DSpark shadow: request … at … behind token …: local …, remote …, first mismatch at … with a margin of ……",
    "…",
    "remote DSpark: …",
}
"""Of the log: tokens of a mismatch; and lines that are made elsewhere, each of which has a template of its own."""
EXAMPLES = {
    "{reason}": PROMPT,
    "{number}": "12",
    "{engine}": "6cb3c068b4f10e4432a6a391c81df212",
    "{nonce}": "00112233445566aa",
    "{endpoint}": "rdma://10.77.0.1:18620?bind=10.77.0.2",
    "{endpoints}": "tcp://10.77.0.1:18620, shm://drafter",
    "{policy}": "capacity",
    "{operation}": "HELLO",
    "{status}": "MISMATCH",
    "{counts}": " (timeout 3, bad_reply 1)",
    "{latencies}": "; p50/p99 rtt_us 800/1200",
    "{verified}": " (verified: local drafts)",
    "{rank}": "ranks",
    "{shape}": f"identity {'ab' * 32}, Markov identity {'cd' * 32}, vocabulary 1000, 16 elements a row, window 6, "
    "4 positions, 3 slots",
}


def filled(template: str) -> str:
    return re.sub(r"\{\w+\}", lambda found: EXAMPLES[found[0]], template)


TEMPLATES = (*OVERLAY_LINES, *LAUNCHER_LINES, *WORKER_LINES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_of_our_sentences_is_kept_without_what_may_quote_others(template: str) -> None:
    said = sentence(filled(template))
    assert said == filled(template).replace(PROMPT, LEFT_OUT)
    assert PROMPT not in said


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=10)
@given(data=st.data())
def test_what_stands_for_a_reason_never_comes_through(template: str, data: Any) -> None:
    secret = data.draw(st.text(min_size=1, max_size=30).map(lambda text: f"\u2603{text}"))
    line = re.sub(
        r"\{\w+\}", lambda found: secret if found[0] == "{reason}" else EXAMPLES[found[0]], template
    )
    assert "\u2603" not in sentence(line)


@settings(max_examples=30)
@given(st.text(max_size=80))
def test_nobody_elses_text_is_kept(text: str) -> None:
    assert sentence(text) in ("", text) or LEFT_OUT in sentence(text)
    assert sentence(f"{PROMPT} {text}") == "" or PROMPT not in sentence(f"{PROMPT} {text}")


@pytest.mark.parametrize(
    "line",
    [
        f"Received request cmpl-1: prompt: '{PROMPT}', params: SamplingParams(n=1), prompt_token_ids: [1, 2, 3]",
        "remote DSpark shadow: request r0 at 26 behind token 5: local [772, 705], remote [772, 879], first mismatch "
        "at 2 with a margin of 1",
        f"remote DSpark: {PROMPT}",
        "remote DSpark worker at nowhere: connection refused",
        f"drafting remotely through {PROMPT}, policy capacity, for 1 rank; the worker is connected",
        f"remote DSpark (capacity policy) rank 0 -> tcp://w:1 {PROMPT}",
        "connection 5: PROMPT refused with MISMATCH: x",
    ],
)
def test_lines_that_could_hold_a_prompt_or_tokens_are_not_ours(line: str) -> None:
    assert sentence(line) == ""


def test_reasons_that_we_know_are_kept() -> None:
    known_ones = (
        *("", "the connection is lost", "tcp://w:1: nobody listens on w:1", "timeout", "goodbye"),
        "hello.vocabulary: the engine has 1, the worker has 100",
        "tcp://10.0.0.1:1: 10.0.0.1:1 refused: the proof is wrong: the client holds another key",
        f"HELLO: MISMATCH hello.identity: the engine has {'ab' * 32}, the worker has {'cd' * 32}",
    )
    for known in known_ones:
        assert reason(known) == known
    assert reason(PROMPT) == LEFT_OUT
    line = "remote DSpark session 4 with tcp://w:18620 ended: the connection is lost"
    assert sentence(line) == line


def test_the_lines_of_a_real_run_are_kept(
    make_run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_overlay")
    run = make_run(POLICY="shadow").eventful()
    said = [record.getMessage() for record in caplog.records]
    kept = [line for line in said if sentence(line)]
    assert len(kept) >= 2
    assert all("behind token" in line for line in said if line not in kept)
    assert sentence(log_line(run.drafter.stats())) == log_line(run.drafter.stats())


def skeletons() -> Iterator[str]:
    """What the overlay logs, `…` for what varies."""
    folder = Path(spark_overlay.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if ast.unparse(node.func) not in ("log.info", "log.warning", "log.error", "self._complain"):
                continue
            first = node.args[0]
            if isinstance(first, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in first.values
                )
            elif isinstance(first, ast.Constant):
                yield re.sub(r"%[0-9.]*[a-z]", "…", str(first.value))


def test_every_line_that_the_overlay_logs_is_kept_or_left_out_on_purpose() -> None:
    made = set(skeletons())
    assert len(made) > 10, "the search still finds what the overlay logs"
    heads = [re.split(r"\{|'\{", template)[0] for template in OVERLAY_LINES]
    unknown = {
        said
        for said in made - NOT_KEPT
        if not any(head and said.replace("'", "").startswith(head.replace("'", "")) for head in heads)
    }
    assert unknown == set()


# --- files ---


def test_prefixes_of_engine_worker_and_journal_are_kept(tmp_path: Path) -> None:
    line = "remote DSpark circuit breaker closed: the probe round succeeded"
    opened = "session opened: engine 6cb3c068b4f10e4432a6a391c81df212, epoch 3, policy capacity"
    path = tmp_path / "log"
    path.write_text(
        f"{VLLM}{line}\n{JOURNAL}{VLLM}{line}\n\x1b[32m{VLLM}\x1b[0m{line}\n{WORKER}{opened}\n{line}\n"
        f"{VLLM}{PROMPT}\n{PROMPT} {line}\n(x y) {line}\n(APIServer pid=1) {VLLM}{line}\n"
    )
    end = end_of_log(path, 100)
    assert end.lines == [
        f"{VLLM}{line}",
        f"{JOURNAL}{VLLM}{line}",
        f"{VLLM}{line}",
        f"{WORKER}{opened}",
        line,
        f"(APIServer pid=1) {VLLM}{line}",
    ]
    assert end.seen == 9


def test_only_the_last_lines_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("stopped\n" * 10 + "x\n" * 3 + "y" * 10_000 + "stopped\n")
    assert end_of_log(path, 5).lines == ["stopped"]


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "not a regular file"), ("absent", "cannot be read")):
        with pytest.raises(LogError, match=words):
            end_of_log(tmp_path / name, 5)


@settings(max_examples=30)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_log(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        end_of_log(Path(file.name), 100)
