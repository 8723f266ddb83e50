"""A small server that speaks as much of vLLM's HTTP API as our commands ask, with planted faults.

Its text is words; a token is a word.  It decodes in steps: `accepted` drafts and one more token each while it drafts,
one token else.  Counters move as vLLM's do: step by step, with the tokens, before the stream ends.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOTALS = (
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "inter_token_latency_seconds_count",
    "inter_token_latency_seconds_sum",
    "generation_tokens_total",
    "prompt_tokens_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
)
COUNTED_STEP_S = 0.001
"""What an engine that takes no time at all says that a step took."""


@dataclass
class Planted:
    """What the engine is like.

    running, waiting: requests of others.  accepted: drafts of each step while drafts_on() is true; speculative: whether
    drafts are counted at all.  first_s, step_s: times of the prefill and of a step.  merge: steps to a chunk.
    fewer: tokens that a completion lacks.  prompt_off: added to prompt_tokens.  cached: of each prompt, from the cache.
    status: of every completion, with `said`.  cut_after: chunks after which the connection is cut.  error_after: after
    which the stream tells of an error.  token_ids: whether chunks have them.
    """

    running: int = 0
    waiting: int = 0
    models: tuple[str, ...] = ("tiny",)
    max_model_len: int | None = 1024
    accepted: int = 3
    block: int = 5
    speculative: bool = True
    drafts_on: Callable[[], bool] = lambda: True
    first_s: float = 0.0
    step_s: float = 0.0
    step_off_s: float | None = None
    merge: int = 1
    fewer: int = 0
    prompt_off: int = 0
    cached: int = 0
    status: int = 200
    said: str = ""
    cut_after: int | None = None
    error_after: int | None = None
    token_ids: bool = True
    metrics: str | None = None
    key: str | None = None


@dataclass
class Totals:
    """Counters by vLLM's names without their prefix."""

    values: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0.0))
    positions: dict[int, float] = field(default_factory=dict)

    def text(self, planted: Planted, running: int) -> str:
        """As /metrics has it."""
        lines = [
            "# HELP vllm:num_requests_running Number of requests in model execution batches.",
            "# TYPE vllm:num_requests_running gauge",
            f'vllm:num_requests_running{{engine="0",model_name="tiny"}} {planted.running + running}.0',
            "# TYPE vllm:num_requests_waiting gauge",
            f'vllm:num_requests_waiting{{engine="0",model_name="tiny"}} {planted.waiting}.0',
        ]
        for name, value in self.values.items():
            if planted.speculative or not name.startswith("spec_decode"):
                lines.append(f'vllm:{name}{{engine="0",model_name="tiny"}} {value}')
        if planted.speculative:
            lines += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{at}"}} '
                f"{self.positions.get(at, 0.0)}"
                for at in range(planted.block)
            ]
        return "\n".join(lines) + "\n"


class FakeEngine(ThreadingHTTPServer):
    """requests: every completion asked for, parsed; drafted: for each, whether drafts were on."""

    daemon_threads = True

    def __init__(self, planted: Planted) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.planted = planted
        self.totals = Totals()
        self.requests: list[dict[str, Any]] = []
        self.drafted: list[bool] = []
        self.keys: list[str | None] = []
        self.running = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that went away is as it should be; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def steps(self, count: int) -> Iterator[int]:
        """Tokens of each step of a completion of so many, counted as they come."""
        planted, left = self.planted, count - self.planted.fewer
        drafting = planted.drafts_on()
        self.drafted.append(drafting)
        step_s = planted.step_s if drafting or planted.step_off_s is None else planted.step_off_s
        time.sleep(planted.first_s)
        first = True
        while left > 0:
            if not first:
                time.sleep(step_s)
            tokens = 1 if first or not drafting else min(left, planted.accepted + 1)
            left -= tokens
            with self.lock:
                self.count(tokens, first, drafting, step_s)
            first = False
            yield tokens

    def count(self, tokens: int, first: bool, drafting: bool, step_s: float) -> None:
        """One step of one request."""
        values = self.totals.values
        values["generation_tokens_total"] += tokens
        if first:
            return
        values["inter_token_latency_seconds_count"] += 1
        values["inter_token_latency_seconds_sum"] += step_s or COUNTED_STEP_S
        if drafting:
            values["spec_decode_num_drafts_total"] += 1
            values["spec_decode_num_draft_tokens_total"] += self.planted.block
            values["spec_decode_num_accepted_tokens_total"] += tokens - 1
            for at in range(tokens - 1):
                self.totals.positions[at] = self.totals.positions.get(at, 0.0) + 1


class _Handler(BaseHTTPRequestHandler):
    server: FakeEngine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        planted = self.server.planted
        if self.path == "/health":
            self._send(200, b"")
        elif self.path == "/metrics":
            with self.server.lock:
                text = planted.metrics or self.server.totals.text(planted, self.server.running)
            self._send(200, text.encode())
        elif self.path == "/v1/models":
            limit = {} if planted.max_model_len is None else {"max_model_len": planted.max_model_len}
            self._json(200, {"data": [{"id": name, **limit} for name in planted.models]})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        planted = self.server.planted
        given = self.headers.get("Authorization")
        self.server.keys.append(given)
        if planted.key is not None and given != f"Bearer {planted.key}":
            self._json(401, {"error": "Unauthorized"})
        elif self.path == "/tokenize":
            words = asked["prompt"].split()
            self._json(200, {"count": len(words) + 1, "tokens": [0, *(1 + len(word) for word in words)]})
        elif planted.status != 200:
            self._json(planted.status, {"error": {"message": planted.said, "code": planted.status}})
        else:
            with self.server.lock:
                self.server.requests.append(asked)
                self.server.running += 1
            try:
                self._complete(asked)
            finally:
                with self.server.lock:
                    self.server.running -= 1

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: the test's output is the test's."""

    def _usage(self, asked: dict[str, Any]) -> dict[str, Any]:
        planted, prompt = self.server.planted, asked["prompt"]
        length = len(prompt.split()) + 1 if isinstance(prompt, str) else len(prompt)
        with self.server.lock:
            self.server.totals.values["prompt_tokens_total"] += length
            self.server.totals.values["prefix_cache_hits_total"] += planted.cached
        return {
            "prompt_tokens": length + planted.prompt_off,
            "completion_tokens": asked["max_tokens"] - planted.fewer,
            "prompt_tokens_details": {"cached_tokens": planted.cached} if planted.cached else None,
        }

    def _complete(self, asked: dict[str, Any]) -> None:
        planted, usage = self.server.planted, self._usage(asked)
        if not asked.get("stream"):
            tokens = sum(self.server.steps(asked["max_tokens"]))
            choice = {"index": 0, "text": " word" * tokens, "finish_reason": "length"}
            self._json(200, {"choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        held, steps, sent = 0, 0, 0
        for tokens in self.server.steps(asked["max_tokens"]):
            held, steps = held + tokens, steps + 1
            if steps > 1 and (steps - 1) % planted.merge:
                continue
            self._event(self._chunk(held))
            held, sent = 0, sent + 1
            if sent == planted.error_after:
                self._event({"error": {"message": "EngineCore died", "type": "Internal", "code": 500}})
                self._end(b"data: [DONE]\n\n")
                return
            if sent == planted.cut_after:
                self.close_connection = True
                return
        self._event(self._chunk(held, "length"))
        self._event({"choices": [], "usage": usage})
        self._end(b"data: [DONE]\n\n")

    def _chunk(self, tokens: int, finish_reason: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "text": " word" * tokens, "finish_reason": finish_reason}
        if self.server.planted.token_ids:
            choice["token_ids"] = [7] * tokens
        return {"choices": [choice]}

    def _event(self, value: object) -> None:
        self._write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _end(self, last: bytes) -> None:
        self._write(last)
        self._write(b"")

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def fake_engine(planted: Planted | None = None) -> Iterator[FakeEngine]:
    """A server that runs."""
    server = FakeEngine(planted or Planted())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
