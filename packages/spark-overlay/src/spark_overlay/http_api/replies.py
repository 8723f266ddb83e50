"""What the engine's JSON must hold, as typed values.  Pure: text goes in, values or EngineReplyInvalid come out."""

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_overlay.http_api.errors import EngineRefused, EngineReplyInvalid, said

DATA = b"data:"
DONE = b"[DONE]"
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """One entry of /v1/models.  max_model_len: prompt and completion together, in tokens; None where it is not told."""

    name: str
    max_model_len: int | None


@dataclass(frozen=True)
class Usage:
    """Of one completion.  cached_tokens: of the prompt, taken from the prefix cache; None where it is not told."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


@dataclass(frozen=True)
class Completion:
    """A whole reply."""

    text: str
    finish_reason: str
    usage: Usage


@dataclass(frozen=True)
class Chunk:
    """One event with tokens.  at_s: since the request was sent.  tokens: in it; None where the server does not tell."""

    at_s: float
    tokens: int | None
    text: str


@dataclass(frozen=True)
class Streamed:
    """A whole stream.  chunks: at least one, in order; vLLM sends one for each step of the engine that brought tokens,
    but puts together what its own front end was too slow to send apart."""

    chunks: tuple[Chunk, ...]
    finish_reason: str
    usage: Usage

    @property
    def first_token_s(self) -> float:
        """Time to first token."""
        return self.chunks[0].at_s


def parse_json(url: str, data: bytes) -> Any:
    """A JSON value.  Raises EngineReplyInvalid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EngineReplyInvalid(f"{url}: the reply is not JSON ({said(str(error))})") from None


def part(url: str, value: Any, kind: type[T], *path: str | int) -> T:
    """What stands at the path, of that kind.  Raises EngineReplyInvalid naming it."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise EngineReplyInvalid(f"{url}: the reply has no {_named(path)}") from None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise EngineReplyInvalid(f"{url}: {_named(path)} of the reply is no {kind.__name__}")
    return value


def models(url: str, reply: Any) -> tuple[Model, ...]:
    """Of /v1/models.  Raises EngineReplyInvalid."""
    entries = part(url, reply, list, "data")
    found = []
    for at in range(len(entries)):
        limit = part(url, entries, dict, at).get("max_model_len")
        if limit is not None:
            limit = part(url, entries, int, at, "max_model_len")
        found.append(Model(part(url, entries, str, at, "id"), limit))
    return tuple(found)


def completion(url: str, reply: Any) -> Completion:
    """Of /v1/completions without streaming.  Raises EngineReplyInvalid."""
    return Completion(
        text=part(url, reply, str, "choices", 0, "text"),
        finish_reason=part(url, reply, str, "choices", 0, "finish_reason"),
        usage=usage(url, reply),
    )


def usage(url: str, reply: Any) -> Usage:
    """Tokens counted by the server.  Raises EngineReplyInvalid."""
    details = part(url, reply, dict, "usage").get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=part(url, reply, int, "usage", "prompt_tokens"),
        completion_tokens=part(url, reply, int, "usage", "completion_tokens"),
        cached_tokens=cached if isinstance(cached, int) and not isinstance(cached, bool) else None,
    )


class StreamReader:
    """Puts one stream of server-sent events together, line by line."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._chunks: list[Chunk] = []
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self.done = False

    def line(self, at_s: float, line: bytes) -> None:
        """The next line.  Raises EngineRefused for an error among the events, and EngineReplyInvalid."""
        line = line.strip()
        if self.done or not line.startswith(DATA):
            return  # comments and blank lines between events
        data = line[len(DATA) :].strip()
        if data == DONE:
            self.done = True
            return
        event = parse_json(self._url, data)
        if isinstance(event, dict) and event.get("error"):
            raise _refused(self._url, event["error"])
        if part(self._url, event, list, "choices"):
            self._choice(at_s, event)
        if event.get("usage") is not None:
            self._usage = usage(self._url, event)

    def result(self) -> Streamed:
        """All of it, once the connection has ended.  Raises EngineReplyInvalid where it is not whole."""
        if not self.done:
            raise EngineReplyInvalid(f"{self._url}: the stream ended before its [DONE]")
        if not self._chunks:
            raise EngineReplyInvalid(f"{self._url}: the stream brought no token")
        if self._finish_reason is None:
            raise EngineReplyInvalid(f"{self._url}: the stream has no finish_reason")
        if self._usage is None:
            raise EngineReplyInvalid(f"{self._url}: the stream has no usage")
        return Streamed(tuple(self._chunks), self._finish_reason, self._usage)

    def _choice(self, at_s: float, event: Any) -> None:
        choice = part(self._url, event, dict, "choices", 0)
        text = part(self._url, event, str, "choices", 0, "text")
        ids = choice.get("token_ids")
        tokens = len(ids) if isinstance(ids, list) else None
        if tokens or (tokens is None and text):
            self._chunks.append(Chunk(at_s, tokens, text))
        if choice.get("finish_reason") is not None:
            self._finish_reason = part(self._url, event, str, "choices", 0, "finish_reason")


def _refused(url: str, error: Any) -> EngineRefused:
    words = error.get("message", error) if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) else 0
    return EngineRefused(f"{url}: the stream ended in an error: {said(str(words))}", status)


def _named(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) or "body"
