"""`engram-remote probe`: what this host offers tables, as a server and as a client."""

import json
from dataclasses import asdict, dataclass

import click
import ofl.native
from ofl.hostinfo import limits
from rich.table import Table

from engram_remote import native
from engram_remote.commands.consoles import plain_console
from engram_remote.problem import Problem
from engram_remote.server.preflight import rooms

WIRES = ("tcp", "shm", "rdma")


@dataclass(frozen=True)
class Feature:
    """Whether this build has it on this host, and what it says about it."""

    there: bool
    said: str


@dataclass(frozen=True)
class Probe:
    """memory: bytes that each limit leaves.  limits: soft ones; -1: none."""

    features: dict[str, Feature]
    memory: dict[str, int]
    limits: dict[str, int]


@click.command("probe", short_help="Show what this host offers tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Features of this build on this host, wires, memory that is left, limits.  Connects to nothing."""
    found = probe()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    table = Table("what", "here", title="engram-remote on this host")
    table.add_column("details", overflow="fold")
    for name, feature in found.features.items():
        table.add_row(name, "yes" if feature.there else "no", feature.said)
    for limit, size in found.memory.items():
        table.add_row("memory", f"{size / (1 << 30):.2f} GiB", limit)
    for name, value in found.limits.items():
        table.add_row(name, "unlimited" if value < 0 else str(value), "")
    plain_console().print(table)


def probe() -> Probe:
    """Raises Problem where a library is missing."""
    try:
        features = {name: Feature(*native.said_of(name)) for name in native.FEATURES}
    except ImportError as error:
        raise Problem(str(error)) from error
    for wire in WIRES:
        lacks = ofl.native.missing(wire)
        features[wire] = Feature(not lacks, lacks)
    return Probe(features, {room.where: room.have for room in rooms()}, limits())
