"""The calls of one engine's API.  Every one has a deadline; none is repeated.

Prompts are token ids, so that their length is exact.  `cache_salt` keeps a prompt apart from all that stands in the
engine's prefix cache already, also from the same prompt of an earlier run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_overlay.http_api.address import Address, parse_address
from spark_overlay.http_api.errors import EngineReplyInvalid
from spark_overlay.http_api.gauges import GaugesError, Load, read_load
from spark_overlay.http_api.replies import (
    Completion,
    Model,
    Streamed,
    StreamReader,
    completion,
    models,
    parse_json,
    part,
)
from spark_overlay.http_api.transport import Call, fetch, lines

SHORT_TIMEOUT_S = 10.0
"""For everything that generates nothing."""
METRICS, MODELS, HEALTH, TOKENIZE, COMPLETIONS = (
    *("/metrics", "/v1/models", "/health", "/tokenize", "/v1/completions"),
)


@dataclass(frozen=True)
class Asked:
    """One greedy completion.

    prompt: token ids, or text.  max_tokens: so many are generated, neither more nor fewer: the end of a text is
    ignored.  cache_salt: see above; "" shares the prefix cache.  timeout_s: until the last token.
    """

    prompt: Sequence[int] | str
    max_tokens: int
    timeout_s: float
    cache_salt: str = ""
    temperature: float = 0.0

    def body(self, model: str) -> dict[str, Any]:
        """The JSON to send, without what streaming adds."""
        prompt = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        body: dict[str, Any] = {
            "model": model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "min_tokens": self.max_tokens,
            "ignore_eos": True,
            "temperature": self.temperature,
        }
        return body | ({"cache_salt": self.cache_salt} if self.cache_salt else {})


class EngineApi:
    """One engine by its address.  Holds no connection; may be used by several threads."""

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = SHORT_TIMEOUT_S) -> None:
        """url: as `parse_address` takes it.  key: the API's key.  timeout_s: for all calls that generate nothing.

        Raises AddressError.
        """
        self.address: Address = parse_address(url)
        self._key = key
        self._timeout_s = timeout_s

    def url(self, path: str = "") -> str:
        """The address of a call, for sentences."""
        return f"{self.address}{path}"

    def health(self) -> None:
        """Returns where the engine says that it is well.  Raises EngineApiError."""
        fetch(self.address, self._call(HEALTH))

    def models(self) -> tuple[Model, ...]:
        """What it serves.  Raises EngineApiError."""
        return models(self.url(MODELS), self._json(MODELS))

    def model(self, name: str | None = None) -> Model:
        """The model of that name, or the only one.  Raises EngineApiError; EngineReplyInvalid lists the names."""
        found = self.models()
        named = [model for model in found if name in (None, model.name)]
        if len(named) != 1:
            names = ", ".join(model.name for model in found) or "none"
            wish = "--model must name one of them" if name is None else f"{name!r} is not one of them"
            raise EngineReplyInvalid(f"{self.url(MODELS)}: the models are: {names}; {wish}")
        return named[0]

    def metrics_text(self) -> str:
        """What /metrics says.  Raises EngineApiError."""
        return fetch(self.address, self._call(METRICS)).decode("utf-8", "replace")

    def load(self) -> Load:
        """How many requests the engine has.  Raises EngineApiError."""
        try:
            return read_load(self.metrics_text())
        except GaugesError as error:
            raise EngineReplyInvalid(f"{self.url(METRICS)}: {error}") from None

    def tokenize(self, model: str, text: str) -> list[int]:
        """Token ids of a prompt, the special ones of its beginning included.  Raises EngineApiError."""
        reply = self._json(TOKENIZE, {"model": model, "prompt": text})
        tokens = part(self.url(TOKENIZE), reply, list, "tokens")
        return [part(self.url(TOKENIZE), tokens, int, at) for at in range(len(tokens))]

    def complete(self, model: str, asked: Asked) -> Completion:
        """One completion, waited for as a whole.  Raises EngineApiError."""
        return completion(self.url(COMPLETIONS), self._json(COMPLETIONS, asked.body(model), asked.timeout_s))

    def stream(self, model: str, asked: Asked) -> Streamed:
        """One completion with the time at which each of its chunks came.  Raises EngineApiError."""
        extra = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
        reader = StreamReader(self.url(COMPLETIONS))
        for at_s, line in lines(
            self.address, self._call(COMPLETIONS, asked.body(model) | extra, asked.timeout_s)
        ):
            reader.line(at_s, line)
        return reader.result()

    def _json(self, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        return parse_json(self.url(path), fetch(self.address, self._call(path, body, timeout_s)))

    def _call(self, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None) -> Call:
        return Call(path, self._timeout_s if timeout_s is None else timeout_s, body, self._key)
