"""The platform file: on what a run runs.  TOML; relative paths are taken from the file's folder.

Owns its shape and a sentence for each thing that is wrong with it.  Says nothing about evidence class: that is seen,
not said.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from ofl.contract import observation_v1 as seen
from ofl.endpoint import parse_endpoint
from ofl.errors import EndpointError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
PLACES = ("python", "target", "drafter", "endpoint", "ready_file", "key_file")
"""What a worker's command may name in braces."""


class PlatformError(ValueError):
    """The platform file cannot be used; one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


def _name(text: str) -> str:
    if not NAME.match(text):
        raise ValueError(f"lower-case letters, digits, '.', '_' and '-' are needed, at most 64, not {text!r}")
    return text


def _endpoint(text: str) -> str:
    try:
        endpoint = parse_endpoint(text)
    except EndpointError as error:
        raise ValueError(str(error)) from None
    if not endpoint.connectable:
        raise ValueError(f"{text!r} can be listened on but not connected to")
    return str(endpoint)


def _command(words: list[str]) -> list[str]:
    if not words:
        raise ValueError("a program is needed")
    for word in words:
        for place in re.findall(r"\{([^}]*)\}", word):
            if place not in PLACES:
                raise ValueError(f"{{{place}}} stands for nothing; known: {', '.join(PLACES)}")
    return words


def _capabilities(names: list[str]) -> list[str]:
    for name in names:
        if name not in seen.CAPABILITIES:
            raise ValueError(f"{name!r} is none of {', '.join(seen.CAPABILITIES)}")
    return names


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Worker(_Model):
    """Where drafts come from.  Exactly one of endpoint (it runs already) and command (started for each arm).

    identity: the file that `x86-worker identity` wrote; without one, `{python} -m x86_worker identity` is asked.
    """

    endpoint: Annotated[str, AfterValidator(_endpoint)] | None = None
    command: Annotated[list[str], AfterValidator(_command)] | None = None
    identity: str | None = None
    key_file: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    start_s: Annotated[float, Field(gt=0, strict=False)] = 120.0


class Arguments(_Model):
    """What an engine is started with, beyond what its arm says.  arguments: of the engine.  environment: of it."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)


class Platform(_Model):
    """One platform.

    python: runs the arm processes.  python_path: folders that go before that Python's own.  prompt_text: a text file to
    cut prompts from, tokenised with the target's tokenizer.  capabilities: what this platform is expected to show; the
    plan alone reads it.  arms: more, by the arm's name; two_ranks: more for arms of two ranks.
    """

    name: Annotated[str, AfterValidator(_name)]
    engine: Literal["vllm", "simulator"]
    python: str
    python_path: list[str] = Field(default_factory=list)
    target: str | None = None
    drafter: str | None = None
    drafts: Annotated[int, Field(ge=1, le=64)] = 5
    prompt_text: str | None = None
    capabilities: Annotated[list[str], AfterValidator(_capabilities)] = Field(default_factory=list)
    worker: Worker | None = None
    start_s: Annotated[float, Field(gt=0, strict=False)] = 900.0
    every_arm: Arguments = Field(default_factory=Arguments)
    two_ranks: Arguments = Field(default_factory=Arguments)
    arms: dict[str, Arguments] = Field(default_factory=dict)

    def at(self, folder: Path) -> "Platform":
        """With absolute paths."""
        worker = self.worker
        if worker is not None:
            paths = {name: _at(folder, getattr(worker, name)) for name in ("identity", "key_file")}
            worker = worker.model_copy(update=paths)
        names = ("python", "target", "drafter", "prompt_text")
        changes: dict[str, object] = {name: _at(folder, getattr(self, name)) for name in names}
        changes["python_path"] = [_at(folder, path) for path in self.python_path]
        return self.model_copy(update={**changes, "worker": worker})

    def missing(self) -> Iterator[str]:
        """A sentence for each thing that is not there."""
        if not Path(self.python).is_file():
            yield f"python: {self.python} is no file."
        if self.engine == "simulator":
            return
        for name in ("target", "drafter"):
            folder = getattr(self, name)
            if folder is None:
                yield f"{name}: it must be set for the engine 'vllm'."
            elif not Path(folder, "config.json").is_file():
                yield f"{name}: {folder} holds no config.json."
        worker = self.worker
        if worker is None or (worker.endpoint is None) == (worker.command is None):
            yield "worker: exactly one of 'endpoint' and 'command' must be set for the engine 'vllm'."
        files = {
            "prompt_text": self.prompt_text,
            "worker.identity": None if worker is None else worker.identity,
            "worker.key_file": None if worker is None else worker.key_file,
        }
        for name, path in files.items():
            if path is not None and not Path(path).is_file():
                yield f"{name}: {path} is no file."


def _at(folder: Path, path: str | None) -> str | None:
    return None if path is None else os.path.normpath(folder / Path(path).expanduser())


def read_platform(path: Path) -> Platform:
    """The platform of a file.  Raises PlatformError with everything that is wrong."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlatformError([f"{path} cannot be read: {error.strerror}."]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlatformError([f"{path} is not TOML: {error}."]) from None
    return parse_platform(values, path.absolute().parent)


def parse_platform(values: Mapping[str, Any], folder: Path) -> Platform:
    """The platform of a parsed file in folder.  Raises PlatformError."""
    try:
        platform = Platform.model_validate(values).at(folder)
    except ValidationError as error:
        raise PlatformError([_sentence(found) for found in error.errors()]) from None
    if problems := list(platform.missing()):
        raise PlatformError(problems)
    return platform


def _sentence(found: ErrorDetails) -> str:
    name = ".".join(str(part) for part in found["loc"])
    if found["type"] == "missing":
        return f"{name}: it must be set."
    if found["type"] == "extra_forbidden":
        return f"{name}: there is no such field."
    if found["type"] == "value_error":
        return f"{name}: {found['msg'].removeprefix('Value error, ')}."
    wanted = found["msg"].removeprefix("Input should be ")
    return f"{name}: {found['input']!r} is given where {wanted} is needed."
