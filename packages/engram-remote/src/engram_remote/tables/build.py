"""Makes a folder of shards: streams rows from a source, digests them, and gives names to what is complete.

A shard grows as NAME.part; it gets its own name when all of it is on disk, and the manifest comes last.  What
was killed or ran out of space goes on where it stopped: parts are digested again and compared with the journal.
Memory is bounded by a few chunks.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ofl.contract.engram_v1.layout import LAYERS_MAX
from ofl.files import publish
from pydantic import ValidationError

from engram_remote.tables.errors import BuildError, SourceError
from engram_remote.tables.files import require_space
from engram_remote.tables.journal import Journal
from engram_remote.tables.layout import ShardHeader, scales_of
from engram_remote.tables.manifest import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    FILE_NAME,
    LAYER_MAX,
    LayerEntry,
    Manifest,
    source_digest,
)
from engram_remote.tables.shard_job import BuildOptions, ShardJob, shard_name
from engram_remote.tables.source import Source

MANIFEST_BYTES_PER_CHUNK = 80

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes more that are done, and bytes in all (0: as before)."""


def build(source: Source, folder: Path, options: BuildOptions, progress: Progress) -> Manifest:
    """Make the shards and the manifest of a folder, which may hold an unfinished build of the same.

    Raises BuildError, SourceError, OSError; the folder then holds no manifest, and another call goes on from there.
    """
    _check_options(options)
    _check_layers(source)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / FILE_NAME).exists():
        raise BuildError(
            f"{folder / FILE_NAME}: is there already; build into another folder, or remove this one"
        )
    headers = _ranges(source, options.ranks)
    plan = {
        "format_version": 1,
        "columns": source.heads.columns,
        "scale_block": source.scale_block,
        "rows": {str(heads.layer): heads.rows for heads in source.heads.layers},
        "ranges": {shard_name(layer, rank): rows for (layer, rank), rows in headers.items()},
        "rank": options.rank,
        "chunk_bytes": options.chunk_bytes,
    }
    with closing(Journal(folder, plan)) as journal:
        layers = _described(source, journal, progress)
        jobs = [
            ShardJob(source, folder, journal, _header(source, options, layers[layer], rank, rows), options)
            for (layer, rank), rows in headers.items()
        ]
        _preflight(folder, jobs)
        total = sum(job.header.file_bytes for job in jobs)
        shards = [job.make(lambda done: progress("pack", done, total)) for job in jobs]
        manifest = Manifest.make(
            columns=source.heads.columns,
            scales=scales_of(source.heads.columns, source.scale_block),
            scale_block=source.scale_block,
            row_bytes=jobs[0].header.row_bytes,
            ranks=options.ranks,
            layers=[layer.model_dump() for layer in layers.values()],
            shards=shards,
        )
        for stray in folder.glob(f".{FILE_NAME}.*.part"):  # of an attempt that was killed as it wrote one
            stray.unlink()
        publish(folder / FILE_NAME, manifest.to_json(), synced=True)
        journal.remove()
    return manifest


def _check_options(options: BuildOptions) -> None:
    if options.rank is not None and not 0 <= options.rank < options.ranks:
        raise BuildError(f"rank: {options.rank} is not one of {options.ranks}")
    if not CHUNK_BYTES_MIN <= options.chunk_bytes <= CHUNK_BYTES_MAX or options.chunk_bytes % 4096:
        raise BuildError(f"chunk_bytes: {options.chunk_bytes} is no multiple of 4096 up to {CHUNK_BYTES_MAX}")


def _check_layers(source: Source) -> None:
    """What no manifest could say is refused before the first byte is packed."""
    layers = [heads.layer for heads in source.heads.layers]
    if len(layers) > LAYERS_MAX:
        raise BuildError(f"layers: {len(layers)} are more than a manifest's {LAYERS_MAX}")
    if max(layers) > LAYER_MAX:
        raise BuildError(f"layers: {max(layers)} is not 0 to {LAYER_MAX}")


def _ranges(source: Source, ranks: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Rows by layer and rank, in the manifest's order."""
    try:
        return {
            (heads.layer, rank): heads.rank_rows(rank, ranks)
            for heads in sorted(source.heads.layers, key=lambda heads: heads.layer)
            for rank in range(ranks)
        }
    except ValueError as error:
        raise BuildError(str(error)) from error


def _described(source: Source, journal: Journal, progress: Progress) -> dict[int, LayerEntry]:
    """The manifest's layers; digests of the source are taken from the journal where nothing of it was touched.

    Raises SourceError where the source is not what the unfinished build began with.
    """
    before = _journaled(source, journal)
    stamps = (journal.source or {}).get("stamps")
    if before is not None and source.stamps() and stamps == source.stamps():
        return before
    heads = sorted(source.heads.layers, key=lambda heads: heads.layer)
    total = sum(source.describe_bytes(layer.layer) for layer in heads)
    found = {}
    for layer in heads:
        described = source.describe(layer.layer, lambda done: progress("read source", done, total))
        digest = source_digest(layer.layer, described)
        found[layer.layer] = LayerEntry(
            layer=layer.layer, rows=layer.rows, source=described, source_sha256=digest
        )
    if before is not None and before != found:
        changed = next(layer for layer, entry in found.items() if before[layer] != entry)
        raise SourceError(
            f"{journal.path.parent}: layer {changed}: the source is not what the unfinished build there began with; "
            "give that source, or remove the folder"
        )
    plain = [entry.model_dump() for entry in found.values()]
    journal.set_source({"stamps": source.stamps(), "layers": plain})
    return found


def _journaled(source: Source, journal: Journal) -> dict[int, LayerEntry] | None:
    """What the journal says that the source was; None where it says nothing, or nothing that could be."""
    try:
        before: dict[str, Any] = journal.source or {}
        found = {entry["layer"]: LayerEntry.model_validate(entry) for entry in before["layers"]}
    except (KeyError, TypeError, ValidationError):
        return None
    return found if found.keys() == {heads.layer for heads in source.heads.layers} else None


def _header(
    source: Source, options: BuildOptions, layer: LayerEntry, rank: int, rows: tuple[int, int]
) -> ShardHeader:
    return ShardHeader(
        layer=layer.layer,
        rank=rank,
        ranks=options.ranks,
        columns=source.heads.columns,
        scale_block=source.scale_block,
        row_start=rows[0],
        row_end=rows[1],
        source_sha256=bytes.fromhex(layer.source_sha256),
    )


def _preflight(folder: Path, jobs: Sequence[ShardJob]) -> None:
    """Room for what is not written yet, and for the manifest.  Raises BuildError with need and have."""
    chunks = sum(job.chunk_count for job in jobs)
    missing = sum(max(job.header.file_bytes - job.size_there(), 0) for job in jobs if job.kept)
    require_space(folder, missing + (chunks + 64) * MANIFEST_BYTES_PER_CHUNK * 3)
