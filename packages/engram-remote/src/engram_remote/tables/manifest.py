"""What a folder of shards says about itself: `manifest.json`, its schema, and the identity that names the whole.

Strict: whatever is not exactly as a build writes it is refused with file and field.  The identity is the sha256
of the canonical JSON of everything else in the manifest, so equal identities mean equal rows in equal places.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from ofl.contract.engram_v1.layout import COLUMNS_MAX, LAYERS_MAX, RANKS_MAX
from ofl.contract.identity import canonical_json
from ofl.files import FileTooLongError, read_plain
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engram_remote.tables.errors import ManifestError
from engram_remote.tables.heads import ROWS_MAX
from engram_remote.tables.layout import HEADER_BYTES, ShardHeader

FILE_NAME = "manifest.json"
MANIFEST_BYTES_MAX = 256 << 20
"""A table of 1 TiB in chunks of 1 MiB needs a quarter of it."""
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 4096, 1 << 30
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", min_length=64, max_length=64)]
"""The lengths close what the pattern leaves open where `$` also matches before a last line end."""
FileName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$", min_length=1, max_length=120)]
"""A name in the manifest's own folder: no separator, no leading dot."""
LAYER_MAX = (1 << 32) - 1
Layer = Annotated[int, Field(ge=0, lt=LAYER_MAX + 1)]
Row = Annotated[int, Field(ge=0, le=ROWS_MAX)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CheckpointSource(_Strict):
    """Rows that come from a checkpoint: the digests of its two tensors, whole, whatever their names and files."""

    kind: Literal["safetensors"]
    rows: Row = Field(gt=0, description="rows of both tensors; those past the layer's rows are in no shard")
    values_sha256: Sha256
    scales_sha256: Sha256


class SyntheticSource(_Strict):
    """Rows that a generator makes; `rows` does not enter into them."""

    kind: Literal["synthetic"]
    generator: Literal["philox-1"]
    seed: int = Field(ge=0, lt=1 << 53)


class LayerEntry(_Strict):
    """One layer: its shards hold the rows 0 .. rows-1."""

    layer: Layer
    rows: Row = Field(gt=0)
    source: CheckpointSource | SyntheticSource = Field(discriminator="kind")
    source_sha256: Sha256 = Field(
        description="of the canonical JSON of layer and source; shard headers hold it"
    )


class Shard(_Strict):
    """One file.  chunks: sha256 of each chunk_bytes of the file, header included; the last may be shorter."""

    file: FileName
    layer: Layer
    rank: int = Field(ge=0, lt=RANKS_MAX)
    row_start: Row
    row_end: Row
    bytes: int = Field(gt=HEADER_BYTES, le=HEADER_BYTES + ROWS_MAX * 2 * COLUMNS_MAX)
    sha256: Sha256
    chunk_bytes: int = Field(ge=CHUNK_BYTES_MIN, le=CHUNK_BYTES_MAX, multiple_of=4096)
    chunks: list[Sha256] = Field(min_length=1)

    @property
    def rows(self) -> int:
        return self.row_end - self.row_start


class Manifest(_Strict):
    """The whole folder.  Shards stand in the order of layers, and of ranks within a layer."""

    format: Literal["engram-tables"]
    format_version: Literal[1]
    byte_order: Literal["little"] = Field(description="of the header's integers; rows are bytes")
    row_layout: Literal["values,scales"]
    value_dtype: Literal["F8_E4M3"]
    scale_dtype: Literal["F8_E8M0"]
    header_bytes: Literal[4096]
    columns: int = Field(ge=1, le=COLUMNS_MAX)
    scales: int = Field(ge=1, le=COLUMNS_MAX)
    scale_block: int = Field(ge=1, le=COLUMNS_MAX)
    row_bytes: int = Field(ge=2, le=2 * COLUMNS_MAX)
    ranks: int = Field(ge=1, le=RANKS_MAX)
    layers: list[LayerEntry] = Field(min_length=1, max_length=LAYERS_MAX)
    shards: list[Shard] = Field(min_length=1, max_length=LAYERS_MAX * RANKS_MAX)
    identity: Sha256 = Field(description="sha256 of the canonical JSON of all other fields")

    @classmethod
    def make(cls, **facts: Any) -> Self:
        """A manifest from everything but the identity and what is the same in each; raises ValueError."""
        fixed = {
            "format": "engram-tables",
            "format_version": 1,
            "byte_order": "little",
            "row_layout": "values,scales",
            "value_dtype": "F8_E4M3",
            "scale_dtype": "F8_E8M0",
            "header_bytes": HEADER_BYTES,
        }
        plain = json.loads(canonical_json({**fixed, **facts}))
        made = cls.model_validate({**plain, "identity": identity_of(plain)})
        _check(Path(FILE_NAME), made)
        return made

    def layer(self, layer: int) -> LayerEntry:
        """Raises KeyError where there is no such layer."""
        return {entry.layer: entry for entry in self.layers}[layer]

    def shard(self, layer: int, rank: int) -> Shard:
        """Raises KeyError where there is no such shard."""
        return {(shard.layer, shard.rank): shard for shard in self.shards}[layer, rank]

    def header(self, shard: Shard) -> ShardHeader:
        """What the shard's header must say."""
        return ShardHeader(
            layer=shard.layer,
            rank=shard.rank,
            ranks=self.ranks,
            columns=self.columns,
            scale_block=self.scale_block,
            row_start=shard.row_start,
            row_end=shard.row_end,
            source_sha256=bytes.fromhex(self.layer(shard.layer).source_sha256),
        )

    def to_json(self) -> bytes:
        """The file's text: indented, so that it can be read; any other spacing names the same identity."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True).encode() + b"\n"


def identity_of(manifest: dict[str, Any]) -> str:
    """sha256 of the canonical JSON of everything but "identity", as hex digits."""
    rest = {name: value for name, value in manifest.items() if name != "identity"}
    return hashlib.sha256(canonical_json(rest)).hexdigest()


def source_digest(layer: int, source: CheckpointSource | SyntheticSource) -> str:
    """Digest that the headers of a layer's shards hold."""
    return hashlib.sha256(canonical_json({"layer": layer, "source": source.model_dump()})).hexdigest()


def parse_manifest(file: Path, text: bytes) -> Manifest:
    """A manifest from the text of a file.  file: for messages.  Raises ManifestError naming file and field."""
    try:
        plain = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ManifestError(file, "text", f"is not proper JSON ({error})") from error
    if not isinstance(plain, dict):
        raise ManifestError(file, "text", "is not a JSON object")
    try:
        manifest = Manifest.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ManifestError(file, _dotted(first["loc"]), first["msg"]) from error
    _check(file, manifest)
    computed = identity_of(plain)
    if computed != manifest.identity:
        raise ManifestError(
            file, "identity", f"{manifest.identity} is stated, but the rest of the manifest makes {computed}"
        )
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of shards.  Raises ManifestError, OSError."""
    file = folder / FILE_NAME
    try:
        text = read_plain(file, MANIFEST_BYTES_MAX)
    except FileTooLongError:
        raise ManifestError(file, "text", f"is longer than {MANIFEST_BYTES_MAX} bytes") from None
    return parse_manifest(file, text)


def manifest_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the file, from the model; rules between fields are in docs/engram/format.md."""
    return {"$schema": SCHEMA_DIALECT, **Manifest.model_json_schema()}


def _check(file: Path, manifest: Manifest) -> None:
    """What holds between fields.  Raises ManifestError naming the first field that breaks it."""
    if manifest.columns != manifest.scales * manifest.scale_block:
        detail = f"{manifest.scales} blocks of {manifest.scale_block} do not make {manifest.columns} columns"
        raise ManifestError(file, "scales", detail)
    if manifest.row_bytes != manifest.columns + manifest.scales:
        detail = f"{manifest.row_bytes} where columns and scales make {manifest.columns + manifest.scales}"
        raise ManifestError(file, "row_bytes", detail)
    layers = [entry.layer for entry in manifest.layers]
    if layers != sorted(set(layers)):
        raise ManifestError(file, "layers", "must ascend without repetition")
    for index, entry in enumerate(manifest.layers):
        _check_layer(file, f"layers[{index}]", entry)
    expected = [(layer, rank) for layer in layers for rank in range(manifest.ranks)]
    found = [(shard.layer, shard.rank) for shard in manifest.shards]
    if found != expected:
        at = next((i for i, pair in enumerate(expected) if found[i : i + 1] != [pair]), len(expected))
        wanted = "layer {} rank {}".format(*expected[at]) if at < len(expected) else "nothing more"
        raise ManifestError(file, f"shards[{at}]", f"{wanted} must stand here")
    names = {FILE_NAME}
    for index, shard in enumerate(manifest.shards):
        if shard.file in names:
            raise ManifestError(file, f"shards[{index}].file", f"{shard.file} is another file's name")
        names.add(shard.file)
        _check_rows(file, manifest, index)
        _check_size(file, f"shards[{index}]", manifest, shard)


def _check_layer(file: Path, where: str, entry: LayerEntry) -> None:
    if isinstance(entry.source, CheckpointSource) and entry.source.rows < entry.rows:
        raise ManifestError(file, f"{where}.source.rows", f"{entry.source.rows} cannot hold {entry.rows}")
    if entry.source_sha256 != source_digest(entry.layer, entry.source):
        raise ManifestError(file, f"{where}.source_sha256", "is not the digest of layer and source")


def _check_rows(file: Path, manifest: Manifest, index: int) -> None:
    """The shards of a layer follow one another from row 0 to its last."""
    where, shard = f"shards[{index}]", manifest.shards[index]
    before = manifest.shards[index - 1].row_end if shard.rank else 0
    last = manifest.layers[index // manifest.ranks].rows
    if shard.row_start != before:
        detail = f"{shard.row_start} where the rank before ends at {before}: rows are missing or twice there"
        raise ManifestError(file, f"{where}.row_start", detail)
    if not shard.row_start < shard.row_end <= last:
        detail = f"{shard.row_end} does not follow {shard.row_start} within {last} rows"
        raise ManifestError(file, f"{where}.row_end", detail)
    if shard.rank == manifest.ranks - 1 and shard.row_end != last:
        raise ManifestError(file, f"{where}.row_end", f"{shard.row_end} where the layer ends at {last}")


def _check_size(file: Path, where: str, manifest: Manifest, shard: Shard) -> None:
    size = HEADER_BYTES + shard.rows * manifest.row_bytes
    if shard.bytes != size:
        raise ManifestError(file, f"{where}.bytes", f"{shard.bytes} where its rows make {size}")
    chunks = -(-shard.bytes // shard.chunk_bytes)
    if len(shard.chunks) != chunks:
        raise ManifestError(file, f"{where}.chunks", f"{len(shard.chunks)} where its size makes {chunks}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} stands twice in one object")
        found[name] = value
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _dotted(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
