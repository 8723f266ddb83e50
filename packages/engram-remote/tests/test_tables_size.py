"""Predictions: figures worked out by hand here, each with its formula, and inputs that say where they come from."""

import json
import math
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from engram_remote.cli import main
from engram_remote.commands.serve import default_gather_threads
from engram_remote.tables import measure
from engram_remote.tables.build import build
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.sizing import (
    GATHER_PIECE_ROWS,
    Host,
    Link,
    Table,
    load_figures,
    lookup_figures,
    memory_figures,
    reply_bytes,
    request_bytes,
)
from engram_remote.tables.source import checkpoint
from engram_tables import tiny_checkpoint
from ofl.contract.engram_v1 import layout

TABLE = Table(rows=[1000, 3000], columns=256, scales=8, ranks=2)
HOST = Host(
    memory_gb_per_s=2.64,
    row_ns=100,
    read_gb_per_s=2,
    hash_gb_per_s=0.5,
    load_threads=2,
    gather_threads=4,
    page_bytes=4096,
    reply_buffer_bytes=1_000_000,
)
LINK = Link(gbps=8, round_trip_us=10)


def test_memory_is_tables_with_their_headers_buffers_and_page_tables() -> None:
    value = {figure.name: figure.value for figure in memory_figures(TABLE, HOST)}
    tables = 4000 * 264 + 4 * 4096  # 1,072,384
    entries = math.ceil((tables + 1_000_000) / 4096) * 8  # 506 pages
    assert entries == 4048
    assert value == {
        "table_bytes": tables,
        "reply_buffer_bytes": 1_000_000,
        "page_table_bytes": entries,
        "server_bytes": tables + 1_000_000 + entries,
        "engine_bytes_saved": 2000 * 264,
    }


def test_loading_takes_as_long_as_the_slower_of_reading_and_digesting() -> None:
    data = 4000 * 264 + 4 * 4096
    value = {figure.name: figure.value for figure in load_figures(TABLE, HOST)}
    # Two threads of 0.5 GB/s digest 1 GB/s; the disk reads 2 GB/s.
    assert value == {"read_s": data / 2e9, "digest_s": data / 1e9, "load_s": data / 1e9}


def test_a_lookup_is_round_trip_gather_and_wire() -> None:
    value = {figure.name: figure.value for figure in lookup_figures(TABLE, HOST, LINK, 288)}
    # One thread: 288 rows of 100 ns and 264 bytes at 2.64 bytes a ns, which is 200 ns each.
    assert value["gather_288_us"] == pytest.approx(288 * 0.2)
    # 8 Gbit/s are 1,000 bytes a microsecond: 48 + 288 * 4 there, 64 + 288 * 264 back.
    assert value["wire_288_us"] == pytest.approx((48 + 1152 + 64 + 76_032) / 1000)
    assert value["lookup_288_us"] == pytest.approx(10 + 57.6 + 77.296)


def test_a_large_batch_is_gathered_by_all_threads_and_a_small_one_by_one() -> None:
    for rows, threads in ((1024, 1), (1025, 2), (3073, 4), (49_152, 4)):
        [gather, *_] = lookup_figures(TABLE, HOST, LINK, rows)
        assert gather.value == pytest.approx(rows * 0.2 / threads)


def test_the_servers_pieces_and_threads_are_those_that_it_has() -> None:
    source = (Path(__file__).parents[1] / "cpp" / "gather_pool.cpp").read_text()
    assert f"kPieceRows = {GATHER_PIECE_ROWS};" in source
    for more, threads in (((), default_gather_threads()), (("--gather-threads", 3), 3)):
        found = json.loads(run("--rows", 4000, "--json", *more)[1])
        assert found["host"]["gather_threads"] == threads


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1", "1e-320"])
def test_a_rate_that_no_figure_could_be_made_with_is_refused(rate: str) -> None:
    code, _, said = run("--rows", 4000, "--link-gbps", rate)
    assert code == 2
    assert "Invalid value for '--link-gbps'" in said


def test_message_sizes_are_the_contracts() -> None:
    assert request_bytes(3) == 32 + 8 + 8 + 12
    assert layout.HEADER.size + layout.LOOKUP_REPLY.size == 64
    # Three rows: 768 of values, 24 of scales on 64.
    assert reply_bytes(3, TABLE) == 64 + 768 + 64


# ---- the command


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["size", *(str(word) for word in words)])
    return result.exit_code, result.stdout, result.stderr


def test_every_figure_comes_with_its_formula_and_every_input_with_where_it_is_from() -> None:
    code, out, _ = run("--rows", 4000, "--ranks", 2, "--link-gbps", 8, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["inputs"]["link_gbps"] == {"value": 8.0, "from": "given"}
    assert {one["from"] for name, one in found["inputs"].items() if name != "link_gbps"} == {"assumed"}
    assert all(figure["formula"] and figure["unit"] for figure in found["figures"].values())
    assert found["figures"]["table_bytes"]["value"] == 2 * 4000 * 264 + 4 * 4096
    # 8 buffers of 131,072 rows, as `serve` has them.
    assert found["figures"]["reply_buffer_bytes"]["value"] == 8 * (64 + 131_072 * 264 + 128 * 2)
    text = run("--rows", 4000)[1]
    assert "assumed" in text
    assert "max(read, digest)" in text


def test_a_folders_manifest_says_the_tables_and_its_shards_are_read(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model", columns=128)
    with checkpoint(made.folder) as source:
        manifest = build(source, tmp_path / "out", BuildOptions(2), lambda *_: None)
    code, out, _ = run(tmp_path / "out", "--measure", "--hash-gb-per-s", 3, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["table"] == {"rows": [made.rows(1), made.rows(14)], "columns": 128, "scales": 4, "ranks": 2}
    assert found["figures"]["table_bytes"]["value"] == sum(shard.bytes for shard in manifest.shards)
    origins = {name: one["from"] for name, one in found["inputs"].items()}
    measured = dict.fromkeys(("memory_gb_per_s", "row_ns", "read_gb_per_s"), "measured")
    assert origins == {
        **measured,
        "hash_gb_per_s": "given",
        "link_gbps": "assumed",
        "round_trip_us": "assumed",
    }


def test_only_what_is_not_given_is_measured_and_reads_need_a_folder() -> None:
    found = json.loads(run("--rows", 100, "--measure", "--memory-gb-per-s", 2, "--row-ns", 3, "--json")[1])
    origins = {name: one["from"] for name, one in found["inputs"].items()}
    assert origins["hash_gb_per_s"] == "measured"
    assert {origins["memory_gb_per_s"], origins["row_ns"]} == {"given"}
    assert origins["read_gb_per_s"] == "assumed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--rows: is needed where no DIR is named"),
        (["--rows", 5, "--columns", 33], "--columns: 33 is no multiple of the scale block of 32"),
        (["--rows", 5, "--link-gbps", "nan"], "--link-gbps"),
        (["--rows", 5, "--link-gbps", "inf"], "--link-gbps"),
        (["--rows", 5, "--round-trip-us", 0], "--round-trip-us"),
        (["--rows", 0], "--rows"),
    ],
)
def test_inputs_that_cannot_be_are_refused_by_name(words: list[object], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_rows_beside_a_folder_are_refused(tmp_path: Path) -> None:
    made = tiny_checkpoint(tmp_path / "model")
    with checkpoint(made.folder) as source:
        build(source, tmp_path / "out", BuildOptions(2), lambda *_: None)
    assert "--rows: DIR says it" in run(tmp_path / "out", "--rows", 5)[2]


def test_measured_rates_are_those_of_work_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is a twin that says how long each try took; the work itself is real."""
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    assert measure.memory_gb_per_s() == pytest.approx((128 << 20) / 1e9)
    assert measure.hash_gb_per_s() == pytest.approx((32 << 20) / 1e9)
    # A second for 49,152 rows, less what copying 264 bytes at 1 byte a ns takes.
    assert measure.row_ns(264, 1.0) == pytest.approx(1e9 / 49_152 - 264)
    file = tmp_path / "file"
    file.write_bytes(bytes(40 << 20))
    assert measure.read_gb_per_s(file) == pytest.approx((40 << 20) / 1e9)
