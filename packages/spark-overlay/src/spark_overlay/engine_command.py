"""What commands that ask a running engine over HTTP share: their options, and how failures end them."""

import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from spark_overlay.http_api.address import AddressError, parse_address
from spark_overlay.http_api.api import EngineApi

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "VLLM_API_KEY"
EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE = 1, 2, 3
COUNT_MAX = 1 << 31
F = TypeVar("F", bound=Callable[..., Any])


class Url(click.ParamType):
    """An engine's address, as `parse_address` takes it."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(parse_address(value))
        except AddressError as error:
            self.fail(str(error), param, ctx)


class Counts(click.ParamType):
    """Numbers above 0 with commas between, each once, in their order."""

    name = "N[,N…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        for word in words:
            if not (word.isascii() and word.isdecimal() and len(word) < 11 and 0 < int(word) < COUNT_MAX):
                self.fail(f"numbers above 0 with commas between are needed, not {value!r}", param, ctx)
        counts = tuple(int(word) for word in words)
        if len(set(counts)) != len(counts):
            self.fail(f"{value!r} has a number twice", param, ctx)
        return counts


class Seconds(click.ParamType):
    """A finite time above 0, a week at most."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= 604_800:
            self.fail(f"seconds above 0 are needed, not {value!r}", param, ctx)
        return seconds


def engine_options(command: F) -> F:
    """--url and --model."""
    model = click.option("--model", default=None, help="Its model, where it serves several.")
    url = click.option(
        "--url", type=Url(), default=DEFAULT_URL, show_default=True, help="The engine's API, without /v1."
    )
    return url(model(command))


def api_of(url: str) -> EngineApi:
    """The engine at a checked address, with the key of VLLM_API_KEY where there is one."""
    return EngineApi(url, key=os.environ.get(KEY_VARIABLE) or None)
