"""A small server that speaks as much of the OpenAI-compatible API as `logit-ab` asks, with planted differences.

Its text is a function of the prompt; what differs from that is planted by whoever starts it.
"""

import hashlib
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Planted:
    """noise: largest random change of every log-probability of prompts of at least `noisy_from` characters.

    shift: by token, what is added to the logprobs there.  other: by token, another token from there on.  only: of
    prompts shorter than that many characters.  status: of every completion, with `said`.  spoil: changes the reply.
    """

    noise: float = 0.0
    noisy_from: int = 0
    shift: dict[int, float] = field(default_factory=dict)
    other: int | None = None
    only: int = 1 << 30
    prompt_shift: float = 0.0
    status: int = 200
    said: str = ""
    models: tuple[str, ...] = ("tiny",)
    spoil: Any = None


class Completions(ThreadingHTTPServer):
    """requests: every completion asked for, parsed; headers: of each."""

    daemon_threads = True

    def __init__(self, planted: Planted, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.planted = planted
        self.noise = random.Random(seed)
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One completion, as vLLM lays it out."""
        planted, prompt = self.planted, asked["prompt"]
        base = random.Random(hashlib.sha256(prompt.encode()).digest())
        noisy = planted.noise if len(prompt) >= planted.noisy_from else 0.0
        differs = len(prompt) < planted.only
        tokens, logprobs, top = [], [], []
        for at in range(asked["max_tokens"]):
            shown = {f"t{base.randrange(1000)}": -base.random() for _ in range(asked["logprobs"])}
            change = self.noise.uniform(-noisy, noisy) + (planted.shift.get(at, 0.0) if differs else 0.0)
            shown = {token: value + change for token, value in shown.items()}
            token = max(shown, key=lambda name: shown[name])
            if planted.other is not None and at >= planted.other and differs:
                token = min(shown, key=lambda name: shown[name])
            tokens.append(token)
            logprobs.append(shown[token])
            top.append(shown)
        count = len(prompt) // 4
        choice: dict[str, Any] = {
            "text": "".join(tokens),
            "logprobs": {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top},
        }
        if "prompt_logprobs" in asked:
            values = [-base.random() + (planted.prompt_shift if differs else 0.0) for _ in range(count - 1)]
            choice["prompt_logprobs"] = [None, *({"7": {"logprob": value, "rank": 3}} for value in values)]
        return {"choices": [choice], "usage": {"prompt_tokens": count}}


class _Handler(BaseHTTPRequestHandler):
    server: Completions

    def do_GET(self) -> None:
        assert self.path == "/v1/models", self.path
        self._send(200, {"data": [{"id": name} for name in self.server.planted.models]})

    def do_POST(self) -> None:
        assert self.path == "/v1/completions", self.path
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        planted = self.server.planted
        with self.server.lock:
            self.server.requests.append(asked)
            self.server.authorizations.append(self.headers.get("Authorization"))
            reply = self.server.answer(asked)
        if planted.spoil is not None:
            planted.spoil(reply)
        self._send(planted.status, reply if planted.status == 200 else {"error": planted.said})

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: the test's output is the test's."""

    def _send(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def completions(planted: Planted | None = None, seed: int = 0) -> Iterator[Completions]:
    """A server that runs."""
    server = Completions(planted or Planted(), seed)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
