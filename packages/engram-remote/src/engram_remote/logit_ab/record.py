"""A run's file: one line about the run, then one for each sample; strict, so that what was measured is compared."""

import json
from pathlib import Path
from typing import Literal

from ofl.files import read_plain
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engram_remote.logit_ab.errors import LogitError

RUN_BYTES_MAX = 4 << 30


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Run(_Strict):
    """What was asked, of whom."""

    format: Literal["engram-logit-ab"] = "engram-logit-ab"
    format_version: Literal[1] = 1
    label: str = Field(min_length=1)
    url: str
    model: str
    max_tokens: int = Field(ge=1)
    top: int = Field(ge=0)


class Sample(_Strict):
    """One answer to one prompt.

    tokens: texts of the generated tokens.  logprobs: of those tokens.  top: at each, log-probabilities by token's text.
    prompt_logprobs: of each prompt token after the first, where the server gives them.
    """

    prompt: str
    prompt_sha256: str
    prompt_tokens: int = Field(ge=0)
    repeat: int = Field(ge=0)
    tokens: list[str] = Field(min_length=1)
    logprobs: list[float]
    top: list[dict[str, float]]
    prompt_logprobs: list[float] | None = None

    @model_validator(mode="after")
    def _as_many(self) -> "Sample":
        if not len(self.tokens) == len(self.logprobs) == len(self.top):
            raise ValueError(
                f"{len(self.tokens)} tokens, {len(self.logprobs)} logprobs and {len(self.top)} top do not fit together"
            )
        return self


def run_text(run: Run, samples: list[Sample]) -> str:
    """What a run's file holds."""
    return "".join(one.model_dump_json() + "\n" for one in (run, *samples))


def read_run(path: Path) -> tuple[Run, list[Sample]]:
    """A run's file.  Raises LogitError naming file, line and field; OSError."""
    try:
        lines = read_plain(path, RUN_BYTES_MAX).decode().split("\n")
    except UnicodeDecodeError as error:
        raise LogitError(f"{path}: is not text in UTF-8 ({error})") from error
    if not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise LogitError(f"{path}: holds no samples")
    run: Run | None = None
    samples: list[Sample] = []
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line, object_pairs_hook=_unique)
            if run is None:
                run = Run.model_validate_json(line)
            else:
                samples.append(Sample.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "line"
            raise LogitError(f"{path}: line {number}: {field}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise LogitError(f"{path}: line {number}: is not proper JSON ({error})") from error
    assert run is not None, "there are two lines at least"
    return run, samples


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return dict(pairs)
