"""`spark-overlay launch`: the command line over `spark_overlay.launching` and `spark_overlay.launch`."""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spark_overlay import tables_ready
from spark_overlay.complaint import complain
from spark_overlay.launch import READY_TIMEOUT_S, SWITCH, USAGE_STATUS, LaunchError, run
from spark_overlay.launching.container import arguments_inside, container
from spark_overlay.launching.formats import FORMATS
from spark_overlay.launching.layers import read_launch
from spark_overlay.launching.names import TABLES_PREFIX
from spark_overlay.launching.problems import ConfigError
from spark_overlay.launching.render import Rendering, render
from spark_overlay.readiness import ReadinessRecord
from spark_overlay.settings import PREFIX, Settings, SettingsError
from spark_overlay.supervisor import notify
from spark_overlay.tables_ready import TablesRecord, said

CONTAINER = "container"
FILE = click.Path(dir_okay=False, path_type=Path)


class FiniteRange(click.FloatRange):
    """A float range that NaN does not slip through, as it does through click's: nothing would ever time out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


# What stands behind the first word belongs to the engine's command, whatever it is called there.
@click.command("launch", context_settings={"allow_interspersed_args": False})
@click.option(
    "--config", metavar="NAME|FILE", help="A shipped config (see `configs`), or a file of your own."
)
@click.option("--site", type=FILE, help="What this deployment is: the file that says worker, models, hosts.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A field of the site, such as port=8001.  Repeatable.",
)
@click.option("--rank", type=click.IntRange(0), help="Which of the site's hosts this is, 0 for the first.")
@click.option("--print", "shown", is_flag=True, help="Print what would be started, and start nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, CONTAINER]),
    help="Of --print: a shell's command line, an environment file, JSON, or a container's command.  [default: shell]",
)
@click.option(
    "--ready-timeout-s",
    type=FiniteRange(min=0, min_open=True),
    default=READY_TIMEOUT_S,
    show_default=True,
    help="Seconds that the engine may take until the remote drafter is in place.",
)
@click.option("--start-id", default=None, help="Names this start in the readiness record; random by default.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def launch(
    config: str | None,
    site: Path | None,
    settings: tuple[str, ...],
    rank: int | None,
    shown: bool,
    form: str | None,
    ready_timeout_s: float,
    start_id: str | None,
    command: tuple[str, ...],
) -> None:
    """Start an engine and end it unless it came up with the remote drafter in place.

    COMMAND is what starts the engine, after `--`.  The settings are checked before it starts.  With --config the
    command and its environment come from a config and a site, and what stands after `--` is added to the command.  A
    worker that is missing or refused does not end the engine, which serves as its policy says: the line of the start
    says which.
    Signals, output and exit status are passed on, also that of a command that fails before the remote drafter is in
    place; status 3 says that it ended well without, or was ended because it took too long, 2 that nothing was started.
    """
    try:
        if config is None:
            _refuse_without_config(
                {"--site": site, "--set": settings, "--rank": rank, "--print": shown, "--format": form}
            )
            status = _start(command, os.environ, start_id, ready_timeout_s)
        elif shown:
            click.echo(_printed(config, site, settings, rank, form or "shell", command), nl=False)
            status = 0
        elif form is not None:
            raise LaunchError("--format: it says how --print prints, which is not given", USAGE_STATUS)
        else:
            rendering = render(read_launch(config, site, settings), rank, command)
            environ = _engine_environment(os.environ, rendering)
            status = _start(rendering.command, environ, start_id, ready_timeout_s, rendering)
    except ConfigError as error:
        for problem in error.problems:
            complain(str(problem))
        status = USAGE_STATUS
    except SettingsError as error:
        complain(str(error))
        status = USAGE_STATUS
    except LaunchError as error:
        complain(str(error))
        status = error.status
    sys.exit(status)


def _refuse_without_config(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value is not None and value is not False and value != ():
            raise LaunchError(f"{option}: it needs --config, which is not given", USAGE_STATUS)


def _printed(
    config: str,
    site: Path | None,
    settings: tuple[str, ...],
    rank: int | None,
    form: str,
    extra: tuple[str, ...],
) -> str:
    launch = read_launch(config, site, settings)
    # A container's paths and vLLM are those of the image; else what is printed is what would be started here.
    rendering = render(launch, rank, extra, here=form != CONTAINER)
    if form != CONTAINER:
        return FORMATS[form](rendering)
    named = str(Path(config).absolute()) if launch.files and launch.files[0] != site else config
    inside = arguments_inside(named, site.absolute() if site else None, settings, rank)
    return container(launch, rendering, inside, extra)


def _engine_environment(environ: Mapping[str, str], rendering: Rendering) -> dict[str, str]:
    """Ours, with what the config decides: no setting of ours that some shell exported comes along."""
    ours = (PREFIX, TABLES_PREFIX)
    dropped = sorted(name for name in environ if name.upper().startswith(ours))
    if dropped:
        click.echo(
            f"spark-overlay: left out of the engine's environment, as {rendering.name} decides: {', '.join(dropped)}",
            err=True,
        )
    kept = {name: value for name, value in environ.items() if name not in dropped}
    return {**kept, **rendering.environment}


def _start(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    start_id: str | None,
    timeout_s: float,
    rendering: Rendering | None = None,
) -> int:
    """Start it, wait for what was asked for, then for its end; the exit status.  rendering: None without a config."""
    config = rendering.name if rendering is not None else ""
    if not command:
        raise LaunchError("COMMAND: what starts the engine must be given after --, or --config", USAGE_STATUS)
    settings = Settings.from_environ(environ)
    tables = tables_ready.asked(environ)
    if settings is None and not tables and not config:
        raise LaunchError(
            f"{SWITCH} is not set: there is nothing to prove, start the command itself", USAGE_STATUS
        )
    if settings is not None:
        settings.check_files()
    return run(
        command,
        environ=environ,
        start_id=start_id,
        timeout_s=timeout_s,
        on_ready=_announce,
        drafter=settings is not None,
        tables=(rendering.local_ranks if rendering is not None else 1) if tables else 0,
        on_tables=_announce_tables,
        on_up=lambda: _up(config, proved=settings is not None or tables),
        first_host=rendering.first_host if rendering is not None else None,
    )


def _announce(record: ReadinessRecord) -> None:
    worker = f"; the worker is {record.worker}" if record.worker else ""
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    click.echo(
        f"spark-overlay: process {record.pid} has the remote drafter ({record.policy}) in place{worker}",
        err=True,
    )
    click.echo(f"spark-overlay: the worker's endpoint is {record.endpoint}; {versions}", err=True)


def _announce_tables(records: list[TablesRecord]) -> None:
    click.echo(f"spark-overlay: {said(records)}", err=True)


def _up(config: str, *, proved: bool) -> None:
    """Everything that was asked for is in place: a supervisor is told."""
    if not proved:
        click.echo(f"spark-overlay: {config} has nothing of ours in it, so nothing is waited for", err=True)
    what = f"{config or 'the engine'} has what it was asked for" if proved else f"{config} was started"
    problem = notify(os.environ, "READY=1", f"STATUS={what}")
    if problem:
        click.echo(f"spark-overlay: {problem}", err=True)
