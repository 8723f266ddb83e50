"""`spark-overlay launch`: the command line over `spark_overlay.launch`."""

import math
import os
import sys
from typing import Any

import click

from spark_overlay.launch import READY_TIMEOUT_S, SWITCH, USAGE_STATUS, LaunchError, run
from spark_overlay.readiness import ReadinessRecord
from spark_overlay.settings import Settings, SettingsError


class FiniteRange(click.FloatRange):
    """A float range that NaN does not slip through, as it does through click's: nothing would ever time out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


@click.command("launch", context_settings={"ignore_unknown_options": True})
@click.option(
    "--ready-timeout-s",
    type=FiniteRange(min=0, min_open=True),
    default=READY_TIMEOUT_S,
    show_default=True,
    help="Seconds that the engine may take until the remote drafter is in place.",
)
@click.option("--start-id", default=None, help="Names this start in the readiness record; random by default.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(ready_timeout_s: float, start_id: str | None, command: tuple[str, ...]) -> None:
    """Start an engine and end it unless it came up with the remote drafter in place.

    COMMAND is what starts the engine, after `--`.  The settings are checked before it starts.  A worker that is
    missing or refused does not end the engine, which serves as its policy says: the line of the start says which.
    Signals, output and exit status are passed on, also that of a command that fails before the remote drafter is in
    place; status 3 says that it ended well without, or was ended because it took too long, 2 that nothing was started.
    """
    try:
        settings = Settings.from_environ(os.environ)
        if settings is None:
            raise LaunchError(
                f"{SWITCH} is not set: there is nothing to prove, start the command itself", USAGE_STATUS
            )
        settings.check_files()
        status = run(
            command, environ=os.environ, start_id=start_id, timeout_s=ready_timeout_s, on_ready=_announce
        )
    except SettingsError as error:
        click.echo(f"spark-overlay: {error}", err=True)
        status = USAGE_STATUS
    except LaunchError as error:
        click.echo(f"spark-overlay: {error}", err=True)
        status = error.status
    sys.exit(status)


def _announce(record: ReadinessRecord) -> None:
    worker = f"; the worker is {record.worker}" if record.worker else ""
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    click.echo(
        f"spark-overlay: process {record.pid} has the remote drafter ({record.policy}) in place{worker}",
        err=True,
    )
    click.echo(f"spark-overlay: the worker's endpoint is {record.endpoint}; {versions}", err=True)
