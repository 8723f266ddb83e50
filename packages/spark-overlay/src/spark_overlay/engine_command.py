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
SECONDS_MAX = 7 * 24 * 3600
F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A finite time above 0, a week at most."""

    def __init__(self) -> None:
        super().__init__(min=0, max=SECONDS_MAX, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not 0 < found <= SECONDS_MAX:
            self.fail(f"seconds above 0 are needed, not {value!r}", param, ctx)
        return found


def url(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Callback of an option: an engine's address, as `parse_address` takes it."""
    if value is None:
        return None
    try:
        return str(parse_address(value))
    except AddressError as error:
        raise click.BadParameter(str(error)) from None


def counts(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Callback of an option: numbers above 0 with commas between, each once, in their order."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) < 11 and 0 < int(word) < COUNT_MAX):
            raise click.BadParameter(f"numbers above 0 with commas between are needed, not {value!r}")
    found = tuple(int(word) for word in words)
    if len(set(found)) != len(found):
        raise click.BadParameter(f"{value!r} has a number twice")
    return found


def engine_options(command: F) -> F:
    """--url and --model."""
    model = click.option("--model", default=None, help="Its model, where it serves several.")
    where = click.option(
        "--url",
        callback=url,
        metavar="URL",
        default=DEFAULT_URL,
        show_default=True,
        help="The engine's API, without /v1.",
    )
    return where(model(command))


def api_of(address: str) -> EngineApi:
    """The engine at a checked address, with the key of VLLM_API_KEY where there is one."""
    return EngineApi(address, key=os.environ.get(KEY_VARIABLE) or None)
