"""`bench`: every kind of lookup is measured over every wire, and what cannot be measured is one sentence."""

import json
import os
import shutil
from pathlib import Path

import pytest
from engram_process import engram
from engram_remote.bench.figures import DISK_COLD, DISK_WARM, LOCAL_RAM, REMOTE
from engram_service import built, served
from engram_tables import tiny_checkpoint

NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=2000)
    return built(made, tmp_path_factory.mktemp("tables") / "out")


def test_lookups_are_measured_beside_gather_wire_and_disk(tables: Path, tmp_path: Path) -> None:
    found = tmp_path / "bench.json"
    with served(tables) as one:
        each = [word for endpoint in one.endpoints.values() for word in ("--endpoint", endpoint)]
        words = ("--rows", "24,288", "--rounds", "10", "--layer", "14", "--json", found)
        ended = engram("bench", tables, *each, *words, timeout=120)
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(found.read_text())
    assert [size["rows"] for size in figures["sizes"]] == [24, 288]
    for size in figures["sizes"]:
        measured = {(line["source"], line["endpoint"]) for line in size["lookups"]}
        remote = {(REMOTE, endpoint) for endpoint in one.endpoints.values()}
        assert measured == {*remote, (DISK_WARM, ""), (DISK_COLD, ""), (LOCAL_RAM, "")}
        assert all(line["count"] >= 10 for line in size["lookups"])
    assert "24 rows, 0.01 MB" in ended.stdout
    assert "in the page cache before its lookups" in ended.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", "0"), "--rows: 1 to "),
        (("--rows", "some"), "--rows: "),
        (("--rank", "2"), "--rank: 2 is not one of the manifest's 2"),
        (("--layer", "2"), "--layer: 2 is not one of the manifest's [1, 14]"),
        (("--json", "/nowhere/found"), "--json /nowhere/found: its folder does not exist"),
        (("--wire", "tcp://192.0.2.1:5=tcp://192.0.2.1:6"), "--wire: 'tcp://192.0.2.1:5=tcp://192.0.2.1:6'"),
        ((), "nobody listens"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(tables: Path, words: tuple[str, ...], said: str) -> None:
    ended = engram("bench", tables, "--endpoint", NOBODY, "--rounds", "10", *words, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_shard_that_is_short_is_named_before_anything_is_measured(tables: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tables, tmp_path / "copy")
    path = copy / "layer-1.rank-0.engram"
    os.truncate(path, path.stat().st_size - 264)
    ended = engram("bench", copy, "--endpoint", NOBODY)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"Error: {path}: bytes: has ")
