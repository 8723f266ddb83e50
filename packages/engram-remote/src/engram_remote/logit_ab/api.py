"""One engine over its OpenAI-compatible API: greedy completions with log-probabilities.  Standard library only.

Every request has a `cache_salt` of its own, so no position comes from a prefix cache and every one reads its rows.
"""

import http.client
import json
import math
import secrets
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engram_remote.logit_ab.errors import LogitError
from engram_remote.logit_ab.prompts import Prompt
from engram_remote.logit_ab.record import Sample

REPLY_BYTES_MAX = 1 << 30
READ_BYTES = 1 << 20
ERROR_BYTES_MAX = 300


@dataclass(frozen=True)
class Asked:
    """What each request asks for.  top: log-probabilities at each token.  priority: None: not said."""

    max_tokens: int = 64
    top: int = 20
    prompt_logprobs: bool = True
    priority: int | None = None
    timeout_s: float = 600.0


class Api:
    """A server by its base URL, with or without the /v1 at its end."""

    def __init__(
        self, url: str, model: str | None = None, timeout_s: float = 600.0, key: str | None = None
    ) -> None:
        """model: None: the only one that the server has.  key: its API key.  Raises LogitError."""
        _check_address(url)
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        self.model = model if model is not None else self._only_model(timeout_s)

    def sample(self, prompt: Prompt, repeat: int, asked: Asked) -> Sample:
        """One greedy completion.  Raises LogitError naming what the reply lacks, or what the server refused."""
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt.text,
            "max_tokens": asked.max_tokens,
            "temperature": 0.0,
            "seed": 0,
            "logprobs": asked.top,
            "ignore_eos": True,
            "cache_salt": secrets.token_hex(16),
        }
        if asked.prompt_logprobs:
            body["prompt_logprobs"] = 0
        if asked.priority is not None:
            body["priority"] = asked.priority
        return self._sample(prompt, repeat, self._call("/v1/completions", asked.timeout_s, body))

    def _sample(self, prompt: Prompt, repeat: int, reply: Any) -> Sample:
        choice = self._part(reply, "choices", 0)
        shown = self._part(choice, "logprobs")
        logprobs, top = self._part(shown, "token_logprobs"), self._part(shown, "top_logprobs")
        given = choice.get("prompt_logprobs")
        try:
            return Sample(
                prompt=prompt.name,
                prompt_sha256=prompt.sha256,
                prompt_tokens=self._part(reply, "usage", "prompt_tokens"),
                repeat=repeat,
                tokens=self._part(shown, "tokens"),
                logprobs=[float(value) for value in logprobs],
                top=[{token: float(value) for token, value in (one or {}).items()} for one in top],
                prompt_logprobs=None if given is None else [_of_token(one) for one in given[1:]],
            )
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            raise LogitError(
                f"{self.url}: the completion's logprobs are not as expected ({error})"
            ) from error

    def _only_model(self, timeout_s: float) -> str:
        models = self._part(self._call("/v1/models", timeout_s), "data")
        names = [one.get("id") for one in models if isinstance(one, dict)]
        if len(names) != 1:
            raise LogitError(f"{self.url} has {len(names)} models, so one must be named: {names}")
        return str(names[0])

    def _part(self, value: Any, *path: str | int) -> Any:
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                raise LogitError(f"{self.url}: the reply has no {'.'.join(map(str, path))}") from None
        return value

    def _call(self, path: str, timeout_s: float, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)
        until = time.monotonic() + timeout_s
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                text = bytearray()
                while len(text) <= REPLY_BYTES_MAX and (more := reply.read1(READ_BYTES)):
                    text += more
                    if time.monotonic() > until:  # byte by byte no single read takes too long
                        raise LogitError(f"{self.url}{path}: the reply took longer than {timeout_s:g} s")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(ERROR_BYTES_MAX).decode("utf-8", "replace")
            raise LogitError(f"{self.url}{path}: HTTP {error.code}: {' '.join(said.split())}") from None
        except OSError as error:
            raise LogitError(f"{self.url}{path}: {getattr(error, 'reason', error)}") from error
        except http.client.HTTPException as error:
            raise LogitError(f"{self.url}{path}: does not speak HTTP ({error!r})") from error
        if len(text) > REPLY_BYTES_MAX:
            raise LogitError(f"{self.url}{path}: the reply is longer than {REPLY_BYTES_MAX} bytes")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LogitError(f"{self.url}{path}: the reply is not JSON ({error})") from error


def _check_address(url: str) -> None:
    """Raise LogitError unless requests can be sent there: a host, a port that is one, and nothing that HTTP cannot
    carry or that would not be part of a call's address.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not all("!" <= letter <= "~" for letter in url):
        raise LogitError(f"{url!r} is no http:// or https:// address")
    if (
        parts.username is not None or parts.password is not None
    ):  # told without it: a password may stand there
        raise LogitError("an address holds no name or password; a key of the API goes by OPENAI_API_KEY")
    if parts.query or parts.fragment:
        raise LogitError(f"{url!r} has a query or a fragment, which an API's address has not")


def _of_token(given: Any) -> float:
    """vLLM names the prompt's own token first, by its id: {"17": {"logprob": -0.5, "rank": 3, ...}}."""
    value = float(next(iter(given.values()))["logprob"])
    if not math.isfinite(value):
        raise ValueError(f"a prompt token's logprob is {value}")
    return value
