"""Files that are named to the commands, or that lie where they look: whatever they are, one sentence and no waiting."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engram_process import engram
from engram_remote.server.life import remove_ready_file
from engram_remote.tables.record import FILE_NAME as RECORD
from engram_service import built
from engram_tables import TinyCheckpoint, tiny_checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / "model", smallest=60)


@pytest.fixture
def model(made: TinyCheckpoint, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder, tmp_path / "model"))


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def too_deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def in_one_sentence(*words: str | Path) -> str:
    ended = engram(*words)
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.lstrip("\n")  # where a bar would stand is an empty line
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00001.safetensors"])
def test_a_checkpoint_with_a_pipe_is_refused_and_not_waited_for(model: Path, name: str) -> None:
    assert (model / name).is_file()
    a_pipe(model / name)
    said = in_one_sentence("build", model, model.with_name("out"), "--ranks", "2")
    assert said == f"Error: {model / name}: not a regular file\n"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_checkpoint_whose_json_is_too_deep_is_refused(model: Path, name: str) -> None:
    too_deep(model / name)
    assert str(model / name) in in_one_sentence("build", model, model.with_name("out"), "--ranks", "2")


@pytest.mark.parametrize(("spoil", "why"), [(a_pipe, "not a regular file\n"), (too_deep, "is not JSON (")])
def test_a_configuration_that_is_none_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    config = tmp_path / "config"
    spoil(config)
    words = ("build", "--synthetic", tmp_path / "out", "--ranks", "1", "--config", config)
    assert in_one_sentence(*words).startswith(f"Error: {config}: {why}")


def test_runs_and_texts_that_are_pipes_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    a_pipe(pipe)
    compare = in_one_sentence("logit-ab", "compare", "--baseline", pipe, pipe)
    more = ("--url", "http://192.0.2.1", "--label", "A", "--out", tmp_path / "out", "--data", pipe)
    assert compare == in_one_sentence("logit-ab", "run", *more) == f"Error: {pipe}: not a regular file\n"


def test_a_record_of_digests_that_is_a_pipe_is_no_record(made: TinyCheckpoint, tmp_path: Path) -> None:
    tables = built(made, tmp_path / "out")
    a_pipe(tables / RECORD)
    assert engram("verify", tables).returncode == 0


@pytest.mark.parametrize("spoil", [a_pipe, too_deep, lambda path: path.write_text("[]")])
def test_a_ready_file_that_is_another_thing_by_now_is_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "ready")
    remove_ready_file(tmp_path / "ready")
    assert (tmp_path / "ready").exists()


def test_a_refusal_is_one_line_whatever_a_path_holds(made: TinyCheckpoint, tmp_path: Path) -> None:
    tables = built(made, tmp_path / "a\nb\x1b[2J")
    path = tables / "layer-1.rank-0.engram"
    os.truncate(path, path.stat().st_size - 1)
    shown = str(tables).replace("\n", "\ufffd").replace("\x1b", "\ufffd")
    for words in (("serve", tables, "--listen", "tcp://127.0.0.1:0"), ("check", tables)):
        assert in_one_sentence(*words).startswith(f"Error: {shown}/layer-1.rank-0.engram: bytes: ")
    said, size = engram("verify", tables).stderr.splitlines(), path.stat().st_size
    assert [line for line in said if shown in line] == [
        f"{shown}/{path.name}: bytes: has {size} bytes, 1 too few for the manifest's {size + 1}",
        f"Error: {shown}: 1 of 4 shards are not what the manifest says",
    ]
