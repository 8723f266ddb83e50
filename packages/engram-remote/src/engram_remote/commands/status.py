"""`engram-remote status`: what a server holds, counts and refuses."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import click
from ofl.contract.records import printable
from rich.console import Console
from rich.table import Table

from engram_remote.commands.consoles import plain_console
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.server.status import ServerStatus, ask

TIMEOUT_S_MAX = 3600.0


@click.command("status", short_help="Show a server's tables and counters.")
@click.argument("endpoint")
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="The server holds this key."
)
@click.option("--timeout-s", type=float, default=5.0, show_default=True, help="Give up after this long.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(endpoint: str, key_file: Path | None, timeout_s: float, as_json: bool) -> None:
    """Ask the server at ENDPOINT for its figures; needs no tables here."""
    if not (math.isfinite(timeout_s) and 0 < timeout_s <= TIMEOUT_S_MAX):
        raise Problem(f"--timeout-s: {timeout_s} is not above 0 and up to {TIMEOUT_S_MAX:g}")
    with problems_as_sentences():
        status = ask(endpoint, timeout_s, key_file)
    if as_json:
        click.echo(json.dumps(asdict(status), indent=1))
    else:
        show(status, plain_console())


def show(status: ServerStatus, console: Console) -> None:
    """The figures as tables: the server, what it holds, its counters."""
    figures = status.figures
    server = Table(title=f"tables at {status.endpoint}", show_header=False)
    server.add_column()
    server.add_column(overflow="fold")
    server.add_row("round trip", f"{status.round_trip_us} us")
    server.add_row("wire", status.wire)
    server.add_row("key", "proved by both sides" if status.authenticated else "none")
    for name in ("identity", "boot", "uptime_s", "draining", "columns", "scales", "gather_threads"):
        server.add_row(name, _shown(figures.get(name)))
    for name, value in _items(figures.get("limits")):
        server.add_row(name, _shown(value))
    console.print(server)
    held = Table("layer", "rank", "ranks", "rows", title=f"{_shown(figures.get('table_count'))} tables")
    tables = figures.get("tables")
    for table in tables if isinstance(tables, list) else ():
        facts = dict(_items(table))
        rows = f"{_shown(facts.get('row_start'))} .. {_shown(facts.get('row_end'))}"
        held.add_row(*(_shown(facts.get(name)) for name in ("layer", "rank", "ranks")), rows)
    console.print(held)
    counters = Table("counter", "value", title="counters")
    for group in ("counters", "transport"):
        for name, value in _items(figures.get(group)):
            counters.add_row(f"{group}.{name}", _shown(value))
    console.print(counters)


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _shown(value: object) -> str:
    return "-" if value is None else printable(str(value))
