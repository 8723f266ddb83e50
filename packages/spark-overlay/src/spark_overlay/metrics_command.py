"""`spark-overlay metrics` and `spark-overlay alerts`: the command lines over `metrics` and the shipped alert rules."""

import signal
import sys
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

import click
from prometheus_client import CollectorRegistry, generate_latest

from spark_overlay.metrics import StatsCollector
from spark_overlay.metrics_server import parse_listen, serving

USAGE_STATUS = 2
RULES = "spark-overlay.rules.yml"
ENDING = {signal.SIGTERM, signal.SIGINT}


def _listen(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return parse_listen(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def exposition(path: Path) -> tuple[str, str]:
    """The text that one scrape would give, and why the file could not be used ("" where it could)."""
    problems: list[str] = []
    registry = CollectorRegistry()
    registry.register(StatsCollector(path, problems.append))
    text = generate_latest(registry).decode()
    return text, problems[-1]


@click.command("metrics")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--listen",
    required=True,
    callback=_listen,
    metavar="ADDRESS:PORT",
    help="Where to serve them, such as 127.0.0.1:9477.",
)
def metrics(file: Path, listen: tuple[str, int]) -> None:
    """Serve an engine's stats file (VLLM_DSPARK_REMOTE_STATS_FILE) to Prometheus until SIGTERM or Ctrl-C.

    The file is read at every scrape; while it is missing or cannot be used, spark_overlay_stats_readable is 0.
    """
    registry = CollectorRegistry()
    registry.register(StatsCollector(file, _Complaints()))
    host, port = listen
    # Before any thread starts, so that all of them leave these two signals to sigwait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        with ExitStack() as stack:
            try:
                url = stack.enter_context(serving(registry, host, port))
            except OSError as error:
                click.echo(f"spark-overlay: cannot listen on {host} port {port}: {error.strerror}", err=True)
                sys.exit(USAGE_STATUS)
            click.echo(f"spark-overlay: metrics of {file} at {url}", err=True)
            signal.sigwait(ENDING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Complaints:
    """Says why the file cannot be used when that changes, not at every scrape."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, problem: str) -> None:
        if problem and problem != self._last:
            click.echo(f"spark-overlay: {problem}", err=True)
        self._last = problem


@click.command("alerts")
def alerts() -> None:
    """Print the shipped alert rules for Prometheus (rule_files)."""
    click.echo(
        resources.files("spark_overlay").joinpath("alerts", RULES).read_text(encoding="utf-8"), nl=False
    )
