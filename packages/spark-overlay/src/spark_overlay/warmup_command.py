"""`spark-overlay warmup`: the command line over `warmup`."""

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console

from spark_overlay.engine_command import (
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    Seconds,
    api_of,
    counts,
    engine_options,
)
from spark_overlay.http_api.api import EngineApi
from spark_overlay.http_api.errors import EngineApiError, EngineTimedOut, EngineUnreachable
from spark_overlay.http_api.prompts import PromptError
from spark_overlay.warmup import Plan, Warmed, WarmupFailed, plan, warm


@click.command("warmup")
@engine_options
@click.option(
    "--tokens",
    callback=counts,
    metavar="N[,N…]",
    default=None,
    help="Tokens of each prompt; by default 64, 2048 and as many as the engine takes, 32768 at most.",
)
@click.option(
    "--generate", type=click.IntRange(1, 65536), default=32, show_default=True, help="Tokens of each."
)
@click.option("--timeout-s", type=Seconds(), default=1800.0, show_default=True, help="For all of it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def warmup(
    url: str,
    model: str | None,
    tokens: tuple[int, ...] | None,
    generate: int,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Send an engine short and long prompts, and check that it generated exactly what it was asked for.

    Status 0: it did, for every prompt; 1: it did not, or refused; 2: wrong usage; 3: it cannot be reached, or was not
    done in time.  Prompts are made up, and new each time.  A key of the API goes by VLLM_API_KEY.
    """
    done: list[Warmed] = []
    status, problem = 0, ""
    try:
        api = api_of(url)
        made = plan(api.model(model), tokens, generate, timeout_s)
        _run(api, made, done, quiet=as_json)
    except (WarmupFailed, PromptError) as error:
        status, problem = EXIT_REFUSED, str(error)
    except (EngineUnreachable, EngineTimedOut) as error:
        status, problem = EXIT_UNREACHABLE, str(error)
    except EngineApiError as error:
        status, problem = EXIT_REFUSED, str(error)
    if as_json:
        found = {"exit_status": status, "url": url, "warmed": [asdict(one) for one in done]}
        click.echo(json.dumps(found | ({"error": problem} if problem else {})))
    if problem:
        click.echo(f"spark-overlay warmup: {problem}", err=True)
    elif not as_json:
        click.echo(f"warm: {len(done)} prompts were read and answered as asked")
    sys.exit(status)


def _run(api: EngineApi, made: Plan, done: list[Warmed], *, quiet: bool) -> None:
    """Fill done request by request, telling of each unless quiet.  On a terminal what is under way is shown too."""
    console = Console(stderr=True)
    with console.status("") as status:
        for one in warm(
            api,
            made,
            on_begin=lambda tokens: status.update(f"a prompt of {tokens} tokens, {made.generate} to come"),
        ):
            done.append(one)
            if not quiet:
                click.echo(
                    f"prompt of {one.prompt_tokens} tokens, {one.generated_tokens} generated: first token after "
                    f"{one.first_token_s:.3f} s, all after {one.total_s:.3f} s"
                )
