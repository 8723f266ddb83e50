"""`engram-remote logit-ab`: do two engines say the same, but for the noise that one has by itself?"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from engram_remote.commands.consoles import plain_console
from engram_remote.commands.reports import check_place, write_report
from engram_remote.logit_ab.api import Api, Asked
from engram_remote.logit_ab.compare import FACTOR, Comparison, Worst
from engram_remote.logit_ab.compare import compare as compare_runs
from engram_remote.logit_ab.errors import LogitError
from engram_remote.logit_ab.prompts import LENGTHS, make_prompts
from engram_remote.logit_ab.record import Run, read_run, run_text
from engram_remote.problem import Problem, problems_as_sentences

API_KEY = "OPENAI_API_KEY"
DIFFERENT = 1
"""Exit status where a candidate is beyond the floor."""
FILE = click.Path(dir_okay=False, path_type=Path)


def _named(_context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not (name and name.isprintable()):
        raise Problem(f"--{option.name}: a name in one line is needed, not {name!r}")
    return name


@click.group("logit-ab", short_help="Compare what two engines say, against the noise of one.")
def command() -> None:
    """Greedy log-probabilities over an OpenAI-compatible API.

    Record two runs of the engine as it was, one of the engine as it is, and compare.
    """


@command.command("run", short_help="Record one run of an engine.")
@click.option("--url", required=True, help="Of the server, e.g. http://192.0.2.1:8000.")
@click.option("--label", required=True, callback=_named, help="Name of the run, e.g. A1.")
@click.option("--out", required=True, type=FILE, help="File to write.")
@click.option("--data", type=FILE, help='JSON Lines with "text" to prompt with.  [default: made-up words]')
@click.option(
    "--length",
    "lengths",
    multiple=True,
    type=click.Choice(tuple(LENGTHS)),
    default=tuple(LENGTHS),
    show_default=True,
)
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=2, show_default=True, help="Samples of each prompt."
)
@click.option("--max-tokens", type=click.IntRange(1, 100_000), default=64, show_default=True)
@click.option(
    "--top",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Log-probabilities at each token.",
)
@click.option("--no-prompt-logprobs", is_flag=True, help="For servers that refuse prompt_logprobs.")
@click.option("--priority", type=int, help="Of the requests, where the server schedules by priority.")
@click.option("--model", callback=_named, help="[default: the only one that the server has]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of made-up words.")
@click.option("--timeout-s", type=float, default=600.0, show_default=True, help="Of each request.")
def run(
    url: str,
    label: str,
    out: Path,
    data: Path | None,
    lengths: tuple[str, ...],
    repeats: int,
    max_tokens: int,
    top: int,
    no_prompt_logprobs: bool,
    priority: int | None,
    model: str | None,
    seed: int,
    timeout_s: float,
) -> None:
    """Ask a server for greedy completions of each prompt and write what it said."""
    _positive("--timeout-s", timeout_s)
    check_place("--out", out)
    asked = Asked(max_tokens, top, not no_prompt_logprobs, priority, timeout_s)
    with _sentences():
        prompts = make_prompts(list(dict.fromkeys(lengths)), data, seed)
        api = Api(url, model, timeout_s, os.environ.get(API_KEY))
        wanted = [(prompt, repeat) for repeat in range(repeats) for prompt in prompts]
        with Progress(console=plain_console(stderr=True)) as progress:  # over before an error is told
            shown = progress.track(wanted, description=escape(label))
            samples = [api.sample(prompt, repeat, asked) for prompt, repeat in shown]
        run = Run(label=label, url=api.url, model=api.model, max_tokens=max_tokens, top=top)
        write_report(out, run_text(run, samples))
    click.echo(f"{out}: {len(samples)} samples of {len(prompts)} prompts from {api.model}")


@command.command("compare", short_help="Compare runs with a baseline's own noise.")
@click.argument("candidates", nargs=-1, required=True, type=FILE)
@click.option(
    "--baseline", "baselines", multiple=True, required=True, type=FILE, help="A run as it was.  Repeatable."
)
@click.option(
    "--factor", type=float, default=FACTOR, show_default=True, help="How many times the noise is accepted."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(candidates: tuple[Path, ...], baselines: tuple[Path, ...], factor: float, as_json: bool) -> None:
    """Exit status 0: identical, or within the floor; 1: different; 2: runs that cannot be compared."""
    _positive("--factor", factor)
    with _sentences():
        found = compare_runs(
            [read_run(one) for one in baselines], [read_run(one) for one in candidates], factor
        )
    if as_json:
        click.echo(json.dumps({"verdict": found.verdict, "factor": factor, **asdict(found)}, indent=1))
    else:
        show(found, plain_console())
    if found.verdict == "different":
        raise SystemExit(DIFFERENT)


def show(found: Comparison, console: Console) -> None:
    """The verdict, and a line for each candidate and prompt."""
    table = Table(
        "run", "prompt", "tokens", "own noise", "found", "verdict", title=f"verdict: {found.verdict}"
    )
    for row in found.rows:
        verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
        table.add_row(
            row.candidate, row.prompt, str(row.prompt_tokens), _worst(row.floor), _worst(row.found), verdict
        )
    console.print(table)


def _worst(worst: Worst) -> str:
    where = "never" if worst.diverged is None else f"from token {worst.diverged}"
    prompt = "" if worst.prompt_delta is None else f", prompt {worst.prompt_delta:.3g}"
    return f"differs {where}; logprob {worst.delta:.3g}{prompt} ({worst.pairs} pairs)"


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise Problem(f"{name}: a finite number above 0 is needed, not {value}")


@contextmanager
def _sentences() -> Iterator[None]:
    """As `problems_as_sentences`, for what is wrong between engines too."""
    try:
        with problems_as_sentences():
            yield
    except LogitError as error:
        raise Problem(str(error)) from error
