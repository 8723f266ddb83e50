"""`spark-overlay bench`: the command line over the other modules of this package."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import spark_overlay
from spark_overlay.bench.arms import Arms, OneEngine, TwoEngines, borrowed
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.plan import Plan, contexts_for
from spark_overlay.bench.result import BenchResult, figures, sample_figures
from spark_overlay.bench.run import Run, require_used
from spark_overlay.bench.sample import Sample
from spark_overlay.bench.table import render
from spark_overlay.engine_command import (
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    Seconds,
    api_of,
    counts,
    engine_options,
    url,
)
from spark_overlay.http_api.errors import EngineApiError, EngineTimedOut, EngineUnreachable
from spark_overlay.http_api.prompts import PromptError

PREFIX = "VLLM_DSPARK_REMOTE"
PLAIN_WIDTH = 150
"""Characters a line where the output is no terminal, whose width nobody knows."""
File = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class Options:
    """As given.  contexts: None: by the engine."""

    url: str
    off_url: str | None
    control: Path | None
    stats: Path | None
    model: str | None
    contexts: tuple[int, ...] | None
    generate: int
    repeats: int
    seed: str
    timeout_s: float


@click.command("bench")
@engine_options
@click.option(
    "--off-url",
    callback=url,
    metavar="URL",
    default=None,
    help="Another engine for OFF, without remote drafting.",
)
@click.option(
    "--control", type=File, default=None, help=f"Control file of the one engine [{PREFIX}_CONTROL_FILE]."
)
@click.option(
    "--stats", type=File, default=None, help=f"Stats file of the engine of ON [{PREFIX}_STATS_FILE]."
)
@click.option(
    "--contexts",
    callback=counts,
    metavar="N[,N…]",
    default=None,
    help="Prompt tokens; by default three that fit the engine.",
)
@click.option(
    "--generate", type=click.IntRange(16, 65536), default=128, show_default=True, help="Tokens of each."
)
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=5, show_default=True, help="Of each pair OFF, ON."
)
@click.option("--seed", default="0", show_default=True, help="Of the made-up prompts.")
@click.option("--timeout-s", type=Seconds(), default=3600.0, show_default=True, help="For all of it.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON (docs/operations/bench.schema.json)."
)
def bench(as_json: bool, **given: object) -> None:
    """Measure what remote drafting brings: step time, time to first token and tokens/s, OFF and ON by turns.

    One idle engine is paused and resumed by its control file, or OFF is another engine (--off-url).  Status 0: figures;
    1: none, because something else than asked would have been measured; 2: wrong usage; 3: an engine cannot be reached,
    or was not done in time.  A key of the API goes by VLLM_API_KEY.
    """
    options = _options(given)
    try:
        with _ending_in_order():
            result = _measured(options, quiet=as_json)
    except (EngineUnreachable, EngineTimedOut) as error:
        _fail(str(error), EXIT_UNREACHABLE)
    except (BenchRefused, PromptError, EngineApiError) as error:
        _fail(str(error), EXIT_REFUSED)
    if as_json:
        click.echo(result.model_dump_json(indent=1))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(render(result))


def _options(given: dict[str, object]) -> Options:
    options = Options(**given)  # type: ignore[arg-type]
    control, stats = options.control, options.stats
    if options.off_url is None:
        control = control or _named("_CONTROL_FILE")
        stats = stats or _named("_STATS_FILE")
        if control is None:
            raise click.UsageError(
                f"OFF needs --control, the engine's {PREFIX}_CONTROL_FILE, or another engine by --off-url"
            )
        if stats is None:
            raise click.UsageError(
                f"--control needs --stats, the engine's {PREFIX}_STATS_FILE, which says what is in effect"
            )
    elif control is not None:
        raise click.UsageError("--control and --off-url exclude each other")
    elif options.off_url == options.url:
        raise click.UsageError("--off-url is the same engine as --url")
    return Options(**{**vars(options), "control": control, "stats": stats})


def _named(name: str) -> Path | None:
    value = os.environ.get(PREFIX + name)
    return Path(value) if value else None


def _measured(options: Options, *, quiet: bool) -> BenchResult:
    started_at = time.time()
    on = api_of(options.url)
    model = on.model(options.model)
    contexts = contexts_for(model, options.contexts, options.generate)
    plan = Plan(contexts, options.generate, options.repeats, options.seed, options.timeout_s)
    samples: list[Sample] = []
    with ExitStack() as stack:
        arms: Arms
        paused = False
        if options.off_url is not None:
            off = api_of(options.off_url)
            off.model(model.name)
            arms = TwoEngines(off, on, options.stats)
        else:
            assert options.control is not None
            assert options.stats is not None
            one = stack.enter_context(borrowed(OneEngine(on, options.control, options.stats)))
            paused = one.before.policy == "capacity"
            arms = one
        progress = stack.enter_context(_progress(quiet=quiet))
        task = progress.add_task("", total=2 * plan.repeats * len(contexts))
        run = Run(arms, model.name, plan)
        for sample in run.samples(
            lambda turn: progress.update(task, description=f"{turn.context} tokens, {turn.arm.upper()}")
        ):
            samples.append(sample)
            progress.advance(task)
    require_used(samples, paused=paused)
    return BenchResult(
        overlay=spark_overlay.__version__,
        url=options.url,
        off_url=options.off_url or options.url,
        how=arms.how,
        model=model.name,
        seed=plan.seed,
        generated_tokens=plan.generate,
        repeats=plan.repeats,
        started_at=started_at,
        contexts=figures(samples, plan),
        samples=sample_figures(samples),
    )


def _progress(*, quiet: bool) -> Progress:
    """On stderr, where the figures are not; nothing where nobody watches."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does, so that an engine that was paused is resumed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = None
    with suppress(ValueError):  # not in the main thread, as in a test
        before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _fail(text: str, status: int) -> None:
    click.echo(f"spark-overlay bench: {text}", err=True)
    sys.exit(status)
