"""`engram-remote check` passes where every row is exact, and fails where one is not, or where a refusal does not
come.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from click.testing import CliRunner
from engram_client_tools import RANK, relayed
from engram_process import engram, serving
from engram_remote.check.cases import PREFILL_ROWS, corner_cases, random_cases
from engram_remote.check.expected import ExpectedRows, wrong_rows
from engram_remote.check.refusals import Refusals
from engram_remote.cli import main
from engram_remote.commands.reports import write_report
from engram_remote.server import preflight
from engram_remote.tables.build import build
from engram_remote.tables.errors import ShardError
from engram_remote.tables.manifest import read_manifest
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.synthetic import SyntheticTables, even_heads
from engram_service import Served, built, served
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1.layout import HEADER, REPLY_HEAD_BYTES, Status

ROWS = 60_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=5000)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "out"
    heads = even_heads({1: 20_000, 14: 30_000}, 256, 4)
    build(SyntheticTables(7, heads, 32), folder, BuildOptions(2, chunk_bytes=1 << 20), lambda *_: None)
    return folder


@pytest.fixture(scope="module")
def server(tables: Path) -> Iterator[Served]:
    with served(tables) as one:
        yield one


class WayReport(TypedDict):
    """What is read here of the report of one way."""

    way: str
    passed: bool
    rows_wrong: int
    rows_generated: int
    elsewhere: int
    faults: list[str]


class RefusalReport(TypedDict):
    """And of what a refusal was."""

    got: str


class CheckReport(TypedDict):
    """What `--json` writes."""

    passed: bool
    rows_checked: int
    rows_wrong: int
    ways: list[WayReport]
    refusals: list[RefusalReport]


def read_report(file: Path) -> CheckReport:
    report: CheckReport = json.loads(file.read_text())
    return report


def check(tables: Path, json_file: Path, *endpoints: str, rows: int = ROWS) -> tuple[int, CheckReport]:
    """Exit status and what --json wrote."""
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
    done = engram(
        "check", tables, "--rank", str(RANK), "--rows", str(rows), *words, "--json", json_file, timeout=120
    )
    assert json_file.exists(), done.stderr
    return done.returncode, read_report(json_file)


def test_every_way_passes_over_every_wire(synthetic: Path, tmp_path: Path) -> None:
    with served(synthetic) as one:
        status, report = check(synthetic, tmp_path / "report.json", *one.endpoints.values())
    assert status == 0
    assert report["passed"] is True
    assert report["rows_wrong"] == 0
    assert report["rows_checked"] > 3 * ROWS + 10 * PREFILL_ROWS
    ways = report["ways"]
    assert {way["way"] for way in ways} > {*one.endpoints.values(), "local shards", "local shards, pread"}
    assert all(way["rows_generated"] > 0 for way in ways)
    refusals = report["refusals"]
    assert len(refusals) == 2 * 16
    assert {refusal["got"] for refusal in refusals} == {
        *("IDENTITY", "NO_TABLE", "SHAPE", "LIMIT", "NOT_OPEN", "BAD_ID", "BAD_MESSAGE", "VERSION", "OK")
    }


@pytest.mark.parametrize("batch_rows", ["1", "100"])
def test_a_server_of_small_lookups_passes_a_check_of_as_small_ones(
    tables: Path, tmp_path: Path, batch_rows: str
) -> None:
    words = ("--listen", "tcp://127.0.0.1:0", "--batch-rows", batch_rows)
    with serving(tables, tmp_path, *words) as one:
        [endpoint] = one.ready()["endpoints"]
        done = engram("check", tables, "--endpoint", endpoint, "--rows", "300", "--batch-rows", batch_rows)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("at", [REPLY_HEAD_BYTES, REPLY_HEAD_BYTES + 300, -70])
def test_one_wrong_byte_fails_the_check(tables: Path, server: Served, tmp_path: Path, at: int) -> None:
    with relayed("tcp", server.endpoints["tcp"]) as relay:

        def change(body: bytearray) -> bytearray:
            if len(body) > 8 * REPLY_HEAD_BYTES:  # not those without rows
                body[at] ^= 1
            return body

        relay.change = change
        status, report = check(tables, tmp_path / "report.json", relay.endpoint, rows=1000)
    ways = {way["way"]: way for way in report["ways"]}
    assert status == 1
    assert report["passed"] is False
    assert report["rows_wrong"] > 0
    assert ways[relay.endpoint]["faults"]
    assert ways["local shards"]["passed"]
    if f"{relay.endpoint}, checksums" in ways:  # the client saw it, so that the rows came from elsewhere
        checksums = ways[f"{relay.endpoint}, checksums"]
        assert checksums["rows_wrong"] == 0
        assert checksums["elsewhere"] > 0
        assert not checksums["passed"]


def test_a_server_that_refuses_nothing_fails_the_check(tables: Path, server: Served) -> None:
    with relayed("tcp", server.endpoints["tcp"]) as relay:

        def forgive(body: bytearray) -> bytearray:
            at = HEADER.offsets["status"]
            if body[at] == Status.BAD_ID:
                body[at] = Status.LIMIT
            return body

        relay.change = forgive
        reports = Refusals(relay.endpoint, server.manifest, RANK, None).run()
    assert [report.name for report in reports if not report.passed] == ["an id past the shard"]


def test_a_server_that_is_not_there_fails_the_check_and_the_local_shards_are_checked(
    tables: Path, tmp_path: Path
) -> None:
    status, report = check(tables, tmp_path / "report.json", "tcp://127.0.0.1:1", rows=1000)
    ways = {way["way"]: way for way in report["ways"]}
    assert status == 1
    assert "nobody listens" in ways["tcp://127.0.0.1:1"]["faults"][0]
    assert ways["local shards"]["passed"]


def test_what_cannot_be_checked_is_one_sentence(tables: Path, tmp_path: Path) -> None:
    for words, said in (
        ((tables, "--rank", "2"), "--rank: 2 is not one of"),
        ((tmp_path,), "manifest.json"),
        ((tables, "--json", "/nowhere/found"), "--json /nowhere/found: its folder does not exist"),
    ):
        done = engram("check", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("change", [-1, -264, 264])
def test_a_shard_of_another_size_is_named_before_anything_is_asked(
    tables: Path, tmp_path: Path, change: int
) -> None:
    copy = shutil.copytree(tables, tmp_path / "copy")
    path = copy / f"layer-14.rank-{RANK}.engram"
    os.truncate(path, path.stat().st_size + change)
    done = engram("check", copy, "--rank", str(RANK))
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {path}: bytes: has ")


def test_a_shard_that_is_cut_while_it_is_compared_is_named_and_no_signal(
    tables: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(tables, tmp_path / "copy")
    expected = ExpectedRows(copy, read_manifest(copy), 14, RANK)
    last = np.array([expected.row_end - 1], np.int32)
    os.truncate(copy / f"layer-14.rank-{RANK}.engram", 8192)
    with pytest.raises(ShardError, match=r"rank-\d\.engram: bytes: ends at \d+ while it is being read"):
        expected.rows(last)


def test_a_report_goes_to_a_pipe_that_is_read_and_waits_for_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):
        write_report(tmp_path / "pipe", "x")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_report(tmp_path / "pipe", "told\n")
    assert os.read(reader, 100) == b"told\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_report_that_no_room_is_left_for_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / ("x" * 250)  # beside it a name must fit too
    write_report(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_report(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_expected_rows_are_those_of_the_source(made: TinyCheckpoint, tables: Path) -> None:
    expected = ExpectedRows(tables, read_manifest(tables), 14, RANK)
    ids = np.array(
        [expected.row_start, expected.row_end - 1, expected.row_end, -1, expected.row_start], np.int32
    )
    values, scales = made.expected_of_rank(14, RANK, 2, ids)
    assert wrong_rows(expected.rows(ids), values, scales) == 0
    assert expected.generated(ids) is None
    values[4, 255] ^= 1
    scales[0, 0] ^= 1
    assert wrong_rows(expected.rows(ids), values, scales) == 2


def test_the_cases_reach_every_corner(tables: Path) -> None:
    manifest = read_manifest(tables)
    expected = [ExpectedRows(tables, manifest, entry.layer, RANK) for entry in manifest.layers]
    random = np.random.default_rng(0)
    cases = corner_cases(expected, 65_536, random)
    for at, table in enumerate(expected):
        asked = [ids for case in cases for where, ids in case.batches if where == at]
        lengths = {len(ids) for ids in asked}
        every = np.concatenate(asked)
        assert {0, 1, 7, 63, 65, 4_097, PREFILL_ROWS} <= lengths
        assert {table.row_start, table.row_end - 1, -1, -(2**31), 2**31 - 1} <= set(every.tolist())
        assert any(len(ids) > 1 and len(set(ids.tolist())) == 1 for ids in asked)
    assert any(len(case.batches) == len(expected) for case in cases)
    drawn = list(random_cases(expected, 123_456, 65_536, random))
    assert sum(case.rows for case in drawn) == 123_456
    assert {at for case in drawn for at, _ in case.batches} == {0, 1}
    for rows_max in range(1, 11):
        small = corner_cases(expected, rows_max, random)
        assert max(case.rows for case in small) <= rows_max


def test_a_lookup_that_no_message_holds_is_refused_before_anything_is_checked(tables: Path) -> None:
    """2^24 rows of 256 values and 8 scales each, and 64 bytes of head: over 4 GiB, where a message has up to one."""
    rows = 1 << 24
    words = ("check", tables, "--endpoint", "tcp://192.0.2.1:1", "--batch-rows", str(rows))
    ended = engram(*words, timeout=60)
    row_bytes = read_manifest(tables).row_bytes
    assert ended.returncode == 2, ended.stdout
    said = ended.stderr.strip().splitlines()[-1]
    assert said.startswith(
        f"Error: batch_rows_max: {rows} rows need a message of {rows * row_bytes // 10**6}"
    )
    assert said.endswith(f"over the transport's {1 << 30}")
    assert ended.stdout == ""


def test_a_lookup_that_this_host_cannot_hold_is_refused_before_its_memory_is_written(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "rooms", lambda _: [preflight.Room(1 << 20, "the test")])
    words = ["check", str(tables), "--batch-rows", str(1 << 13), "--rows", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    need = (
        64 + (1 << 13) * (256 + 8) + 2 * (256 + 64)
    )  # head, the rows, and of two layers a row in full planes
    said = result.output.strip().splitlines()[-1]
    assert said == (
        f"Error: --batch-rows: the rows of one lookup need {need} bytes, and the test leaves 1048576 bytes"
    )
