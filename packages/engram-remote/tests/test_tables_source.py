"""Where rows come from: both spellings of the tensors, exact slices, and files that are not whole refused by name."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engram_remote.tables.errors import SourceError
from engram_remote.tables.safetensors_file import SafetensorsFile
from engram_remote.tables.source import INDEX, CheckpointTables, checkpoint
from engram_tables import (
    STOCK_NAMES,
    VLLM_NAMES,
    TinyCheckpoint,
    make_table,
    read_tensor,
    tiny_checkpoint,
    write_safetensors,
)

OTHER_NAMES = (
    "language_model.model.layers.{layer}.engram.embed_tokens.weight",
    "model.layers.{layer}.engram.embed.scale",
)


def packed(made: TinyCheckpoint, layer: int, start: int, end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.hstack(made.expected(layer, range(start, end)))


@pytest.mark.parametrize("names", [STOCK_NAMES, VLLM_NAMES, OTHER_NAMES])
@pytest.mark.parametrize("scale_dtype", ["F8_E8M0", "U8"])
def test_rows_are_the_tensors_bytes_whatever_the_tensors_are_called(
    tmp_path: Path, names: tuple[str, str], scale_dtype: str
) -> None:
    made = tiny_checkpoint(tmp_path / "model", names=names, scale_dtype=scale_dtype)
    with checkpoint(made.folder) as tables:
        for layer in (1, 14):
            rows = made.rows(layer)
            np.testing.assert_array_equal(tables.read(layer, 0, rows), packed(made, layer, 0, rows))
            np.testing.assert_array_equal(tables.read(layer, 17, 18), packed(made, layer, 17, 18))
            assert tables.read(layer, 5, 5).shape == (0, 264)


def test_the_description_is_the_digest_of_both_tensors_and_not_of_names_or_files(tmp_path: Path) -> None:
    described = []
    for names in (STOCK_NAMES, VLLM_NAMES):
        made = tiny_checkpoint(tmp_path / names[0][:6], names=names, padding=3)
        told: list[int] = []
        with checkpoint(made.folder) as tables:
            described.append(tables.describe(14, told.append))
            assert sum(told) == tables.describe_bytes(14) == (made.rows(14) + 3) * 264
    value_name, scale_name = (name.format(layer=14) for name in VLLM_NAMES)
    values, scales = (read_tensor(made.file(14), name).tobytes() for name in (value_name, scale_name))
    assert described[0] == described[1]
    assert described[0].values_sha256 == hashlib.sha256(values).hexdigest()
    assert described[0].scales_sha256 == hashlib.sha256(scales).hexdigest()
    assert described[0].rows == made.rows(14) + 3


def test_one_file_without_an_index_is_a_checkpoint_named_by_itself_or_by_its_folder(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(3,))
    (made.folder / INDEX).unlink()
    for path in (made.folder, made.file(3)):
        with checkpoint(path) as tables:
            np.testing.assert_array_equal(tables.read(3, 0, 9), packed(made, 3, 0, 9))


def test_the_two_tensors_of_a_layer_may_lie_in_two_files(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(1,))
    names = [name.format(layer=1) for name in STOCK_NAMES]
    index = {}
    for name, dtype in zip(names, ("F8_E4M3", "F8_E8M0"), strict=True):
        file = made.folder / f"{name}.safetensors"
        write_safetensors(file, {name: (dtype, read_tensor(made.file(1), name))})
        index[name] = file.name
    (made.folder / INDEX).write_text(json.dumps({"weight_map": index}))
    with checkpoint(made.folder) as tables:
        np.testing.assert_array_equal(tables.read(1, 0, 40), packed(made, 1, 0, 40))
        assert len(tables.stamps()) == 2


def test_other_widths_are_read_too(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", columns=96, scale_block=16)
    with checkpoint(made.folder, scale_block=16) as tables:
        np.testing.assert_array_equal(tables.read(1, 0, 50), packed(made, 1, 0, 50))
    with pytest.raises(
        SourceError, match=r"embed\.scale has shape \[277, 6\], where the configuration makes it \[277, 3\]"
    ):
        CheckpointTables(made.folder)
    with pytest.raises(SourceError, match="columns: 96 is no multiple of the scale block of 36"):
        CheckpointTables(made.folder, scale_block=36)


def replaced(
    made: TinyCheckpoint, tensors: dict[str, tuple[str, np.ndarray[Any, np.dtype[np.uint8]]]]
) -> None:
    """Layer 1's file holds these tensors alone, and the index names them."""
    write_safetensors(made.file(1), tensors)
    (made.folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, made.file(1).name)}))


VALUES, SCALES = (name.format(layer=1) for name in STOCK_NAMES)


@pytest.mark.parametrize(
    ("said", "change"),
    [
        (r"layer 1 has no tensor engram\.embed\.scale", lambda v, s: {VALUES: ("F8_E4M3", v)}),
        (r"layer 1 has no tensor engram\.embed\.weight", lambda v, s: {SCALES: ("F8_E8M0", s)}),
        ("is BF16, not F8_E4M3", lambda v, s: {VALUES: ("BF16", v), SCALES: ("F8_E8M0", s)}),
        ("is F8_E5M2, not F8_E4M3", lambda v, s: {VALUES: ("F8_E5M2", v), SCALES: ("F8_E8M0", s)}),
        ("is F8_E4M3, not F8_E8M0", lambda v, s: {VALUES: ("F8_E4M3", v), SCALES: ("F8_E4M3", s)}),
        (r"has shape \[276, 256\]", lambda v, s: {VALUES: ("F8_E4M3", v[:-1]), SCALES: ("F8_E8M0", s)}),
        (r"has shape \[276, 8\]", lambda v, s: {VALUES: ("F8_E4M3", v), SCALES: ("F8_E8M0", s[1:])}),
        (r"has shape \[70912\]", lambda v, s: {VALUES: ("F8_E4M3", v.reshape(-1)), SCALES: ("F8_E8M0", s)}),
        (
            "is there twice",
            lambda v, s: {VALUES: ("F8_E4M3", v), SCALES: ("F8_E8M0", s), "model." + VALUES: ("F8_E4M3", v)},
        ),
        (
            "layer 2, which engram_layer_ids lacks",
            lambda v, s: {
                VALUES: ("F8_E4M3", v),
                SCALES: ("F8_E8M0", s),
                "layers.2.engram.embed.scale": ("F8_E8M0", s),
            },
        ),
    ],
)
def test_tensors_that_are_not_the_models_tables_are_refused_by_name(
    tmp_path: Path, said: str, change: Callable[..., dict[str, Any]]
) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(1,))
    tensors = change(read_tensor(made.file(1), VALUES).copy(), read_tensor(made.file(1), SCALES).copy())
    if "BF16" in said:
        tensors = {VALUES: ("BF16", tensors[VALUES][1].view(np.uint16)), SCALES: tensors[SCALES]}
    replaced(made, tensors)
    with pytest.raises(SourceError, match=said):
        CheckpointTables(made.folder)


@pytest.mark.parametrize(
    ("said", "index"),
    [
        ("is not an object", b"{"),
        ("is not an object", b"[]"),
        ("is not an object", b'{"weight_map": 3}'),
        ("no file beside", json.dumps({"weight_map": {VALUES: "../model.safetensors"}}).encode()),
        ("no file beside", json.dumps({"weight_map": {VALUES: 3}}).encode()),
        (
            "as the index says",
            json.dumps({"weight_map": {"model." + VALUES: "model-00001.safetensors"}}).encode(),
        ),
    ],
)
def test_an_index_that_is_wrong_is_refused(tmp_path: Path, said: str, index: bytes) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(1,))
    (made.folder / INDEX).write_bytes(index)
    with pytest.raises(SourceError, match=said):
        CheckpointTables(made.folder)


def test_a_folder_with_several_files_and_no_index_is_refused(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    (made.folder / INDEX).unlink()
    with pytest.raises(SourceError, match="and there are 2"):
        CheckpointTables(made.folder)


def test_a_file_that_grows_or_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(1,))
    changes: list[Callable[[bytes], bytes]] = [lambda data: data + b"\0", lambda data: data[:-4096]]
    for change in changes:
        whole = made.file(1).read_bytes()
        with checkpoint(made.folder) as tables:
            with made.file(1).open("r+b") as file:
                file.write(change(whole))
                file.truncate()
            with pytest.raises(SourceError, match="changed while it was being read"):
                tables.read(1, 270, 277)
        made.file(1).write_bytes(whole)


def test_a_closed_source_leaves_no_file_open(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with checkpoint(made.folder):
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    shutil.copy(made.file(14), made.file(1))
    with pytest.raises(SourceError):
        CheckpointTables(made.folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ---- files that are not safetensors, or not whole


def header_bytes(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(begin: int, end: int, dtype: str = "U8", shape: list[Any] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


TWICE = b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'


@pytest.mark.parametrize(
    ("said", "data"),
    [
        ("too few", b""),
        ("too few", b"\x08\0\0\0\0\0\0"),
        ("does not fit", (1 << 63).to_bytes(8, "little") + b"{}"),
        ("does not fit", (3).to_bytes(8, "little") + b"{}"),
        ("does not fit", (0).to_bytes(8, "little") + b"{}"),
        ("not JSON", (2).to_bytes(8, "little") + b"{]"),
        ("not a JSON object", (2).to_bytes(8, "little") + b"[]"),
        ("names something twice", len(TWICE).to_bytes(8, "little") + TWICE),
        ("lacks a proper dtype", header_bytes({"a": {"dtype": "U8"}})),
        ("lacks a proper dtype", header_bytes({"a": 3})),
        ("lacks a proper dtype", header_bytes({"a": entry(0, 0, shape=[-1])})),
        ("lacks a proper dtype", header_bytes({"a": entry(0, 0, shape=[True])})),
        ("which is not known", header_bytes({"a": entry(0, 0, dtype="Q4")})),
        ("ends 1 bytes after", header_bytes({"a": entry(0, 4)}) + b"abc"),
        ("cannot take 4 bytes", header_bytes({"a": entry(0, 4, shape=[3])}) + b"abcd"),
        ("cannot take 4 bytes", header_bytes({"a": entry(0, 4, dtype="F16", shape=[4])}) + b"abcd"),
        ("starts at 2 where 4 follows", header_bytes({"a": entry(0, 4), "b": entry(2, 6)}) + b"abcdef"),
        ("starts at 5 where 4 follows", header_bytes({"a": entry(0, 4), "b": entry(5, 6)}) + b"abcdef"),
        ("2 bytes follow the last", header_bytes({"a": entry(0, 4)}) + b"abcdef"),
    ],
)
def test_a_file_that_is_no_whole_safetensors_file_is_refused_by_name(
    tmp_path: Path, said: str, data: bytes
) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=rf"^{path}: .*{said}"):
        SafetensorsFile(path)


def test_every_truncation_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    values, scales = make_table(260, 32, 32)
    path = tmp_path / "t.safetensors"
    write_safetensors(path, {VALUES: ("F8_E4M3", values), SCALES: ("F8_E8M0", scales)})
    data = path.read_bytes()
    SafetensorsFile(path).close()
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(SourceError, match=str(path)):
            SafetensorsFile(path)
