"""`engram-remote size`: what a table will cost on a host and a link, with the formula of each figure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX, COLUMNS_MAX, LAYERS_MAX, RANKS_MAX
from rich.table import Table as Shown

from engram_remote.commands.consoles import plain_console
from engram_remote.commands.serve import default_gather_threads
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.server.service import ServerLimits
from engram_remote.tables import measure
from engram_remote.tables.heads import ROWS_MAX
from engram_remote.tables.layout import SCALE_BLOCK, scales_of
from engram_remote.tables.manifest import Manifest, read_manifest
from engram_remote.tables.sizing import (
    LOOKUP_ROWS,
    Figure,
    Host,
    Link,
    Table,
    load_figures,
    lookup_figures,
    memory_figures,
)
from engram_remote.tables.verify import default_threads

ASSUMED = {
    "link_gbps": 25.0,
    "round_trip_us": 20.0,
    "memory_gb_per_s": 8.0,
    "row_ns": 100.0,
    "read_gb_per_s": 2.0,
    "hash_gb_per_s": 1.0,
}
"""What is taken where nothing is given or measured: modest values, marked as assumed in what is printed."""
_SHAPE = ("rows", "columns", "scale_block", "layers", "ranks")
_LIMITS = ServerLimits()


class PositiveFloat(click.FloatRange):
    """A number that no figure overflows with; click's own range lets NaN pass."""

    def __init__(self) -> None:
        super().__init__(min=1e-9, max=1e12)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not number > 0:
            self.fail(f"{value} is not a number above zero.", param, ctx)
        return number


_RATE = PositiveFloat()


# fmt: off
_OPTIONS = (
    click.argument("folder", metavar="[DIR]", required=False,
                   type=click.Path(exists=True, file_okay=False, path_type=Path)),
    click.option("--rows", type=click.IntRange(1, ROWS_MAX), help="Of each layer, over all ranks.  [default: DIR's]"),
    click.option("--columns", type=click.IntRange(1, COLUMNS_MAX), help="Values of a row.  [default: DIR's, or 256]"),
    click.option("--scale-block", type=click.IntRange(1, COLUMNS_MAX), help="Values that share a scale.  "
                 "[default: DIR's, or 32]"),
    click.option("--layers", type=click.IntRange(1, LAYERS_MAX), help="How many.  [default: DIR's, or 2]"),
    click.option("--ranks", type=click.IntRange(1, RANKS_MAX), help="[default: DIR's, or 1]"),
    click.option("--link-gbps", type=_RATE, help=f"10**9 bits a second.  [default: {ASSUMED['link_gbps']}]"),
    click.option("--round-trip-us", type=_RATE, help=f"Of the link.  [default: {ASSUMED['round_trip_us']}]"),
    click.option("--memory-gb-per-s", type=_RATE, help="Copied by one thread, 10**9 bytes a second."),
    click.option("--row-ns", type=_RATE, help="What finding a row at random costs beside copying it."),
    click.option("--read-gb-per-s", type=_RATE, help="Of the shards' disk, 10**9 bytes a second."),
    click.option("--hash-gb-per-s", type=_RATE, help="sha256 by one thread, 10**9 bytes a second."),
    click.option("--measure", "measured", is_flag=True, help="Measure on this host what of the last four is not given; "
                 "reads are measured on DIR's shards."),
    click.option("--load-threads", type=click.IntRange(1, 1024), help="[default: this host's cores]"),
    click.option("--gather-threads", type=click.IntRange(1, 1024), help="[default: as of `serve` on this host]"),
    click.option("--batch-rows", type=click.IntRange(1, BATCH_ROWS_MAX), default=_LIMITS.batch_rows_max,
                 show_default=True),
    click.option("--reply-buffers", type=click.IntRange(1, 65536), default=_LIMITS.reply_buffers, show_default=True),
    click.option("--huge-pages/--small-pages", default=True, show_default=True, help="2 MiB or 4 KiB."),
    click.option("--json", "as_json", is_flag=True, help="Print inputs and figures as JSON."),
)
# fmt: on


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("size", short_help="Predict memory, load time and latency.")
@_options
def command(
    folder: Path | None,
    measured: bool,
    load_threads: int | None,
    gather_threads: int | None,
    batch_rows: int,
    reply_buffers: int,
    huge_pages: bool,
    as_json: bool,
    **words: Any,
) -> None:
    """Predict what tables cost: the server's memory, time to load and verify, and latency of a lookup.

    The tables are those of DIR's manifest, or of --rows and the options after it.
    """
    with problems_as_sentences():
        manifest = read_manifest(folder) if folder is not None else None
        table = _table(manifest, {name: words[name] for name in _SHAPE})
        rates = {name: words[name] for name in ASSUMED}
        inputs = _inputs(rates, table, folder if measured else None, manifest, measured)
    value = {name: one["value"] for name, one in inputs.items()}
    limits = ServerLimits(batch_rows_max=batch_rows, reply_buffers=reply_buffers)
    host = Host(
        memory_gb_per_s=value["memory_gb_per_s"],
        row_ns=value["row_ns"],
        read_gb_per_s=value["read_gb_per_s"],
        hash_gb_per_s=value["hash_gb_per_s"],
        load_threads=load_threads or default_threads(),
        gather_threads=gather_threads or default_gather_threads(),
        page_bytes=1 << 21 if huge_pages else 1 << 12,
        reply_buffer_bytes=limits.buffer_bytes(table.columns, table.scales, len(table.rows)),
    )
    link = Link(value["link_gbps"], value["round_trip_us"])
    figures = memory_figures(table, host) + load_figures(table, host)
    for count in LOOKUP_ROWS:
        figures += lookup_figures(table, host, link, count)
    if as_json:
        facts = {"table": asdict(table), "host": asdict(host), "inputs": inputs}
        click.echo(json.dumps({**facts, "figures": {one.name: asdict(one) for one in figures}}, indent=1))
    else:
        _show(inputs, figures)


def _table(manifest: Manifest | None, given: Mapping[str, int | None]) -> Table:
    """The manifest's table or that of the options.  Raises Problem where both, or neither, say it."""
    if manifest is not None:
        if stray := [name for name, value in given.items() if value is not None]:
            raise Problem(f"--{stray[0].replace('_', '-')}: DIR says it; leave one of both out")
        rows = [entry.rows for entry in manifest.layers]
        return Table(rows, manifest.columns, manifest.scales, manifest.ranks)
    if given["rows"] is None:
        raise Problem("--rows: is needed where no DIR is named")
    columns = given["columns"] or 256
    try:
        scales = scales_of(columns, given["scale_block"] or SCALE_BLOCK)
    except ValueError as error:
        raise Problem(f"--{error}") from error
    return Table([given["rows"]] * (given["layers"] or 2), columns, scales, given["ranks"] or 1)


def _inputs(
    rates: Mapping[str, float | None],
    table: Table,
    folder: Path | None,
    manifest: Manifest | None,
    measured: bool,
) -> dict[str, dict[str, Any]]:
    """Each rate with where it comes from: given, measured, or assumed."""
    found: dict[str, dict[str, Any]] = {}
    found |= {name: {"value": value, "from": "given"} for name, value in rates.items() if value is not None}

    def add(name: str, value: float) -> None:
        found.setdefault(name, {"value": value, "from": "measured"})

    if measured:
        if "memory_gb_per_s" not in found:
            add("memory_gb_per_s", measure.memory_gb_per_s())
        if "row_ns" not in found:
            add("row_ns", measure.row_ns(table.row_bytes, found["memory_gb_per_s"]["value"]))
        if "hash_gb_per_s" not in found:
            add("hash_gb_per_s", measure.hash_gb_per_s())
        if folder is not None and manifest is not None and "read_gb_per_s" not in found:
            here = [folder / shard.file for shard in manifest.shards if (folder / shard.file).is_file()]
            if here:
                add("read_gb_per_s", measure.read_gb_per_s(here[0]))
    for name, value in ASSUMED.items():
        found.setdefault(name, {"value": value, "from": "assumed"})
    return {name: found[name] for name in ASSUMED}


def _show(inputs: Mapping[str, Mapping[str, Any]], figures: list[Figure]) -> None:
    console = plain_console()
    taken = Shown("input", "value", "from")
    for name, one in inputs.items():
        taken.add_row(name, f"{one['value']:,.2f}", one["from"])
    console.print(taken)
    shown = Shown("figure", "value", "formula")
    for figure in figures:
        shown.add_row(figure.title, _with_unit(figure), figure.formula)
    console.print(shown)


def _with_unit(figure: Figure) -> str:
    if figure.unit == "bytes":
        return (
            f"{figure.value / 2**30:,.3f} GiB"
            if figure.value >= 1 << 30
            else f"{figure.value / 2**20:,.3f} MiB"
        )
    return f"{figure.value:,.2f} {figure.unit}"
