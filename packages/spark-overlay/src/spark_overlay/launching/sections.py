"""What a layer of a launch config may say, key by key, in sentences.

A layer is one file or the options --set, as read.  Owns the checks that no type can state: names of settings, options
that the renderer writes itself, secrets.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spark_overlay.launching.model import Container
from spark_overlay.launching.names import (
    ELSEWHERE,
    NOT_BUILT_KEYS,
    OWNED_OPTIONS,
    REMOTE_KEYS,
    SHORT_OPTIONS,
    TABLE_KEYS,
    TABLES_ELSEWHERE,
    TABLES_PREFIX,
)
from spark_overlay.launching.problems import Problem, suggestion
from spark_overlay.settings import PREFIX

OPTION = re.compile(r"[a-z0-9][a-z0-9.-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE_?KEY|OBSERVE_KEY", re.IGNORECASE)
"""Names of variables and options whose values are nobody's business: what is rendered is shown and copied."""
NO_SECRET = frozenset({"tokenizer", "tokenizer-mode", "tokenizer-revision", "skip-tokenizer-init"})


def layer_problems(raw: Mapping[str, Any], model: type[BaseModel], source: str) -> Iterator[Problem]:
    """Everything that is wrong with one layer.  model: `LaunchConfig` or `Site`.  source: its name in sentences."""
    try:
        model.model_validate(raw)
    except ValidationError as error:
        # One value of a union has a problem for each kind that it is not.
        found = [_problem(one, model, source) for one in error.errors()]
        yield from {problem.field: problem for problem in found}.values()
        return
    yield from _values(raw, source)
    yield from _names(raw.get("remote") or {}, REMOTE_KEYS, ELSEWHERE, source, "remote")
    yield from _names(raw.get("tables") or {}, TABLE_KEYS, TABLES_ELSEWHERE, source, "tables")
    if "model" in (raw.get("speculative") or {}):
        yield Problem("the renderer writes it: set the site's drafter instead", source, "speculative.model")
    yield from _options(raw.get("engine") or {}, source)
    yield from _variables(raw.get("environment") or {}, source)


def extra_problems(words: Iterable[str]) -> Iterator[Problem]:
    """Of arguments for the engine after `--`: those that would undo what every host must have alike."""
    for word in words:
        if not word.startswith("-"):
            continue
        name = option_name(word)
        if name in OWNED_OPTIONS:
            yield Problem(f"the renderer writes it: set {OWNED_OPTIONS[name]} instead", word.split("=")[0])
        elif _secret(name):
            yield Problem(_secret_sentence(), word.split("=")[0])


def option_name(word: str) -> str:
    """An option's own name, however it was written: `--speculative_config.model=x` is speculative-config."""
    name = word.lstrip("-").partition("=")[0].partition(".")[0].replace("_", "-")
    return name if word.startswith("--") else SHORT_OPTIONS.get(name, name)


def _values(raw: Mapping[str, Any], source: str, field: str = "") -> Iterator[Problem]:
    """What no command line, no environment and no JSON can hold."""
    for name, value in raw.items():
        dotted = f"{field}.{name}" if field else name
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and "\0" in one:
                yield Problem("a text with a NUL byte is given", source, dotted)
            elif isinstance(one, float) and not math.isfinite(one):
                yield Problem(f"a finite number is needed, not {one}", source, dotted)
            elif isinstance(one, dict):
                yield from _values(one, source, dotted)


def _names(
    given: Mapping[str, Any],
    known: Mapping[str, str],
    elsewhere: Mapping[str, str],
    source: str,
    section: str,
) -> Iterator[Problem]:
    for name in given:
        if name in elsewhere:
            yield Problem(f"it is not set here: {elsewhere[name]}", source, f"{section}.{name}")
        elif name not in known and name in NOT_BUILT_KEYS and section == "remote":
            yield Problem(_not_built(name), source, f"{section}.{name}")
        elif name not in known:
            yield Problem(f"no such setting{suggestion(name, known)}", source, f"{section}.{name}")


def _not_built(name: str) -> str:
    if name.startswith("async"):
        return "the asynchronous hand-off is not installed: use C-capacity, whose rounds are synchronous"
    return "this setting is not built yet in this version"


def _options(given: Mapping[str, Any], source: str) -> Iterator[Problem]:
    for name in given:
        field = f"engine.{name}"
        if not OPTION.fullmatch(name):
            right = name.lstrip("-").replace("_", "-").lower()
            yield Problem(
                f"an option's name without dashes in front is needed, such as {right}", source, field
            )
        elif option_name(f"--{name}") in OWNED_OPTIONS:
            owner = OWNED_OPTIONS[option_name(f"--{name}")]
            yield Problem(f"the renderer writes it: set {owner} instead", source, field)
        elif _secret(name):
            yield Problem(_secret_sentence(), source, field)


def _variables(given: Mapping[str, Any], source: str) -> Iterator[Problem]:
    for name in given:
        field = f"environment.{name}"
        if not VARIABLE.fullmatch(name):
            yield Problem("a variable's name is needed: letters, digits and _", source, field)
        elif name.upper().startswith(PREFIX):
            yield Problem("it is not set here: use [remote] and the site", source, field)
        elif name.upper().startswith(TABLES_PREFIX):
            yield Problem("it is not set here: use [tables]", source, field)
        elif _secret(name):
            yield Problem(_secret_sentence(), source, field)


def _secret(name: str) -> bool:
    if name in NO_SECRET or name.replace("_", "-").lower().endswith(("-tokens", "-tokens-per-batch-size")):
        return False
    return SECRET.search(name.replace("-", "_")) is not None and not name.lower().startswith("tokenizer")


def _secret_sentence() -> str:
    return "secrets are shown nowhere: set it in the environment of spark-overlay itself, which the engine inherits"


def _problem(found: ErrorDetails, model: type[BaseModel], source: str) -> Problem:
    """One problem as pydantic found it."""
    # Of a union each kind is named behind the key; the key is what the operator wrote.
    place = [str(part) for part in found["loc"][:2]]
    field = ".".join(place)
    kind = found["type"]
    if kind == "extra_forbidden":
        inside = Container if len(place) > 1 else model
        return Problem(f"no such key{suggestion(place[-1], inside.model_fields)}", source, field)
    if kind == "value_error":
        return Problem(found["msg"].removeprefix("Value error, "), source, field)
    clause = found["msg"].removeprefix("Input should be ").removeprefix("a valid ").partition(",")[0]
    if kind == "invalid-json-value":
        clause = "text, a number, true or false, a list or a table"
    elif len(found["loc"]) > len(place):
        clause = "text, a number, or true or false"
    return Problem(f"{_shown(found['input'])} is given where {clause} is needed", source, field)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
