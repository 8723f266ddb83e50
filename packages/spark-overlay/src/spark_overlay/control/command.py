"""`spark-overlay pause`, `resume` and `rearm`: the command lines over `spark_overlay.control.ordering`."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from ofl.contract.records import printable

from spark_overlay.complaint import complain
from spark_overlay.control.ordering import order, wait_for
from spark_overlay.control.record import REASON_CHARACTERS_MAX, ControlFileError, ControlRecord
from spark_overlay.launch_command import FiniteRange
from spark_overlay.settings import PREFIX

NOT_IN_EFFECT, NOT_WRITTEN = 1, 2
"""Exit statuses.  0: written, and in effect where that was waited for."""
WAIT_S = 10.0
CONTROL_FILE = f"{PREFIX}_CONTROL_FILE"

Command = Callable[..., None]


def _reason(_context: click.Context, _option: click.Parameter, text: str) -> str:
    """Before anything is locked: a text that a record can hold."""
    if len(text) > REASON_CHARACTERS_MAX:
        raise click.BadParameter(f"{REASON_CHARACTERS_MAX} characters are the most, not {len(text)}.")
    if not text.isascii() and text != text.encode(errors="replace").decode():
        raise click.BadParameter("it is not UTF-8 text.")
    return text


def _options(command: Command) -> Command:
    """The options that all three have."""
    for option in (
        click.option(
            "--wait",
            "wait_s",
            type=FiniteRange(min=0),
            default=None,
            metavar="SECONDS",
            help=f"How long to wait for the engine, with --stats.  [default: {WAIT_S:g}]",
        ),
        click.option(
            "--stats",
            type=click.Path(path_type=Path, dir_okay=False),
            default=None,
            help="The engine's stats file: wait until it shows the order in effect.",
        ),
        click.option(
            "--reason",
            default="",
            callback=_reason,
            help=f"Why, for the engine's log and figures; {REASON_CHARACTERS_MAX} characters at most.",
        ),
        click.option(
            "--control",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            envvar=CONTROL_FILE,
            show_envvar=True,
            help="The engine's control file; made where it is missing.",
        ),
    ):
        command = option(command)
    return command


@click.command("pause")
@_options
def pause(control: Path, reason: str, stats: Path | None, wait_s: float | None) -> None:
    """Let a running engine draft without its worker, which may then be stopped.

    From the next round on nothing is sent to the worker, and the session is ended.  The engine goes on without drafts
    (capacity) or with local ones (resilience, shadow) and keeps what the worker must know for `resume`.

    Exit status: 0 the order is written, and in effect where --stats is given; 1 it is written, but was not seen in
    effect in time; 2 nothing was written.
    """
    _give(lambda: order(control, reason, state="paused"), control, stats, wait_s)


@click.command("resume")
@_options
def resume(control: Path, reason: str, stats: Path | None, wait_s: float | None) -> None:
    """Let a paused engine draft with its worker again.

    It connects at once, and sends the worker what it missed.

    Exit status: 0 the order is written, and the worker connected where --stats is given; 1 it is written, but that was
    not seen in time; 2 nothing was written.
    """
    _give(lambda: order(control, reason, state="active"), control, stats, wait_s)


@click.command("rearm")
@_options
def rearm(control: Path, reason: str, stats: Path | None, wait_s: float | None) -> None:
    """Let a running engine forget that its worker was refused or failed, and ask it anew.

    What made the engine disable remote drafting (a wrong identity, shape or version) is to be put right first, at the
    worker: the engine's own settings stay what they are.  The circuit breaker is closed, the delay between attempts is
    the shortest again.  A paused engine stays paused.

    Exit status: 0 the order is written, and the worker connected where --stats is given; 1 it is written, but that was
    not seen in time, or the worker is refused again; 2 nothing was written.
    """
    _give(lambda: order(control, reason, rearm=True), control, stats, wait_s)


def _give(give: Callable[[], ControlRecord], control: Path, stats: Path | None, wait_s: float | None) -> None:
    if wait_s is not None and stats is None:
        raise click.UsageError("--wait needs --stats: the stats file says what is in effect")
    try:
        record = give()
    except ControlFileError as error:
        complain(f"the control file {control} {error}")
        sys.exit(NOT_WRITTEN)
    click.echo(f"spark-overlay: {control} asks for {asked(record)}")
    if stats is None:
        return
    figures, why = wait_for(stats, record, WAIT_S if wait_s is None else wait_s)
    if figures is None:
        click.echo(f"spark-overlay: not in effect: {printable(why)}", err=True)
        sys.exit(NOT_IN_EFFECT)
    sentence, fine = in_effect(figures, record)
    click.echo(f"spark-overlay: {printable(sentence)}", err=not fine)
    if not fine:
        sys.exit(NOT_IN_EFFECT)


def asked(record: ControlRecord) -> str:
    """A record in a few words."""
    cap = "" if record.depth_max is None else f", {record.depth_max} draft positions at most"
    return f"{record.state}{cap}, rearm {record.rearm}"


def in_effect(stats: Mapping[str, Any], ordered: ControlRecord) -> tuple[str, bool]:
    """What is in effect, and whether that is what was ordered.  stats: the figures, from `ordering.wait_for`."""
    control = stats["control"]
    if control.get("state") != ordered.state:
        return f"in effect: {control.get('state')}, as a later order asks", False
    if ordered.state == "paused":
        return "in effect: paused, no session with the worker", True
    if stats.get("disabled"):
        return f"in effect, but the worker is refused: {stats['disabled']}", False
    if not stats.get("connected"):
        return f"in effect, but no worker is connected: {stats.get('last_failure') or 'no answer yet'}", False
    return f"in effect: active, connected to {stats.get('endpoint')}", True
