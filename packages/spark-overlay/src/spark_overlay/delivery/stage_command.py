"""`spark-overlay stage`: the command line over `staging`."""

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from spark_overlay.complaint import complain
from spark_overlay.delivery.content import Content, Item, Manifest, collect, parse_item, read_manifest
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.staging import Result, Status, check, roll_back, stage
from spark_overlay.delivery.transport import SSH, Destination, RemoteShell, parse_destination, parse_rsh
from spark_overlay.launch_command import FiniteRange

KEEP = 3
KEEP_MAX = 100
TIMEOUT_S = 600.0
STOPPED_STATUS = 130
SHORT = 12
"""Digits of a stage's name that a person needs."""


@click.command("stage")
@click.option(
    "--to", "to", multiple=True, metavar="HOST:DIR", help="Where to; DIR alone is on this host. Repeatable."
)
@click.option("--manifest", type=click.Path(path_type=Path), help="A stage manifest (TOML).")
@click.option(
    "--keep",
    type=click.IntRange(1, KEEP_MAX),
    default=None,
    help=f"Stages to keep on each host; {KEEP} by default.",
)
@click.option(
    "--rsh", default=SSH, show_default=True, help="The remote shell; {host} in it stands for the host."
)
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds that one call to a host may take.",
)
@click.option(
    "--check", "checking", is_flag=True, help="Verify what is current on every host; change nothing."
)
@click.option(
    "--rollback", "going_back", is_flag=True, help="Make current what was current before, on every host."
)
@click.option("--json", "as_object", is_flag=True, help="Print one JSON object.")
@click.argument("items", nargs=-1, metavar="[PLACE=SOURCE]...")
def stage_command(
    to: tuple[str, ...],
    manifest: Path | None,
    keep: int | None,
    rsh: str,
    timeout_s: float,
    checking: bool,
    going_back: bool,
    as_object: bool,
    items: tuple[str, ...],
) -> None:
    """Copy what a host needs to every host, verify each file's sha256 there, and only then switch to it everywhere.

    PLACE=SOURCE puts a file, or a folder's files, at PLACE below DIR/current. The exit status is the highest of all
    hosts': 2 nothing was asked of any host, 3 not reached, 4 not copied, 5 digests differ, 6 no such stage there,
    7 not switched.
    """
    signal_to_stop()
    try:
        asked = _asked(manifest, items)
        destinations = _destinations(to or asked.to)
        shell = RemoteShell(parse_rsh(rsh), timeout_s)
        results = _done(asked, destinations, shell, keep or asked.keep or KEEP, checking, going_back)
    except DeliveryError as error:
        complain(str(error))
        sys.exit(error.status)
    except KeyboardInterrupt:
        click.echo("spark-overlay: stopped; `spark-overlay stage --check` says what each host has", err=True)
        sys.exit(STOPPED_STATUS)
    _show(results, as_object)
    sys.exit(max(one.status for one in results))


def signal_to_stop() -> None:
    """Let SIGTERM stop as Ctrl-C does, with what was started."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _asked(manifest: Path | None, items: Sequence[str]) -> Manifest:
    made = read_manifest(manifest) if manifest is not None else Manifest([])
    more: list[Item] = [parse_item(text) for text in items]
    return Manifest([*made.items, *more], made.to, made.keep)


def _destinations(to: Sequence[str]) -> list[Destination]:
    if not to:
        raise DeliveryError("--to: HOST:DIR is needed, or DIR on this host")
    found = [parse_destination(text) for text in to]
    places = [_place(one) for one in found]
    for one, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise DeliveryError(f"--to: {one} is named twice")
    return found


def _place(destination: Destination) -> tuple[str, str]:
    """Alike for one folder that was written in two ways, as far as that can be told from here."""
    folder = destination.folder
    return destination.host, os.path.normpath(folder) if destination.host else os.path.realpath(folder)


def _done(
    asked: Manifest,
    destinations: Sequence[Destination],
    shell: RemoteShell,
    keep: int,
    checking: bool,
    going_back: bool,
) -> list[Result]:
    if checking and going_back:
        raise DeliveryError("--check and --rollback exclude each other")
    if going_back:
        return roll_back(destinations, shell)
    content: Content | None = collect(asked.items) if asked.items else None
    if checking:
        return check(destinations, shell, content.name if content is not None else "")
    if content is None:
        raise DeliveryError("there is nothing to stage: name --manifest, or PLACE=SOURCE")
    return stage(content, destinations, shell, keep)


def _show(results: Sequence[Result], as_object: bool) -> None:
    if as_object:
        click.echo(
            json.dumps({"status": int(max(one.status for one in results)), "hosts": _rows(results)}, indent=1)
        )
        return
    table = Table("Host", "Stage", "Result", "Seconds")
    for column in table.columns:
        column.overflow = "fold"
    for one in results:
        table.add_row(str(one.destination), one.stage[:SHORT] or "-", one.sentence, f"{one.seconds:.1f}")
    Console().print(table)
    for one in results:
        if one.status > Status.HELD_BACK:
            complain(f"{one.destination}: {one.sentence}")


def _rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        {
            "destination": str(one.destination),
            "status": int(one.status),
            "stage": one.stage,
            "sentence": one.sentence,
            "seconds": round(one.seconds, 3),
        }
        for one in results
    ]
