"""Verification: what is not the manifest's is refused by file and field, and nothing is digested twice."""

import json
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engram_process import engram
from engram_remote.cli import main
from engram_remote.tables import record as record_module
from engram_remote.tables.build import build
from engram_remote.tables.errors import ShardError
from engram_remote.tables.layout import HEADER, HEADER_BYTES
from engram_remote.tables.manifest import Manifest, Shard, identity_of, read_manifest
from engram_remote.tables.record import FILE_NAME as RECORD
from engram_remote.tables.record import FileStat, Verified
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.source import checkpoint
from engram_remote.tables.verify import (
    ShardReport,
    check_chunk,
    chosen_shards,
    chunk_span,
    open_shard,
    verify_shard,
)
from engram_tables import tiny_checkpoint
from hypothesis import given
from hypothesis import strategies as st

NAME = "layer-14.rank-1.engram"
ROW, PAGE = 264, 4096


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards that tests copy."""
    base = tmp_path_factory.mktemp("built")
    made = tiny_checkpoint(base / "model")
    with checkpoint(made.folder) as source:
        build(source, base / "out", BuildOptions(2, chunk_bytes=8192), lambda *_: None)
    return base / "out"


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "tables")
    return tmp_path / "tables"


def settled(path: Path) -> None:
    """Wait until the clock of file times has ticked past a file's last change; then a later change has a later time."""
    ticked = threading.Event()
    while Verified.now_ns() <= FileStat.of(path).ctime_ns:
        ticked.wait(0.001)


def verify(folder: Path, name: str = NAME, **options: Any) -> ShardReport:
    manifest = read_manifest(folder)
    [shard] = [shard for shard in manifest.shards if shard.file == name]
    return verify_shard(folder, manifest, shard, verified=Verified(folder), **options)


def refusal(folder: Path, name: str = NAME, **options: Any) -> ShardError:
    with pytest.raises(ShardError) as caught:
        verify(folder, name, **options)
    assert caught.value.file == folder / name
    assert not (folder / RECORD).exists()
    return caught.value


def change(path: Path, edit: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_shards_as_they_were_built_pass(folder: Path, full: bool, threads: int) -> None:
    told: list[int] = []
    for shard in read_manifest(folder).shards:
        report = verify(folder, shard.file, full=full, threads=threads, advance=told.append)
        assert report.digested
    assert sum(told) == sum(shard.bytes for shard in read_manifest(folder).shards)


@pytest.mark.parametrize("short", [1, ROW, PAGE])
def test_a_shard_that_is_short_by_a_byte_a_row_or_a_page_is_refused_before_it_is_read(
    folder: Path, short: int
) -> None:
    os.truncate(folder / NAME, (folder / NAME).stat().st_size - short)
    error = refusal(folder)
    assert error.field == "bytes"
    assert f"{short} too few" in error.detail


@pytest.mark.parametrize("more", [1, ROW, PAGE])
def test_a_shard_with_trailing_bytes_is_refused(folder: Path, more: int) -> None:
    change(folder / NAME, lambda data: data.extend(bytes(more)))
    error = refusal(folder)
    assert error.field == "bytes"
    assert f"{more} too many" in error.detail


def test_an_empty_shard_and_a_missing_one_are_refused(folder: Path) -> None:
    (folder / NAME).write_bytes(b"")
    assert refusal(folder).field == "bytes"
    (folder / NAME).unlink()
    error = refusal(folder)
    assert (error.field, error.detail) == ("file", "is named by the manifest and is not there")


@pytest.mark.parametrize(
    ("field", "value"),
    [("layer", 1), ("rank", 0), ("ranks", 3), ("row_start", 1), ("row_end", 349), ("source_sha256", 0)],
)
def test_a_header_that_disagrees_with_the_manifest_is_refused(folder: Path, field: str, value: int) -> None:
    def edit(data: bytearray) -> None:
        at = HEADER.offsets[field]
        size = 32 if field == "source_sha256" else 8 if field.startswith("row") else 4
        data[at : at + size] = value.to_bytes(size, "little")

    change(folder / NAME, edit)
    error = refusal(folder)
    assert error.field == field
    assert error.detail.startswith("the header says ")


def test_a_header_without_magic_is_refused(folder: Path) -> None:
    change(folder / NAME, lambda data: data.__setitem__(slice(0, 8), bytes(8)))
    assert refusal(folder).field == "magic"


def test_another_layers_or_ranks_shard_under_this_name_is_refused(folder: Path) -> None:
    same_size = "layer-14.rank-1.engram"
    manifest = read_manifest(folder)
    for other in manifest.shards:
        if other.file != same_size:
            shutil.copy(folder / other.file, folder / same_size)
            assert refusal(folder, same_size).field in {"bytes", "layer", "rank"}


def test_shards_of_the_same_size_that_were_swapped_are_refused(tmp_path: Path) -> None:
    code = (
        CliRunner()
        .invoke(main, ["build", "--synthetic", str(tmp_path), "--rows", "60", "--ranks", "2"])
        .exit_code
    )
    assert code == 0
    first, second = tmp_path / "layer-1.rank-0.engram", tmp_path / "layer-14.rank-0.engram"
    assert first.stat().st_size == second.stat().st_size
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    assert refusal(tmp_path, first.name).field == "layer"


@given(at=st.integers(HEADER_BYTES, 53_199), bit=st.integers(0, 7))
def test_any_bit_of_any_row_that_is_other_is_refused_with_its_chunk(built: Path, at: int, bit: int) -> None:
    folder = built.parent / "flipped"
    if not folder.exists():
        shutil.copytree(built, folder)
    path = folder / NAME
    assert path.stat().st_size == 4096 + 186 * 264 == 53_200
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    try:
        error = refusal(folder, threads=2)
        assert error.field == f"chunks[{at // 8192}]"
    finally:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte]))


def restated(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """A manifest whose identity is right and whose digests are not the files'."""
    plain = json.loads((folder / "manifest.json").read_text())
    edit(plain)
    plain["identity"] = identity_of(plain)
    (folder / "manifest.json").write_text(json.dumps(plain))


def test_a_whole_digest_that_the_chunks_do_not_have_is_found_by_a_full_verification(folder: Path) -> None:
    restated(folder, lambda plain: plain["shards"][3].update(sha256="0" * 64))
    error = refusal(folder, full=True)
    assert error.field == "sha256"
    assert "0" * 64 in error.detail


# ---- what is recorded


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record also where the tests' own folder is in memory."""
    monkeypatch.setattr(record_module, "MEMORY_FILE_SYSTEMS", frozenset())


@pytest.fixture
def recorded(folder: Path, recording: None) -> Path:
    settled(folder / NAME)
    assert verify(folder).digested
    assert json.loads((folder / RECORD).read_text())["shards"].keys() == {NAME}
    return folder


def test_a_verified_shard_is_not_read_again_unless_asked(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = os.preadv

    def counting(descriptor: int, buffers: Any, offset: int) -> int:
        reads.append(offset)
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counting)
    told: list[int] = []
    assert not verify(recorded, advance=told.append).digested
    assert reads == [0]
    assert told == [(recorded / NAME).stat().st_size]
    assert verify(recorded, full=True).digested
    assert len(reads) > 2


def touched(path: Path) -> None:
    os.utime(path)


def rewritten(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replaced_by_an_equal_file(path: Path) -> None:
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def backdated(path: Path) -> None:
    """Other bytes under the old modification time: only the change time tells."""
    before = path.stat()
    change(path, lambda data: data.__setitem__(5000, data[5000] ^ 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("event", [touched, rewritten, replaced_by_an_equal_file])
def test_a_file_whose_stat_is_other_is_digested_again(recorded: Path, event: Callable[[Path], None]) -> None:
    event(recorded / NAME)
    assert verify(recorded).digested


def test_other_bytes_under_the_same_times_and_size_are_found(recorded: Path) -> None:
    before = FileStat.of(recorded / NAME)
    backdated(recorded / NAME)
    after = FileStat.of(recorded / NAME)
    assert (before.size, before.mtime_ns, before.inode) == (after.size, after.mtime_ns, after.inode)
    with pytest.raises(ShardError, match=r"chunks\[0\]"):
        verify(recorded)


def store(path: Path, view: mmap.mmap, bit: int) -> None:
    """Through a mapping, into a page that stays dirty."""
    view[5000] ^= bit
    settled(path)


def test_a_store_into_a_page_that_was_dirty_before_the_record_is_found(folder: Path) -> None:
    path = folder / NAME
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        store(path, view, 0)
        assert verify(folder).digested
        store(path, view, 1)
        with pytest.raises(ShardError, match=r"chunks\[0\]"):
            verify(folder)


@pytest.fixture
def in_memory(built: Path) -> Iterator[Path]:
    """The shards on a file system in memory."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("this user has no /dev/shm")
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(shutil.copytree(built, Path(name) / "tables"))


def test_a_shard_in_memory_is_digested_each_time_for_stores_leave_no_trace_there(in_memory: Path) -> None:
    path = in_memory / NAME
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        settled(path)
        assert verify(in_memory).digested
        before = FileStat.of(path)
        store(path, view, 1)
        assert FileStat.of(path) == before
        assert refusal(in_memory).field == "chunks[0]"


def test_a_manifest_that_states_other_chunks_under_the_old_digest_is_not_satisfied_by_the_record(
    recorded: Path,
) -> None:
    restated(recorded, lambda plain: plain["shards"][3].update(chunks=["0" * 64] * 7))
    with pytest.raises(ShardError, match=r"chunks\[0\]"):
        verify(recorded)


def test_a_manifest_that_states_another_digest_is_not_satisfied_by_the_record(recorded: Path) -> None:
    restated(recorded, lambda plain: plain["shards"][3].update(sha256="0" * 64, chunks=["0" * 64] * 7))
    with pytest.raises(ShardError, match=r"chunks\[0\]"):
        verify(recorded)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "shards": {}}', '{"version": 1, "shards": []}', "[" * 99999]
)
def test_a_record_that_cannot_be_read_is_no_record(recorded: Path, text: str) -> None:
    (recorded / RECORD).write_text(text)
    assert verify(recorded).digested
    assert not verify(recorded).digested


def test_a_file_that_was_written_within_the_clocks_tick_is_not_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = FileStat.of(folder / NAME).ctime_ns
    monkeypatch.setattr(record_module.Verified, "now_ns", staticmethod(lambda: now))
    assert verify(folder).digested
    assert not (folder / RECORD).exists()


def test_a_folder_that_cannot_be_written_to_is_verified_without_a_record(folder: Path) -> None:
    (folder / RECORD).mkdir()  # root may write to any folder, but not over a folder
    settled(folder / NAME)
    assert verify(folder).digested
    assert verify(folder).digested
    assert [path.name for path in folder.iterdir() if path.name.endswith(".part")] == []


# ---- what changes meanwhile


def after_first_chunk(folder: Path, event: Callable[[Path], None]) -> ShardError:
    done: list[int] = []

    def advance(count: int) -> None:
        if not done:
            event(folder / NAME)
        done.append(count)

    return refusal(folder, advance=advance)


def test_a_shard_that_is_cut_while_it_is_read_is_an_error_and_no_signal(folder: Path) -> None:
    error = after_first_chunk(folder, lambda path: os.truncate(path, 9000))
    assert (error.field, error.detail) == ("bytes", "ends at 9000 while it is being read")


@pytest.mark.parametrize("event", [replaced_by_an_equal_file, touched])
def test_a_shard_that_is_replaced_or_written_to_while_it_is_read_is_refused(
    folder: Path, event: Callable[[Path], None]
) -> None:
    settled(folder / NAME)
    error = after_first_chunk(folder, event)
    assert (error.field, error.detail) == ("file", "changed while it was being read")


def test_a_shard_that_is_removed_while_it_is_read_is_refused(folder: Path) -> None:
    assert (
        after_first_chunk(folder, lambda path: path.unlink()).detail == "was removed while it was being read"
    )


# ---- the parts that a server reuses


def test_the_parts_that_a_server_uses_check_what_was_loaded(folder: Path) -> None:
    manifest = read_manifest(folder)
    shard = manifest.shard(14, 1)
    with open_shard(folder, manifest, shard) as opened:
        memory = bytearray(shard.bytes)
        for index in range(len(shard.chunks)):
            start, end = chunk_span(shard, index)
            opened.read_into(start, memoryview(memory)[start:end])
            check_chunk(opened.path, shard, index, memoryview(memory)[start:end])
        opened.unchanged()
    assert memory == (folder / NAME).read_bytes()
    memory[8192] ^= 1
    with pytest.raises(
        ShardError, match=r"chunks\[1\]: has [0-9a-f]{64} where the manifest says [0-9a-f]{64}"
    ):
        check_chunk(folder / NAME, shard, 1, memoryview(memory)[8192:16384])


def test_shards_are_chosen_by_rank(folder: Path) -> None:
    manifest: Manifest = read_manifest(folder)
    chosen: list[Shard] = list(chosen_shards(manifest, 1))
    assert [(shard.layer, shard.rank) for shard in chosen] == [(1, 1), (14, 1)]
    assert list(chosen_shards(manifest, None)) == manifest.shards
    with pytest.raises(ValueError, match="rank: 2 is not one of 2"):
        chosen_shards(manifest, 2)


# ---- the command


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["verify", *(str(word) for word in words)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_tells_every_shard_that_is_wrong_and_exits_with_2(folder: Path) -> None:
    change(folder / NAME, lambda data: data.__setitem__(5000, data[5000] ^ 1))
    (folder / "layer-1.rank-0.engram").unlink()
    code, out, err = run(folder, "--json")
    assert code == 2
    found = json.loads(out)
    assert {(one["file"], one["field"]) for one in found["failed"]} == {
        (NAME, "chunks[0]"),
        ("layer-1.rank-0.engram", "file"),
    }
    assert len(found["verified"]) == 2
    assert f"{folder / NAME}: chunks[0]: " in err
    assert "2 of 4 shards are not what the manifest says" in err


def test_the_command_verifies_one_ranks_shards_where_only_those_are(folder: Path) -> None:
    for layer in (1, 14):
        (folder / f"layer-{layer}.rank-0.engram").unlink()
    assert run(folder)[0] == 2
    assert run(folder, "--rank", 1)[0] == 0
    assert "--rank: 2 is not one of the manifest's 2" in run(folder, "--rank", 2)[2]


@pytest.mark.usefixtures("recording")
def test_the_command_says_what_it_digested_and_what_the_record_spared(folder: Path) -> None:
    settled(folder / NAME)
    how = [
        {one["digested"] for one in json.loads(run(folder, "--json", *more)[1])["verified"]}
        for more in ((), (), ("--full",))
    ]
    assert how == [{True}, {False}, {True}]
    assert "as recorded" in run(folder)[1]


def test_a_folder_without_manifest_and_one_that_was_tampered_with_are_one_sentence(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    code, out, err = run(folder)
    assert (code, out) == (2, "")
    assert "manifest.json: format: Field required" in err
    (folder / "manifest.json").unlink()
    assert "manifest.json: No such file or directory" in run(folder)[2]


@pytest.mark.parametrize("name", ["manifest.json", "layer-1.rank-0.engram"])
def test_a_pipe_that_is_called_as_a_file_is_refused_and_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    ended = engram("verify", folder)
    assert ended.returncode == 2
    assert name in ended.stderr
