"""A build: files are the bytes that the format says, the manifest is theirs, and what cannot be built is refused."""

import hashlib
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from engram_remote.cli import main
from engram_remote.tables.build import build
from engram_remote.tables.errors import BuildError
from engram_remote.tables.journal import FILE_NAME as JOURNAL
from engram_remote.tables.journal import Journal
from engram_remote.tables.manifest import Manifest, read_manifest
from engram_remote.tables.shard_job import BuildOptions, shard_name
from engram_remote.tables.source import checkpoint
from engram_remote.tables.synthetic import SyntheticTables, even_heads, synthetic_rows
from engram_tables import VLLM_NAMES, TinyCheckpoint, tiny_checkpoint
from hypothesis import given
from hypothesis import strategies as st


def quiet(_step: str, _done: int, _total: int) -> None:
    """No progress is shown."""


def build_checkpoint(made: TinyCheckpoint, folder: Path, options: BuildOptions) -> Manifest:
    with checkpoint(made.folder, scale_block=made.scale_block) as source:
        return build(source, folder, options, quiet)


def expected_file(made: TinyCheckpoint, manifest: Manifest, layer: int, rank: int) -> bytes:
    """A shard from the format's description and the source's bytes."""
    start, end = made.rank_rows(layer, rank, manifest.ranks)
    width = made.columns + made.scales
    shape = (1, 4096, layer, rank, manifest.ranks, made.columns, made.scales, made.scale_block, width)
    source = bytes.fromhex(manifest.layer(layer).source_sha256)
    header = b"ENGRAMSH" + struct.pack("<9I2H2Q", *shape, 1, 1, start, end) + source
    return header.ljust(4096, b"\0") + np.hstack(made.expected(layer, range(start, end))).tobytes()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("columns", "scale_block"), [(256, 32), (96, 16), (65, 13)])
def test_shards_are_the_sources_bytes_behind_their_header_and_nothing_else(
    tmp_path: Path, ranks: int, columns: int, scale_block: int
) -> None:
    made = tiny_checkpoint(tmp_path / "model", columns=columns, scale_block=scale_block)
    out = tmp_path / "out"
    manifest = build_checkpoint(made, out, BuildOptions(ranks, chunk_bytes=4096))
    for layer in (1, 14):
        for rank in range(ranks):
            data = (out / shard_name(layer, rank)).read_bytes()
            assert data == expected_file(made, manifest, layer, rank)
            shard = manifest.shard(layer, rank)
            assert shard.sha256 == hashlib.sha256(data).hexdigest()
            pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]
            assert shard.chunks == [hashlib.sha256(piece).hexdigest() for piece in pieces]
    assert read_manifest(out) == manifest
    shards = {shard_name(layer, rank) for layer in (1, 14) for rank in range(ranks)}
    assert {path.name for path in out.iterdir()} == shards | {"manifest.json"}


def test_the_identity_is_that_of_the_rows_and_not_of_the_tensors_names_or_the_time(tmp_path: Path) -> None:
    stock = tiny_checkpoint(tmp_path / "stock")
    renamed = tiny_checkpoint(tmp_path / "renamed", names=VLLM_NAMES)
    other = tiny_checkpoint(tmp_path / "other", seed=1)
    found = [
        build_checkpoint(made, tmp_path / f"out{at}", BuildOptions(2)).identity
        for at, made in enumerate((stock, renamed, other))
    ]
    assert found[0] == found[1] != found[2]


def test_the_source_digest_is_of_layer_and_tensors_by_hand(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", layers=(1,))
    manifest = build_checkpoint(made, tmp_path / "out", BuildOptions(1))
    values, scales = (
        hashlib.sha256(part.tobytes()).hexdigest() for part in made.expected(1, range(made.rows(1) + 5))
    )
    text = (
        '{"layer":1,"source":{"kind":"safetensors","rows":277,'
        f'"scales_sha256":"{scales}","values_sha256":"{values}"}}}}'
    )
    assert manifest.layers[0].source_sha256 == hashlib.sha256(text.encode()).hexdigest()


@given(
    rows=st.integers(4, 200),
    ranks=st.integers(1, 4),
    scales=st.integers(1, 4),
    block=st.integers(1, 33),
    chunk=st.sampled_from([4096, 8192, 12288]),
    seed=st.integers(0, 2**53 - 1),
)
def test_synthetic_shards_hold_the_generators_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    ranks: int,
    scales: int,
    block: int,
    chunk: int,
    seed: int,
) -> None:
    out = tmp_path_factory.mktemp("out")
    source = SyntheticTables(seed, even_heads({3: rows}, scales * block, ranks), block)
    manifest = build(source, out, BuildOptions(ranks, chunk_bytes=chunk), quiet)
    body = b"".join((out / shard.file).read_bytes()[4096:] for shard in manifest.shards)
    assert body == synthetic_rows(seed, 3, range(rows), scales * block, scales).tobytes()


def test_one_ranks_files_come_with_the_manifest_of_all(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    build_checkpoint(made, tmp_path / "all", BuildOptions(2, chunk_bytes=8192))
    build_checkpoint(made, tmp_path / "one", BuildOptions(2, rank=1, chunk_bytes=8192))
    assert (tmp_path / "one/manifest.json").read_bytes() == (tmp_path / "all/manifest.json").read_bytes()
    ours = {shard_name(layer, 1) for layer in (1, 14)}
    assert {path.name for path in (tmp_path / "one").iterdir()} == ours | {"manifest.json"}
    for name in ours:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_memory_is_bounded_by_chunks_whatever_the_tables_size(tmp_path: Path) -> None:
    chunk = 1 << 20
    source = SyntheticTables(0, even_heads({1: 120_000}, 256, 1), 32)
    tracemalloc.start()
    try:
        manifest = build(source, tmp_path / "out", BuildOptions(1, chunk_bytes=chunk), quiet)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert manifest.shards[0].bytes > 30 * chunk
    assert peak < 8 * chunk


def test_a_folder_that_holds_tables_is_left_alone(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    build_checkpoint(made, tmp_path / "out", BuildOptions(2))
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(BuildError, match=r"manifest\.json: is there already"):
        build_checkpoint(made, tmp_path / "out", BuildOptions(1))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_second_build_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    (tmp_path / "out").mkdir()
    journal = Journal(tmp_path / "out", {})
    with pytest.raises(BuildError, match="another build is at work there"):
        build_checkpoint(made, tmp_path / "out", BuildOptions(2))
    journal.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (BuildOptions(1), "ranges"),
        (BuildOptions(2, rank=0), "rank"),
        (BuildOptions(2, chunk_bytes=8192), "chunk_bytes"),
    ],
)
def test_an_unfinished_build_of_something_else_is_not_gone_on_with(
    tmp_path: Path, options: BuildOptions, field: str
) -> None:
    made = tiny_checkpoint(tmp_path / "model")

    def stop(step: str, _done: int, _total: int) -> None:
        if step == "pack":
            raise KeyboardInterrupt

    with checkpoint(made.folder) as source, pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", BuildOptions(2), stop)
    with pytest.raises(BuildError, match=f"an unfinished build that differs in {field}; "):
        build_checkpoint(made, tmp_path / "out", options)


def test_too_little_room_is_told_before_anything_is_written_with_need_and_have(tmp_path: Path) -> None:
    # 2**31 rows of 67,584 bytes are 145 TB.
    source = SyntheticTables(0, even_heads({1: 2**31}, 65536, 1), 32)
    need = 4096 + 2**31 * (65536 + 2048)
    with pytest.raises(BuildError) as caught:
        build(source, tmp_path / "out", BuildOptions(1, chunk_bytes=1 << 30), quiet)
    words = str(caught.value).split()
    numbers = [int(word) for word in words if word.isdigit()]
    assert words[0] == f"{tmp_path / 'out'}:"
    assert numbers[0] >= need > numbers[1] > 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [JOURNAL]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (BuildOptions(2, rank=2), "rank: 2 is not one of 2"),
        (BuildOptions(3), "ranks: 4 hash columns over 3 ranks leave ranks without any"),
        (BuildOptions(2, chunk_bytes=0), "chunk_bytes: 0"),
        (BuildOptions(2, chunk_bytes=5000), "chunk_bytes: 5000"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(
    tmp_path: Path, options: BuildOptions, said: str
) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    with pytest.raises(BuildError, match=said):
        build_checkpoint(made, tmp_path / "out", options)


# ---- the command


def run(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_builds_what_ident_and_verify_then_name(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    code, out, _ = run("build", made.folder, tmp_path / "out", "--ranks", "2", "--json")
    assert code == 0
    identity = json.loads(out)["identity"]
    assert json.loads(run("ident", tmp_path / "out", "--json")[1])["identity"] == identity
    assert identity in run("ident", tmp_path / "out")[1]
    code, out, _ = run("verify", tmp_path / "out", "--json")
    assert (code, json.loads(out)["identity"], json.loads(out)["failed"]) == (0, identity, [])


def test_the_command_makes_synthetic_tables_of_sizes_or_of_a_models(tmp_path: Path) -> None:
    sizes = ("--rows", "50", "--columns", "64", "--layers", "2,7", "--seed", "9")
    assert run("build", "--synthetic", tmp_path / "a", "--ranks", "2", *sizes)[0] == 0
    manifest = read_manifest(tmp_path / "a")
    assert [(entry.layer, entry.rows) for entry in manifest.layers] == [(2, 50), (7, 50)]
    data = (tmp_path / "a" / manifest.shard(7, 1).file).read_bytes()
    assert data[4096:] == synthetic_rows(9, 7, range(25, 50), 64, 2).tobytes()
    made = tiny_checkpoint(tmp_path / "model")
    config = made.folder / "config.json"
    assert run("build", "--synthetic", tmp_path / "b", "--ranks", "2", "--config", config)[0] == 0
    found = read_manifest(tmp_path / "b").shard(14, 1)
    assert (found.row_start, found.row_end) == made.rank_rows(14, 1, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["OUT"], "SOURCE and DEST: "),
        (["MODEL", "OUT", "--rows", "5"], "--rows: belongs to --synthetic"),
        (["MODEL", "OUT", "--synthetic", "--rows", "5"], "DEST: "),
        (["OUT", "--synthetic"], "--rows: is needed"),
        (["OUT", "--synthetic", "--rows", "1"], "rows: 1 of layer 1"),
        (["OUT", "--synthetic", "--rows", "9", "--columns", "33"], "columns: 33 is no multiple"),
        (["OUT", "--synthetic", "--rows", "9", "--layers", "1,x"], "--layers: "),
        (["OUT", "--synthetic", "--rows", "9", "--layers", "1,1"], "--layers: "),
        (
            ["OUT", "--synthetic", "--rows", "9", "--layers", ",".join(map(str, range(65)))],
            "layers: 65 are more",
        ),
        (["OUT", "--synthetic", "--rows", "9", "--layers", "4294967296"], "layers: 4294967296 is not 0 to"),
        (["OUT", "--synthetic", "--rows", "9", "--config", "MODEL"], "--config: "),
        (["OUT/none", "OUT"], "config.json: No such file"),
    ],
)
def test_words_that_cannot_be_are_one_sentence_and_exit_status_2(
    tmp_path: Path, words: list[str], said: str
) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    places = {"MODEL": str(made.folder), "OUT": str(tmp_path / "out"), "OUT/none": str(tmp_path / "none")}
    code, out, err = run("build", "--ranks", "2", *(places.get(word, word) for word in words))
    lines = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert (code, out, len(lines)) == (2, "", 1), err
    assert said in lines[0]
    assert not (tmp_path / "out").exists()
