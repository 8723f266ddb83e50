"""`spark-overlay calibrate`: the command line over `calibrate` and `figures`."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from ofl.files import FileTooLongError, publish, read_plain
from rich.console import Console
from rich.table import Table

import spark_overlay
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.depth.best import REPEATS_MIN
from spark_overlay.depth.calibrate import CalibrateRefused, HeldEngine, Measured, Plan, run
from spark_overlay.depth.figures import Calibration, calibration, environment
from spark_overlay.engine_command import EXIT_REFUSED, EXIT_UNREACHABLE, Seconds, api_of, engine_options
from spark_overlay.http_api.errors import EngineApiError, EngineTimedOut, EngineUnreachable
from spark_overlay.http_api.prompts import PromptError
from spark_overlay.settings import PREFIX

PLAIN_WIDTH = 130
"""Characters a line where the output is no terminal, whose width nobody knows."""
DEPTH_DIGITS_MAX = 5
PROMPTS_BYTES_MAX = 16 << 20
File = click.Path(path_type=Path, dir_okay=False)


def _depths(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers of 0 or more with commas between, each once; ascending."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < DEPTH_DIGITS_MAX for word in words):
        raise click.BadParameter(f"depths of 0 or more with commas between are needed, not {value!r}")
    depths = sorted({int(word) for word in words})
    if len(depths) != len(words):
        raise click.BadParameter(f"{value!r} has a depth twice")
    return tuple(depths)


@click.command("calibrate")
@engine_options
@click.option(
    "--control", type=File, required=True, envvar=f"{PREFIX}_CONTROL_FILE", show_envvar=True,
    help="The engine's control file, by which it is held to a depth.",
)  # fmt: skip
@click.option(
    "--stats", type=File, required=True, envvar=f"{PREFIX}_STATS_FILE", show_envvar=True,
    help="The engine's stats file, which has the remote rounds.",
)  # fmt: skip
@click.option(
    "--depths",
    callback=_depths,
    metavar="D[,D…]",
    default=None,
    help="By default all, 0 to K; the tables need all.",
)
@click.option(
    "--repeats", type=click.IntRange(REPEATS_MIN, 1000), default=8, show_default=True, help="Of every depth."
)
@click.option(
    "--generate",
    type=click.IntRange(32, 65536),
    default=256,
    show_default=True,
    help="Tokens of each completion.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 1 << 20),
    default=128,
    show_default=True,
    help="Of each made-up prompt.",
)
@click.option(
    "--prompts", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=None,
    help="JSON list of texts like those that are served, one a repeat by turns; else prompts are made up.",
)  # fmt: skip
@click.option("--seed", default=None, help="Of the made-up prompts; by default new ones each run.")
@click.option("--timeout-s", type=Seconds(), default=3600.0, show_default=True, help="For all of it.")
@click.option("--json", "json_file", type=File, default=None, help="Write all figures as JSON.")
@click.option("--output", type=File, default=None, help="Write the tables as lines of an environment file.")
def calibrate(
    url: str,
    model: str | None,
    control: Path,
    stats: Path,
    tokens: int,
    prompts: Path | None,
    json_file: Path | None,
    output: Path | None,
    **given: object,
) -> None:
    """Measure an idle engine at every draft depth: what verifying and a remote round cost, and which depth is fastest.

    The engine is held to each depth by its control file, which is given back as it was.  Status 0: figures (also where
    noise hides which depth is best, which is said); 1: none, because something else than asked would have been
    measured; 2: wrong usage; 3: the engine cannot be reached, or was not done in time.  A key of the API goes by
    VLLM_API_KEY.
    """
    _check_places({"--json": json_file, "--output": output}, {"--control": control, "--stats": stats})
    texts = None if prompts is None else _texts(prompts)
    started_at = time.time()
    try:
        with _ending_in_order():
            api = api_of(url)
            name = api.model(model).name
            ids = None if texts is None else tuple(tuple(api.tokenize(name, text)) for text in texts)
            plan = Plan(prompt_tokens=tokens, prompts=ids, **given)  # type: ignore[arg-type]
            measured = _measured(HeldEngine(api, name, control, stats), plan)
    except (EngineUnreachable, EngineTimedOut) as error:
        _fail(str(error), EXIT_UNREACHABLE)
    except (CalibrateRefused, BenchRefused, PromptError, EngineApiError) as error:
        _fail(str(error), EXIT_REFUSED)
    found = _calibration(measured, plan, url, name, started_at)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(table(found))
    click.echo(environment(found), nl=False)
    _write(json_file, found.model_dump_json(indent=1) + "\n")
    _write(output, environment(found))


def _check_places(written: Mapping[str, Path | None], read: Mapping[str, Path]) -> None:
    """Before an hour of measuring: that there is a place for what comes of it.  Raises UsageError."""
    taken = {str(path.absolute()): option for option, path in read.items()}
    for option, path in written.items():
        if path is None:
            continue
        folder = path.absolute().parent
        if not os.path.isdir(folder):
            raise click.UsageError(f"{option}: {folder} is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.UsageError(f"{option}: {folder} cannot be written to")
        other = taken.setdefault(str(path.absolute()), option)
        if other != option:
            raise click.UsageError(f"{option}: {path} is the file of {other} too")


def table(found: Calibration) -> Table:
    """The figures for people."""
    made = Table(
        title=f"{found.model}: {found.repeats} repeats of {found.generate} tokens at each depth",
        title_style="",
    )
    for head in (
        *("depth", "step p50 ms", "step ms", "round ms", "verify ms"),
        *("accepted / step", "tokens/s", "lowest - highest", "by the tables"),
    ):
        made.add_column(head, justify="right")
    for one in found.depths:
        made.add_row(
            f"{one.depth} *" if one.depth == found.best_depth else str(one.depth),
            "-" if one.step_p50_ms is None else f"{one.step_p50_ms:.3f}",
            f"{one.step_ms:.3f}",
            f"{one.remote_ms:.3f}",
            f"{one.verify_ms:.3f}",
            f"{one.accepted_per_step:.2f}",
            f"{one.tokens_per_s:.1f}",
            f"{one.tokens_per_s_low:.1f} - {one.tokens_per_s_high:.1f}",
            "-" if one.expected_tokens_per_s is None else f"{one.expected_tokens_per_s:.1f}",
        )
    return made


def _measured(engine: HeldEngine, plan: Plan) -> Measured:
    with Console(stderr=True).status("") as status:
        return run(engine, plan, status.update)


def _calibration(measured: Measured, plan: Plan, url: str, model: str, started_at: float) -> Calibration:
    return calibration(
        measured.samples,
        measured.block,
        overlay_version=spark_overlay.__version__,
        started_at=started_at,
        url=url,
        model=model,
        policy=str(measured.stats.get("policy", "")),
        endpoint=str(measured.stats.get("endpoint", "")),
        prompt_tokens=list(measured.prompt_tokens),
        prompts="made up" if plan.prompts is None else "given",
        generate=plan.generate,
        repeats=plan.repeats,
    )


def _texts(path: Path) -> list[str]:
    """The texts of --prompts.  Raises UsageError."""
    try:
        found = json.loads(read_plain(path, PROMPTS_BYTES_MAX))
    except FileTooLongError:
        found = None
    except (OSError, ValueError, RecursionError) as error:
        raise click.UsageError(f"--prompts: {path} cannot be read as JSON ({error})") from None
    if not (isinstance(found, list) and found and all(isinstance(text, str) and text for text in found)):
        raise click.UsageError(
            f"--prompts: {path} is no JSON list of texts, {PROMPTS_BYTES_MAX} bytes at most"
        )
    return found


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    try:
        publish(path, text.encode())
    except OSError as error:
        _fail(f"{path} cannot be written: {error.strerror}", EXIT_REFUSED)
    click.echo(f"spark-overlay calibrate: wrote {path}", err=True)


def _fail(text: str, status: int) -> None:
    click.echo(f"spark-overlay calibrate: {text}", err=True)
    sys.exit(status)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """A SIGTERM ends the run as Ctrl-C does, so that the engine is given back."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        _fail("ended before it was done; the engine is as it was", 128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)
