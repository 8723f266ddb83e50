"""`engram-remote bench`: lookups beside a gather in memory, the wire, and the disk."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from engram_remote.bench.figures import LOCAL_RAM, ROWS, Size, Spread
from engram_remote.bench.measure import Bench, Measured, Plan, sizes_of
from engram_remote.commands.consoles import plain_console
from engram_remote.commands.reports import check_place, write_report
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.tables.manifest import read_manifest


@click.command("bench", short_help="Time lookups over each endpoint, and from disk.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--endpoint", "endpoints", multiple=True, required=True, help="Of a table server.  Repeatable.")
@click.option(
    "--wire",
    "wires",
    multiple=True,
    metavar="ENDPOINT=BENCH",
    help="Where `ofl bench serve` listens beside that endpoint's server.  [default: one of its own is tried]",
)
@click.option(
    "--rows", default=",".join(map(str, ROWS)), show_default=True, help="Rows of a lookup, by comma."
)
@click.option(
    "--rounds", type=click.IntRange(10, 100_000), default=200, show_default=True, help="Of each kind."
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--layer", type=int, help="Of the model.  [default: the manifest's first]")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the ids.")
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="The servers hold this key."
)
@click.option("--spin-us", type=click.IntRange(0, 1_000_000), default=2000, show_default=True)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there."
)
def command(
    folder: Path,
    endpoints: tuple[str, ...],
    wires: tuple[str, ...],
    rows: str,
    rounds: int,
    rank: int,
    layer: int | None,
    seed: int,
    key_file: Path | None,
    spin_us: int,
    json_file: Path | None,
) -> None:
    """Look rows of DIR's shard up over each endpoint, from memory and from disk, with new ids each time.

    Times are the medians of whole lookups.  "gather": numpy.take over the same rows in this process's memory.  "wire":
    a reply of the same size over the same transport, by `ofl bench`.
    """
    try:
        sizes = tuple(sizes_of(rows))
    except ValueError as error:
        raise Problem(f"--rows: {error}") from error
    check_place("--json", json_file)
    console = plain_console(stderr=True)
    with problems_as_sentences():
        chosen = read_manifest(folder).layers[0].layer if layer is None else layer
        plan = Plan(
            folder, endpoints, _pairs(wires, endpoints), sizes, rounds, rank, chosen, seed, key_file, spin_us
        )
        try:
            bench = Bench(plan)
        except ValueError as error:
            raise Problem(str(error)) from error
        except MemoryError as error:
            raise Problem(f"{folder}: the rows do not fit in this host's memory ({error})") from error
        measured = bench.run(lambda text: console.print(text, style="dim"))
        show(measured, plain_console())
        if json_file is not None:
            write_report(json_file, json.dumps(record(measured), indent=1) + "\n")


def record(measured: Measured) -> dict[str, Any]:
    """For JSON."""
    return {
        "shard_bytes": measured.shard_bytes,
        "disk": measured.disk,
        "page_cache_share": {source: round(share, 4) for source, share in measured.resident.items()},
        "wire_not_measured": measured.unmeasured,
        "sizes": [size.record() for size in measured.sizes],
    }


def show(measured: Measured, console: Console) -> None:
    """A table for each size."""
    for size in measured.sizes:
        table = Table(title=f"{size.rows} rows, {size.rows * size.row_bytes / 1e6:.2f} MB")
        for name in ("rows from", "p50 us", "p99 us", "GB/s", "x gather", "x wire", "x wire + gather"):
            table.add_column(name, justify="left" if name == "rows from" else "right")
        for (source, endpoint), spread in size.lookups.items():
            table.add_row(*_line(size, source, endpoint, spread))
        for endpoint, spread in size.wire.items():
            table.add_row(f"wire alone, {endpoint}", *_times(spread), "", "", "", "", style="dim")
        console.print(table)
    shares = ", ".join(f"{name}: {share:.0%}" for name, share in measured.resident.items())
    console.print(
        f"{measured.shard_bytes / 1e6:.0f} MB of rows; in the page cache before its lookups: {shares}"
    )
    for name, how in measured.disk.items():
        console.print(f"{name}: {how}")
    for endpoint, why in measured.unmeasured.items():
        console.print(f"the wire of {endpoint} was not measured: {why}")


def _line(size: Size, source: str, endpoint: str, spread: Spread) -> tuple[str, ...]:
    name = f"{source}, {endpoint}" if endpoint else source + (" (the gather)" if source == LOCAL_RAM else "")
    rate = f"{size.rows * size.row_bytes / spread.p50_ns:.2f}"
    floor = ("", "")
    if endpoint in size.wire:
        floor = (f"{spread.p50_ns / size.wire[endpoint].p50_ns:.2f}", f"{size.ratio_to_floor(endpoint):.2f}")
    return name, *_times(spread), rate, f"{size.ratio_to_gather(source, endpoint):.2f}", *floor


def _times(spread: Spread) -> tuple[str, str]:
    return f"{spread.p50_ns / 1e3:.1f}", f"{spread.p99_ns / 1e3:.1f}"


def _pairs(wires: tuple[str, ...], endpoints: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in wires:
        endpoint, is_pair, wire = pair.rpartition("=")
        if not is_pair or endpoint not in endpoints:
            raise Problem(f"--wire: {pair!r} does not begin with one of the endpoints and '='")
        found[endpoint] = wire
    return found
