"""`spark-overlay doctor`: the command line over `doctor`."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from ofl.doctor import report
from ofl.doctor.findings import Facts, Finding, exit_status
from ofl.doctor.host import CONNECT_S_MAX, Host
from ofl.doctor.peers import ReportError
from ofl.doctor.run import examine

from spark_overlay.complaint import complain
from spark_overlay.doctor.asks import EngineAsks
from spark_overlay.doctor.checks import ENGINE_CHECKS
from spark_overlay.doctor.gather import Examined, IdentityFileError, engine_facts, wanted
from spark_overlay.launch_command import FiniteRange
from spark_overlay.launching.layers import read_launch
from spark_overlay.launching.names import TABLES_PREFIX
from spark_overlay.launching.problems import ConfigError
from spark_overlay.launching.render import render
from spark_overlay.settings import PREFIX

COMMAND = "spark-overlay doctor"
USAGE_STATUS = 2


def examine_engine(
    host: Host, asks: EngineAsks, examined: Examined, peers: tuple[Path, ...] = ()
) -> tuple[Facts, list[Finding]]:
    """Facts and findings of an engine's host.  Raises IdentityFileError and ReportError."""
    more = engine_facts(asks, examined)
    return examine(host, wanted(examined), peers=peers, checks=ENGINE_CHECKS, more=more)


@click.command("doctor")
@click.option("--offline", is_flag=True, help="Ask no worker and make no connection.")
@click.option("--config", metavar="NAME|FILE", help="Examine what launch would start with this config.")
@click.option("--site", type=click.Path(path_type=Path, dir_okay=False), help="As of launch.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="As of launch.  Repeatable.")
@click.option(
    "--rank",
    type=click.IntRange(0, 1023),
    help="Which of the engine's hosts this is, 0 (the default) for the first, which alone talks to the worker.",
)
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0.01, max=CONNECT_S_MAX),
    default=5.0,
    show_default=True,
    help="Seconds for each answer of the worker.",
)
@click.option(
    "--identity-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="identity.json of the drafter, which the settings must repeat.",
)
@click.option(
    "--peer",
    "peers",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="What doctor --json printed on another host, to be compared with.  Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def doctor(
    offline: bool,
    config: str | None,
    site: Path | None,
    sets: tuple[str, ...],
    rank: int | None,
    timeout_s: float,
    identity_file: Path | None,
    peers: tuple[Path, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Say whether this host is fit for an engine that drafts remotely, and what repairs it.

    Run it in the engine's environment, with the settings that the engine will have, or with the --config and --site
    that it will be launched with.  COMMAND, after `--`, is what starts the engine; it is read and not started.  Exit
    status: 0 nothing must be repaired, 1 something must, 2 used wrongly.
    """
    try:
        environ, words, remote = _launched(config, site, sets, rank, command)
        examined = Examined(environ, words, identity_file, 0.0 if offline else timeout_s, rank or 0, remote)
        facts, findings = examine_engine(Host(), EngineAsks(), examined, peers)
    except ConfigError as error:
        for problem in error.problems:
            complain(str(problem))
        sys.exit(USAGE_STATUS)
    except IdentityFileError as error:
        complain(f"--identity-file: {error}")
        sys.exit(USAGE_STATUS)
    except ReportError as error:
        complain(f"--peer: {error}")
        sys.exit(USAGE_STATUS)
    if as_json:
        click.echo(json.dumps(report.document(COMMAND, facts, findings), indent=2))
    else:
        click.echo(report.render(COMMAND, facts, findings))
    sys.exit(exit_status(findings))


def _launched(
    config: str | None, site: Path | None, sets: tuple[str, ...], rank: int | None, command: tuple[str, ...]
) -> tuple[Mapping[str, str], tuple[str, ...], bool]:
    """The environment and the command that the engine will have, and whether it is to draft remotely: what was given,
    or what `launch` would make of a config.
    """
    if config is None:
        if site is not None or sets:
            raise click.UsageError("--site and --set need --config, which is not given")
        return os.environ, command, True
    rendering = render(read_launch(config, site, sets), rank, command)
    ours = (PREFIX, TABLES_PREFIX)
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(ours)}
    return {**kept, **rendering.environment}, rendering.command, rendering.drafts_remotely
