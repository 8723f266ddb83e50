"""`spark-overlay support-bundle`: the command line over `support_bundle`."""

import os
import sys
import time
from pathlib import Path

import click
from ofl.doctor.host import CONNECT_S_MAX, Host

import spark_overlay
from spark_overlay.complaint import complain
from spark_overlay.doctor.asks import EngineAsks
from spark_overlay.launch_command import FiniteRange
from spark_overlay.support_bundle.archive import MANIFEST, OutputError, archive, manifest_of, put
from spark_overlay.support_bundle.collect import Asked, collect
from spark_overlay.support_bundle.logs import LogError

USAGE_STATUS = 2
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("support-bundle")
@click.option("--output", type=_FILE, required=True, help="The archive to write, FILE.tar.gz.")
@click.option("--force", is_flag=True, help="Replace an archive that is there.")
@click.option(
    "--log", "logs", type=_FILE, multiple=True, help="A log to take our own lines from.  Repeatable."
)
@click.option(
    "--log-lines",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="Of each log, how many of its last lines are looked at.",
)
@click.option("--overlay", type=_FILE, help="overlay.json of a file overlay.")
@click.option("--stats-file", type=_FILE, help="[default: VLLM_DSPARK_REMOTE_STATS_FILE]")
@click.option("--ready-file", type=_FILE, help="[default: VLLM_DSPARK_REMOTE_READY_FILE]")
@click.option("--offline", is_flag=True, help="Ask no worker and make no connection.")
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0.01, max=CONNECT_S_MAX),
    default=5.0,
    show_default=True,
    help="Seconds for each answer of the worker.",
)
def support_bundle(
    output: Path,
    force: bool,
    logs: tuple[Path, ...],
    log_lines: int,
    overlay: Path | None,
    stats_file: Path | None,
    ready_file: Path | None,
    offline: bool,
    timeout_s: float,
) -> None:
    """Write what somebody else needs to see of this engine: no prompt, token, context row or key is in it.

    Run it with the engine's settings.  It holds doctor's findings, versions, settings, figures, the readiness record,
    the manifest of a file overlay, the host's facts, and of the logs that are named the lines that we wrote.
    """
    timeout = 0.0 if offline else timeout_s
    asked = Asked(os.environ, logs, log_lines, overlay, stats_file, ready_file, timeout)
    try:
        if not force and os.path.exists(output):
            raise OutputError(f"{output} is there already: --force replaces it")
        found = collect(asked, Host(), EngineAsks())
        made_s = int(time.time())
        more = {"made_s": made_s, "spark_overlay": spark_overlay.__version__, "left_out": found.left_out}
        files = {MANIFEST: manifest_of(found.files, more), **found.files}
        put(output, archive(files, made_s), force=force)
    except (OutputError, LogError) as error:
        complain(str(error))
        sys.exit(USAGE_STATUS)
    click.echo(
        f"spark-overlay: wrote {output}, {len(files)} files; {MANIFEST} lists them and what was left out"
    )
