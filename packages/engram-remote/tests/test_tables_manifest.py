"""The manifest: what is written is read back, anything else is refused by field, and the schema is the model's."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from engram_remote.tables import manifest as manifest_module
from engram_remote.tables.errors import ManifestError
from engram_remote.tables.manifest import (
    CheckpointSource,
    Manifest,
    SyntheticSource,
    identity_of,
    manifest_schema,
    parse_manifest,
    read_manifest,
    source_digest,
)
from hypothesis import given
from hypothesis import strategies as st

FILE = Path("tables/manifest.json")
SCHEMA = Path(__file__).parents[3] / "docs" / "engram" / "manifest.schema.json"
Change = Callable[[dict[str, Any]], None]


def facts(
    ranks: int = 2,
    layers: tuple[int, ...] = (1, 14),
    rows: tuple[int, ...] = (40, 30),
    chunk_bytes: int = 8192,
) -> dict[str, Any]:
    """What `Manifest.make` wants, of ranks that each have so many rows; digests are made up."""
    sources: list[CheckpointSource | SyntheticSource] = [
        SyntheticSource(kind="synthetic", generator="philox-1", seed=7),
        CheckpointSource(kind="safetensors", rows=9999, values_sha256="a" * 64, scales_sha256="b" * 64),
    ]
    entries, shards = [], []
    for at, layer in enumerate(layers):
        source, start = sources[at % 2], 0
        total = sum(rows[:ranks])
        entries.append(
            {
                "layer": layer,
                "rows": total,
                "source": source.model_dump(),
                "source_sha256": source_digest(layer, source),
            }
        )
        for rank in range(ranks):
            size = 4096 + rows[rank] * 264
            shards.append(
                {
                    "file": f"l{layer}.r{rank}",
                    "layer": layer,
                    "rank": rank,
                    "row_start": start,
                    "row_end": start + rows[rank],
                    "bytes": size,
                    "sha256": "c" * 64,
                    "chunk_bytes": chunk_bytes,
                    "chunks": ["d" * 64] * -(-size // chunk_bytes),
                }
            )
            start += rows[rank]
    shape = {"columns": 256, "scales": 8, "scale_block": 32, "row_bytes": 264, "ranks": ranks}
    return {**shape, "layers": entries, "shards": shards}


def sample() -> dict[str, Any]:
    """A good manifest in plain JSON values."""
    plain: dict[str, Any] = json.loads(Manifest.make(**facts()).to_json())
    return plain


def text_of(plain: dict[str, Any]) -> bytes:
    """The file, with the identity that its content has: nothing but the change itself is wrong with it."""
    return json.dumps({**plain, "identity": identity_of(plain)}).encode()


@given(
    layers=st.sets(st.integers(0, 99), min_size=1, max_size=4),
    rows=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    chunk=st.sampled_from([4096, 8192, 1 << 20]),
)
def test_what_is_made_is_read_back_and_passes_the_schema(
    layers: set[int], rows: list[int], chunk: int
) -> None:
    made = Manifest.make(**facts(len(rows), tuple(sorted(layers)), tuple(rows), chunk))
    assert parse_manifest(FILE, made.to_json()) == made
    jsonschema.validate(json.loads(made.to_json()), manifest_schema(), jsonschema.Draft202012Validator)
    header = made.header(made.shards[-1])
    assert (header.layer, header.rank, header.ranks) == (max(layers), len(rows) - 1, len(rows))
    assert header.file_bytes == made.shards[-1].bytes
    assert header.source_sha256.hex() == made.layers[-1].source_sha256


def test_the_identity_is_the_digest_of_the_canonical_rest_whatever_the_spacing() -> None:
    plain = sample()
    assert parse_manifest(FILE, json.dumps(plain, indent=7).encode()).identity == plain["identity"]
    assert (
        parse_manifest(FILE, json.dumps(dict(reversed(plain.items()))).encode()).identity == plain["identity"]
    )
    # By hand: sorted keys, no spaces, without "identity".
    rest = {key: plain[key] for key in plain if key != "identity"}
    by_hand = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(by_hand).hexdigest() == plain["identity"]


def test_another_identity_is_refused_with_both_digests() -> None:
    plain = sample()
    true, plain["identity"] = plain["identity"], "0" * 64
    with pytest.raises(ManifestError) as caught:
        parse_manifest(FILE, json.dumps(plain).encode())
    assert caught.value.field == "identity"
    assert true in str(caught.value)
    assert "0" * 64 in str(caught.value)


@given(st.data())
def test_a_digest_that_was_tampered_with_changes_the_identity(data: st.DataObject) -> None:
    plain = sample()
    shard = data.draw(st.sampled_from(plain["shards"]))
    chunk = data.draw(st.integers(0, len(shard["chunks"]) - 1))
    shard["chunks"][chunk] = "e" * 64
    with pytest.raises(ManifestError, match=r"^tables/manifest\.json: identity: "):
        parse_manifest(FILE, json.dumps(plain).encode())


def put(value: object, *path: str | int) -> Change:
    """A change: what stands at path becomes value."""

    def change(plain: dict[str, Any]) -> None:
        place: Any = plain
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    """A change: what stands at path is gone."""

    def change(plain: dict[str, Any]) -> None:
        place: Any = plain
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


def swap_shards(plain: dict[str, Any]) -> None:
    shards = plain["shards"]
    shards[0], shards[1] = shards[1], shards[0]


REFUSED: list[tuple[str, Change]] = [
    ("surplus", put(1, "surplus")),
    ("shards[0].surplus", put(1, "shards", 0, "surplus")),
    ("layers[0].source.synthetic.surplus", put(1, "layers", 0, "source", "surplus")),
    ("ranks", drop("ranks")),
    ("shards[1].sha256", drop("shards", 1, "sha256")),
    ("format", put("tables", "format")),
    ("format_version", put(2, "format_version")),
    ("format_version", put("1", "format_version")),
    ("byte_order", put("big", "byte_order")),
    ("row_layout", put("scales,values", "row_layout")),
    ("value_dtype", put("F8_E5M2", "value_dtype")),
    ("scale_dtype", put("F32", "scale_dtype")),
    ("header_bytes", put(0, "header_bytes")),
    ("columns", put(256.0, "columns")),
    ("columns", put(True, "columns")),
    ("columns", put(0, "columns")),
    ("scales", put(7, "scales")),
    ("scales", put(64, "scale_block")),
    ("row_bytes", put(265, "row_bytes")),
    ("ranks", put(0, "ranks")),
    ("shards[2]", put(3, "ranks")),
    ("shards[1]", put(1, "ranks")),
    ("layers", put([], "layers")),
    ("layers[0].layer", put(-1, "layers", 0, "layer")),
    ("layers", put(1, "layers", 1, "layer")),
    ("layers[0].source", put("made up", "layers", 0, "source", "kind")),
    ("layers[0].source.synthetic.seed", put(1 << 53, "layers", 0, "source", "seed")),
    ("layers[0].source_sha256", put(8, "layers", 0, "source", "seed")),
    ("layers[1].source.rows", put(69, "layers", 1, "source", "rows")),
    ("layers[1].source.safetensors.values_sha256", put("A" * 64, "layers", 1, "source", "values_sha256")),
    ("shards[0].file", put("../l1.r0", "shards", 0, "file")),
    ("shards[0].file", put("/etc/passwd", "shards", 0, "file")),
    ("shards[0].file", put("sub/l1.r0", "shards", 0, "file")),
    ("shards[0].file", put("..", "shards", 0, "file")),
    ("shards[0].file", put(".l1.r0", "shards", 0, "file")),
    ("shards[0].file", put("", "shards", 0, "file")),
    ("shards[0].file", put("l1\n", "shards", 0, "file")),
    ("shards[0].file", put("l1\0", "shards", 0, "file")),
    ("shards[0].file", put("x" * 121, "shards", 0, "file")),
    ("shards[0].file", put("manifest.json", "shards", 0, "file")),
    ("shards[1].file", put("l1.r0", "shards", 1, "file")),
    ("shards[0].row_start", put(1, "shards", 0, "row_start")),
    ("shards[1].row_start", put(39, "shards", 1, "row_start")),
    ("shards[1].row_start", put(41, "shards", 1, "row_start")),
    ("shards[0].row_end", put(0, "shards", 0, "row_end")),
    ("shards[1].row_end", put(69, "shards", 1, "row_end")),
    ("shards[1].row_end", put(71, "shards", 1, "row_end")),
    ("shards[1].row_end", put(1 << 63, "shards", 1, "row_end")),
    ("shards[0].bytes", put(4096 + 40 * 264 - 1, "shards", 0, "bytes")),
    ("shards[0].sha256", put("c" * 63, "shards", 0, "sha256")),
    ("shards[0].sha256", put("c" * 64 + "\n", "shards", 0, "sha256")),
    ("shards[0].chunk_bytes", put(8191, "shards", 0, "chunk_bytes")),
    ("shards[0].chunk_bytes", put(0, "shards", 0, "chunk_bytes")),
    ("shards[0].chunks", put(["d" * 64], "shards", 0, "chunks")),
    ("shards[0].chunks", put(["d" * 64] * 3, "shards", 0, "chunks")),
    ("shards[0].chunks[1]", put("D" * 64, "shards", 0, "chunks", 1)),
    ("shards[3]", drop("shards", 3)),
    ("shards[0]", drop("shards", 0)),
    ("shards[0]", swap_shards),
]


@pytest.mark.parametrize(
    ("field", "change"), REFUSED, ids=[f"{at}:{field}" for at, (field, _) in enumerate(REFUSED)]
)
def test_a_manifest_that_cannot_be_is_refused_by_file_and_field(field: str, change: Change) -> None:
    plain = copy.deepcopy(sample())
    change(plain)
    with pytest.raises(ManifestError) as caught:
        parse_manifest(FILE, text_of(plain))
    assert (caught.value.file, caught.value.field) == (FILE, field), str(caught.value)


def test_a_shard_more_than_layers_and_ranks_make_is_refused() -> None:
    plain = sample()
    plain["shards"].append({**plain["shards"][3], "file": "more"})
    with pytest.raises(ManifestError, match=r"shards\[4\]: nothing more must stand here"):
        parse_manifest(FILE, text_of(plain))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is not proper JSON"),
        (b"[1]", "is not a JSON object"),
        (b"\xff\xfe{}", "is not"),
        (b"[" * 100_000, "is not proper JSON"),
        (b'{"ranks": 1, "ranks": 1}', "'ranks' stands twice"),
        (b'{"ranks": NaN}', "NaN is no number"),
        (b'{"ranks": -Infinity}', "-Infinity is no number"),
    ],
)
def test_text_that_is_no_strict_json_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(FILE, text)
    assert caught.value.field == "text"
    assert said in caught.value.detail


def test_a_key_that_stands_twice_deep_inside_is_refused() -> None:
    text = Manifest.make(**facts()).to_json().replace(b'"rank": 1,', b'"rank": 1, "rank": 1,', 1)
    with pytest.raises(ManifestError, match="'rank' stands twice"):
        parse_manifest(FILE, text)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_a_refusal(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(FILE, data)


@given(st.data())
def test_a_manifest_with_any_byte_changed_is_refused_or_means_the_same(data: st.DataObject) -> None:
    text = bytearray(Manifest.make(**facts()).to_json())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    try:
        found = parse_manifest(FILE, bytes(text))
    except ManifestError:
        return
    assert found == Manifest.make(**facts())


def test_a_folder_without_manifest_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_a_file_that_is_too_long_for_a_manifest_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_bytes(Manifest.make(**facts()).to_json())
    monkeypatch.setattr(manifest_module, "MANIFEST_BYTES_MAX", (tmp_path / "manifest.json").stat().st_size)
    assert read_manifest(tmp_path).identity == sample()["identity"]
    monkeypatch.setattr(manifest_module, "MANIFEST_BYTES_MAX", 1000)
    with pytest.raises(ManifestError, match=r"manifest\.json: text: is longer than 1000 bytes"):
        read_manifest(tmp_path)


def test_a_layer_or_shard_that_is_not_there_is_a_key_error() -> None:
    made = Manifest.make(**facts())
    assert made.shard(14, 1).file == "l14.r1"
    with pytest.raises(KeyError):
        made.shard(14, 2)
    with pytest.raises(KeyError):
        made.layer(2)


def test_the_committed_schema_is_the_models() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == manifest_schema()
    jsonschema.Draft202012Validator.check_schema(manifest_schema())


@pytest.mark.parametrize(
    "change", [put("c" * 64 + "\n", "shards", 0, "sha256"), put("../x", "shards", 0, "file")]
)
def test_the_schema_alone_refuses_a_line_end_after_a_digest_and_a_way_out_of_the_folder(
    change: Change,
) -> None:
    plain = sample()
    change(plain)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, manifest_schema(), jsonschema.Draft202012Validator)
