"""Builds that end early: no file has its name before it is complete, and another attempt gives the same bytes.

What ends them is real: SIGKILL at every step, a file size limit, a full file system.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engram_remote.tables.build import build
from engram_remote.tables.errors import BuildError, SourceError
from engram_remote.tables.journal import FILE_NAME as JOURNAL
from engram_remote.tables.manifest import CheckpointSource, read_manifest
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.source import Advance, CheckpointTables, checkpoint
from engram_tables import TinyCheckpoint, tiny_checkpoint
from numpy.typing import NDArray

OPTIONS = BuildOptions(2, chunk_bytes=8192)
SHARD = "layer-14.rank-0.engram"

CHILD = """
import os, resource, signal, sys
from pathlib import Path
from engram_remote.tables.build import build
from engram_remote.tables.errors import TableError
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.source import checkpoint

source, folder, what, count = sys.argv[1:]
left = int(count)

def down():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def told(step, done, total):
    if what == "progress":
        down()
    if what == "fill" and step == "pack":
        with open(Path(folder).parent / "filler", "ab", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass

def hook(event, arguments):
    if what == "audit" and event in ("open", "os.rename", "os.remove", "os.truncate") and folder in str(arguments[0]):
        down()

sys.addaudithook(hook)
if what == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, left))
try:
    with checkpoint(Path(source)) as tables:
        build(tables, Path(folder), BuildOptions(2, chunk_bytes=8192), told)
except TableError as error:
    sys.exit(str(error))
"""


def child(
    made: TinyCheckpoint, folder: Path, what: str, count: int, *before: str
) -> subprocess.CompletedProcess[str]:
    words = [*before, sys.executable, "-c", CHILD, str(made.folder), str(folder), what, str(count)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def quiet(_step: str, _done: int, _total: int) -> None:
    """No progress is shown."""


def finish(made: TinyCheckpoint, folder: Path) -> None:
    with checkpoint(made.folder) as source:
        build(source, folder, OPTIONS, quiet)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("source") / "model")


@pytest.fixture(scope="module")
def whole(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a build that nothing disturbs leaves."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    finish(made, folder)
    return contents(folder)


@pytest.fixture
def stopped(made: TinyCheckpoint, tmp_path: Path) -> Path:
    """A folder whose build was stopped after the third chunk of its third shard."""
    seen = 0

    def stop(step: str, _done: int, _total: int) -> None:
        nonlocal seen
        seen += step == "pack"
        if seen == _chunks_before(made) + 3:
            raise KeyboardInterrupt

    with checkpoint(made.folder) as source, pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", OPTIONS, stop)
    assert (tmp_path / "out" / f"{SHARD}.part").stat().st_size == 3 * 8192
    return tmp_path / "out"


def _chunks_before(made: TinyCheckpoint) -> int:
    """Chunks of layer 1's shards."""
    sizes = [4096 + 264 * (end - start) for start, end in (made.rank_rows(1, rank, 2) for rank in range(2))]
    return sum(-(-size // 8192) for size in sizes)


def assert_only_whole_files_have_names(folder: Path, whole: dict[str, bytes]) -> None:
    there = contents(folder) if folder.exists() else {}
    assert "manifest.json" not in there
    for name in there.keys() & whole.keys():
        assert there[name] == whole[name]
    rest = there.keys() - whole.keys() - {JOURNAL}
    assert all(name.endswith(".part") for name in rest)


# Four shards of 5, 5, 6 and 7 chunks, after two tensors of two layers: 27 steps of progress.
@pytest.mark.parametrize("step", range(1, 28, 2))
def test_a_build_killed_at_any_step_is_gone_on_with_to_the_same_bytes(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path, step: int
) -> None:
    assert child(made, tmp_path / "out", "progress", step).returncode == -signal.SIGKILL
    assert_only_whole_files_have_names(tmp_path / "out", whole)
    finish(made, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def kills_at_file_operations(made: TinyCheckpoint, folder: Path) -> Iterator[Path]:
    """Folders of builds that were killed before their first, second, ... operation on a file name."""
    for count in range(1, 40):
        out = folder / f"out{count}"
        ended = child(made, out, "audit", count)
        if ended.returncode == 0:
            assert count > 12, (
                "each of four shards is opened and renamed, and the manifest and the journal too"
            )
            return
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        yield out
    raise AssertionError("a build of four shards has fewer operations")


def test_a_build_killed_before_any_operation_on_a_name_is_gone_on_with_to_the_same_bytes(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path
) -> None:
    for out in kills_at_file_operations(made, tmp_path):
        if (out / "manifest.json").exists():  # all that was left to do was to remove the journal
            (out / JOURNAL).unlink()
            assert contents(out) == whole
            continue
        assert_only_whole_files_have_names(out, whole)
        finish(made, out)
        assert contents(out) == whole


def test_a_file_that_cannot_grow_leaves_no_name_and_one_sentence(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path
) -> None:
    ended = child(made, tmp_path / "out", "limit", 20_000)
    assert ended.returncode == 1
    assert "layer-1.rank-0.engram.part: File too large; the same command goes on" in ended.stderr
    assert_only_whole_files_have_names(tmp_path / "out", whole)
    assert not whole.keys() & contents(tmp_path / "out").keys()
    finish(made, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def test_a_journal_that_cannot_grow_is_one_sentence_that_names_it(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path
) -> None:
    ended = child(made, tmp_path / "out", "limit", 300)
    assert ended.returncode == 1
    assert f"{tmp_path / 'out' / JOURNAL}: File too large; the same command goes on" in ended.stderr
    finish(made, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def test_a_file_system_that_fills_up_meanwhile_leaves_no_name_and_one_sentence(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    probe = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(small)]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    keep = f'"$@"; code=$?; cp -a {small}/out {tmp_path}/out; exit $code'
    script = f"mount -t tmpfs -o size=1m none {small} && {{ {keep}; }}"
    ended = child(made, small / "out", "fill", 0, *probe[:4], "sh", "-c", script, "sh")
    assert ended.returncode == 1, ended.stderr
    assert "engram.part: No space left on device; the same command goes on" in ended.stderr
    assert_only_whole_files_have_names(tmp_path / "out", whole)
    finish(made, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / f"{SHARD}.part", 100),
        lambda folder: flip(folder / f"{SHARD}.part", 3 * 8192 - 1),
        lambda folder: rewrite(folder / f"{SHARD}.part", lambda data: data[:-1]),
        lambda folder: rewrite(folder / f"{SHARD}.part", lambda data: b""),
        lambda folder: rewrite(folder / f"{SHARD}.part", lambda data: data + bytes(1 << 20)),
        lambda folder: (folder / f"{SHARD}.part").unlink(),
        lambda folder: rewrite(folder / JOURNAL, lambda data: data[:-30]),
        lambda folder: rewrite(folder / JOURNAL, lambda data: data + b'{"shard": "layer-14.rank-0.eng'),
        lambda folder: rewrite(folder / JOURNAL, lambda data: data + b"\0\0\0\n[]\n{}\n"),
        lambda folder: rewrite(folder / JOURNAL, lambda data: data + b'{"source": {}}\n'),
        lambda folder: rewrite(
            folder / JOURNAL, lambda data: data + b'{"source": {"layers": [{"layer": 1}]}}\n'
        ),
        lambda folder: rewrite(
            folder / JOURNAL, lambda data: data + b'{"source": {"layers": [], "stamps": 1}}\n'
        ),
        lambda folder: rewrite(folder / JOURNAL, lambda data: data + b"[" * 100_000 + b"\n"),
    ],
)
def test_a_part_or_journal_that_was_damaged_meanwhile_costs_work_and_no_byte(
    made: TinyCheckpoint, whole: dict[str, bytes], stopped: Path, damage: Callable[[Path], None]
) -> None:
    damage(stopped)
    finish(made, stopped)
    assert contents(stopped) == whole


@pytest.mark.parametrize("tail", [b"", bytes(64)], ids=["cut", "zeros"])
def test_a_journal_that_lost_its_end_with_the_power_is_gone_on_with_wherever_it_ends(
    made: TinyCheckpoint, whole: dict[str, bytes], stopped: Path, tmp_path: Path, tail: bytes
) -> None:
    """Shards are forced to disk before they get their names, the journal is not: it may be older than they are."""
    text = (stopped / JOURNAL).read_bytes()
    assert (stopped / "layer-1.rank-1.engram").exists()
    for left in range(0, len(text), 83):
        out = tmp_path / f"left{left}"
        shutil.copytree(stopped, out)
        (out / JOURNAL).write_bytes(text[:left] + tail)
        finish(made, out)
        assert contents(out) == whole


def test_parts_of_another_source_are_begun_anew_where_the_journal_lost_what_the_source_was(
    made: TinyCheckpoint, stopped: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    other = TinyCheckpoint(copy, made.head_sizes, made.columns, made.scale_block, made.padding, made.names)
    flip(other.file(14), other.file(14).stat().st_size - 1)
    lines = (stopped / JOURNAL).read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"stamps"' not in line]
    assert len(kept) == len(lines) - 1
    (stopped / JOURNAL).write_bytes(b"".join(kept))
    finish(other, stopped)
    finish(other, tmp_path / "fresh")
    assert contents(stopped) == contents(tmp_path / "fresh")


class Counting:
    """A checkpoint that counts how often it is described and the rows that are read."""

    def __init__(self, tables: CheckpointTables) -> None:
        self._tables, self.rows, self.described = tables, 0, 0
        self.heads, self.scale_block = tables.heads, tables.scale_block
        self.stamps, self.describe_bytes, self.close = tables.stamps, tables.describe_bytes, tables.close

    def describe(self, layer: int, advance: Advance) -> CheckpointSource:
        self.described += 1
        return self._tables.describe(layer, advance)

    def read(self, layer: int, start: int, end: int) -> NDArray[np.uint8]:
        assert layer == 14
        self.rows += end - start
        return self._tables.read(layer, start, end)


def test_what_was_done_is_not_done_again(
    made: TinyCheckpoint, whole: dict[str, bytes], stopped: Path
) -> None:
    with checkpoint(made.folder) as tables:
        source = Counting(tables)
        build(source, stopped, OPTIONS, quiet)
    assert contents(stopped) == whole
    assert source.described == 0
    # Layer 14 but its first three chunks, and a row more at each of the chunks' borders.
    spared = (3 * 8192 - 4096) // 264
    assert source.rows <= made.rows(14) - spared + 13


def test_a_source_that_changed_since_is_refused_and_one_that_was_touched_is_not(
    whole: dict[str, bytes], made: TinyCheckpoint, stopped: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    same = TinyCheckpoint(copy, made.head_sizes, made.columns, made.scale_block, made.padding, made.names)
    flip(same.file(14), same.file(14).stat().st_size - 1)
    with pytest.raises(
        SourceError, match="layer 14: the source is not what the unfinished build there began with"
    ):
        finish(same, stopped)
    assert not (stopped / "manifest.json").exists()
    flip(same.file(14), same.file(14).stat().st_size - 1)
    finish(same, stopped)
    assert contents(stopped) == whole


def test_a_source_that_is_written_to_during_the_build_is_refused(
    made: TinyCheckpoint, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    file = copy / made.file(14).name

    def spoil(step: str, _done: int, _total: int) -> None:
        if step == "pack":
            os.utime(file, ns=(0, 0))

    with checkpoint(copy) as source, pytest.raises(SourceError, match="changed while it was being read"):
        build(source, tmp_path / "out", OPTIONS, spoil)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_source_that_cannot_be_read_is_named_and_not_the_shard(
    made: TinyCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int, _buffers: object, _offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with checkpoint(made.folder) as source:
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(
            SourceError, match=r"model-00001\.safetensors: cannot be read \(Input/output error\)"
        ):
            build(source, tmp_path / "out", OPTIONS, quiet)


def test_a_journal_whose_plan_is_none_is_not_gone_on_with(made: TinyCheckpoint, stopped: Path) -> None:
    rewrite(stopped / JOURNAL, lambda data: b'{"plan": 3}\n' + data)
    with pytest.raises(BuildError, match="an unfinished build that differs in plan; "):
        finish(made, stopped)


@pytest.mark.parametrize("content", [b"", b"another file of that name"])
def test_a_file_that_has_a_shards_name_already_is_not_overwritten(
    made: TinyCheckpoint, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / SHARD).write_bytes(content)
    with pytest.raises(
        BuildError, match=f"{SHARD}: is there already, and is not what this build would write"
    ):
        finish(made, tmp_path / "out")
    assert (tmp_path / "out" / SHARD).read_bytes() == content
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_completed_shard_that_was_damaged_before_the_manifest_is_refused(
    made: TinyCheckpoint, stopped: Path
) -> None:
    flip(stopped / "layer-1.rank-0.engram", 5000)
    with pytest.raises(BuildError, match=r"layer-1\.rank-0\.engram: is there already"):
        finish(made, stopped)


def test_other_ranks_digests_are_spared_when_a_build_of_one_rank_is_gone_on_with(
    made: TinyCheckpoint, whole: dict[str, bytes], tmp_path: Path
) -> None:
    options = BuildOptions(2, rank=1, chunk_bytes=8192)
    steps = 0

    def stop(step: str, _done: int, _total: int) -> None:
        nonlocal steps
        steps += step == "pack"
        if steps == _chunks_before(made) + 1:
            raise KeyboardInterrupt

    with checkpoint(made.folder) as source:
        with pytest.raises(KeyboardInterrupt):
            build(source, tmp_path / "out", options, stop)
        build(source, tmp_path / "out", options, quiet)
    assert (tmp_path / "out" / "manifest.json").read_bytes() == whole["manifest.json"]
    assert read_manifest(tmp_path / "out").identity == json.loads(whole["manifest.json"])["identity"]
