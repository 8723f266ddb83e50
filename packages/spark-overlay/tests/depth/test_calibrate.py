"""`spark-overlay calibrate` against an engine that obeys its control file, and against ones that do not do as asked."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest
from fake_engine_http import FakeEngine, Planted, fake_engine
from spark_overlay.cli import main
from spark_overlay.control.files import read_record
from spark_overlay.control.ordering import order
from spark_overlay.control.record import ControlFileError, ControlRecord
from spark_overlay.depth import calibrate as module

K = 3
ACCEPTED = 2
"""Drafts of each step that are accepted, where so many are verified."""


class RankZero:
    """An engine's rank 0 behind the fake API: its control file is obeyed, its rounds are counted in its stats file.

    told: what else the stats say.  fails: rounds of each completion that fail.  deaf: it never reads its orders.
    ignores: what the control section says instead of the record's values.
    """

    def __init__(self, folder: Path, planted: Planted) -> None:
        self.control, self.stats = folder / "control.json", folder / "stats.json"
        self.planted = planted
        self.engine: FakeEngine | None = None
        self.told: dict[str, Any] = {}
        self.ignores: dict[str, Any] = {}
        self.fails, self.deaf = 0, False
        self.record = ControlRecord()
        self.rounds = self.failed = 0
        self.sum_us = 0.0
        self.depths: list[int | None] = []
        self.lock = threading.Lock()
        self.ending = threading.Event()

    def drafts_on(self) -> bool:
        """A completion begins."""
        assert self.engine is not None
        depth = self.record.depth_max
        self.depths.append(depth)
        deep = K if depth is None else depth
        self.planted.block, self.planted.accepted = deep, min(ACCEPTED, deep)
        tokens = self.engine.requests[-1]["max_tokens"]
        steps = 1 + -(-(tokens - 1) // (1 + self.planted.accepted))
        self.rounds += steps
        self.failed += self.fails
        self.sum_us += steps * 100.0 * (1 + deep)
        self.write()
        return deep > 0

    def run(self) -> None:
        """As the engine's thread looks at its file."""
        while not self.ending.wait(0.005):
            record = read_record(self.control) or ControlRecord()
            if record != self.record and not self.deaf:
                self.record = record
                if record.depth_max is None:
                    self.planted.block = K
                self.write()

    def write(self) -> None:
        record = self.record
        control = {
            "file": str(self.control),
            "state": record.state,
            "pending": False,
            "depth_max": record.depth_max,
            "written_at": record.written_at,
            "problem": "",
            "depth_note": "",
        }
        stats = {
            "policy": "capacity",
            "endpoint": "tcp://10.0.0.2:18620",
            "connected": True,
            "counters": {"rounds_failed": self.failed, "rounds_some_failed": 0},
            "latency": {"rank0_round_us": {"count": self.rounds, "sum": self.sum_us}},
            "acceptance": {},
            "control": control | self.ignores,
        }
        with self.lock:
            new = self.stats.with_suffix(".new")
            new.write_text(json.dumps(stats | self.told))
            new.replace(self.stats)


@contextmanager
def rank_zero(folder: Path) -> Iterator[RankZero]:
    planted = Planted(max_model_len=None, step_s=0.001, block=K)
    rank = RankZero(folder, planted)
    planted.drafts_on = rank.drafts_on
    thread = threading.Thread(target=rank.run)
    with fake_engine(planted) as engine:
        rank.engine = engine
        rank.write()
        thread.start()
        try:
            yield rank
        finally:
            rank.ending.set()
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[RankZero]:
    with rank_zero(tmp_path) as made:
        yield made


def calibrate(rank: RankZero, *more: str) -> click.testing.Result:
    assert rank.engine is not None
    where = ["--url", rank.engine.url, "--control", str(rank.control), "--stats", str(rank.stats)]
    small = ["--repeats", "3", "--generate", "32", "--tokens", "8"]
    return click.testing.CliRunner().invoke(main, ["calibrate", *where, *small, *more])


def test_every_depth_is_measured_and_tables_figures_and_verdict_are_written(
    rank: RankZero, tmp_path: Path
) -> None:
    order(rank.control, "left by somebody", depth_max=1)
    figures, lines = tmp_path / "out.json", tmp_path / "out.env"
    done = calibrate(rank, "--json", str(figures), "--output", str(lines))
    assert done.exit_code == 0, done.output
    found = json.loads(figures.read_text())
    assert [one["depth"] for one in found["depths"]] == [0, 1, 2, 3]
    assert found["depths"][0]["accepted_per_step"] == 0
    # 31 tokens after the first, three a step: ten whole ones and one of 1 token.
    assert found["depths"][2]["accepted_per_step"] == pytest.approx(20 / 11)
    assert found["block"] == K
    # A round of each depth costs 100 us more than one of the depth below.
    assert [one["remote_ms"] for one in found["depths"]] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert found["draft_ms"] == pytest.approx(0.3)
    assert len(found["round_ms"]) == K + 1
    assert found["verdict"] in done.output
    assert lines.read_text() in done.output
    assert f"VLLM_DSPARK_REMOTE_DRAFT_MS={found['draft_ms']}" in lines.read_text()
    # Depth 3 costs the fake nothing more than depth 2 and brings nothing more: which of them is noise.
    assert {0, 1}.isdisjoint(found["candidates"])


def test_the_engine_is_given_back_as_it_was(rank: RankZero) -> None:
    order(rank.control, "left by somebody", depth_max=1)
    assert calibrate(rank).exit_code == 0
    left = read_record(rank.control)
    assert left is not None
    assert (left.depth_max, left.reason, left.state) == (1, "left by somebody", "active")


def test_depths_take_turns_and_no_prompt_is_asked_twice_for_the_cache(rank: RankZero) -> None:
    assert calibrate(rank, "--depths", "1,3").exit_code == 0
    assert rank.engine is not None
    long = [
        (depth, asked)
        for depth, asked in zip(rank.depths, rank.engine.requests, strict=True)
        if asked["max_tokens"] == 32
    ]
    assert [depth for depth, _ in long] == [None, 1, 3, 3, 1, 1, 3]
    salts = [asked["cache_salt"] for asked in rank.engine.requests]
    assert len(set(salts)) == len(salts)
    prompts = [tuple(asked["prompt"]) for _, asked in long[1:]]
    assert prompts[0] == prompts[1]
    assert prompts[2] == prompts[3]


def test_without_every_depth_the_lines_say_why_they_have_no_table(rank: RankZero) -> None:
    done = calibrate(rank, "--depths", "3,1")
    assert done.exit_code == 0
    assert "# VLLM_DSPARK_REMOTE_ROUND_MS needs all depths; not measured: 0, 2" in done.output


def test_given_texts_are_asked_in_turn(rank: RankZero, tmp_path: Path) -> None:
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps(["a bb", "ccc dddd eeeee"]))
    figures = tmp_path / "out.json"
    assert calibrate(rank, "--prompts", str(texts), "--depths", "2", "--json", str(figures)).exit_code == 0
    assert json.loads(figures.read_text())["prompt_tokens"] == [3, 4, 3]
    assert json.loads(figures.read_text())["prompts"] == "given"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"running": 1}, "has other requests, 1 running and 0 waiting"),
        ({"told": {"policy": "shadow"}}, "the engine is in shadow"),
        (
            {"told": {"connected": False, "last_failure": "nobody listens"}},
            "no worker drafts for the engine: nobody listens",
        ),
        ({"told": {"disabled": "identity"}}, "no worker drafts for the engine: identity"),
        ({"told": {"control": None}}, "obeys another control file than"),
        ({"ignores": {"file": "/x/other.json"}}, "/x/other.json"),
        ({"ignores": {"state": "paused"}}, "`spark-overlay resume` first"),
        (
            {"ignores": {"depth_note": "it plans ahead"}},
            "the engine cannot be held to a depth: it plans ahead",
        ),
        ({"ignores": {"depth_max": 9}}, "somebody else changed"),
        ({"fails": 2}, "rounds failed at depth 0"),
    ],
)
def test_what_would_not_be_the_depths_own_figures_is_refused_in_a_sentence_and_left_as_it_was(
    rank: RankZero, change: dict[str, Any], sentence: str
) -> None:
    for name, value in change.items():
        setattr(rank.planted if name == "running" else rank, name, value)
    rank.write()
    done = calibrate(rank)
    assert done.exit_code == 1, done.output
    assert done.output.startswith("spark-overlay calibrate: ")
    assert sentence in done.output
    assert (read_record(rank.control) or ControlRecord()).depth_max is None


def test_an_engine_that_does_not_obey_is_told_apart_from_one_that_does(
    rank: RankZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EFFECT_S", 0.2)
    rank.deaf = True
    done = calibrate(rank)
    assert done.exit_code == 1
    assert "was not held to depth None within 0.2 s: the engine, which reads" in done.output


def test_figures_of_another_engine_are_not_taken_for_its_own(
    rank: RankZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EFFECT_S", 0.2)
    rank.told = {"latency": {"rank0_round_us": {"count": 5, "sum": 1.0}}}
    rank.write()
    done = calibrate(rank)
    assert done.exit_code == 1
    assert "counts 5 rounds where" in done.output


@pytest.mark.parametrize(
    ("deep", "sentence"),
    [
        (lambda depth: K, "the engine verified 3.00 drafts a step"),
        (lambda depth: K if depth is None else 0, "verified 0.00 drafts a step"),
    ],
)
def test_an_engine_whose_depth_something_else_chooses_is_refused(
    rank: RankZero, deep: Any, sentence: str
) -> None:
    obeys = rank.drafts_on

    def drafts_on() -> bool:
        obeys()
        rank.planted.block = deep(rank.record.depth_max)
        if not rank.planted.block:
            rank.rounds += 32
            rank.write()
        return bool(rank.planted.block)

    rank.planted.drafts_on = drafts_on
    done = calibrate(rank, "--depths", "1,2")
    assert done.exit_code == 1
    assert "held to depth 1" in done.output
    assert sentence in done.output


def test_a_depth_beyond_what_the_engine_verifies_is_refused(rank: RankZero) -> None:
    done = calibrate(rank, "--depths", "2,4")
    assert done.exit_code == 1
    assert "depth 4 is more than the 3 drafts that the engine verifies" in done.output


def test_an_engine_without_speculation_is_refused(rank: RankZero) -> None:
    rank.planted.speculative = False
    done = calibrate(rank)
    assert done.exit_code == 1
    assert "counts no drafts in its metrics" in done.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--depths", "1,x"], "depths of 0 or more with commas between are needed, not '1,x'"),
        (["--depths", "1,1"], "'1,1' has a depth twice"),
        (["--repeats", "2"], "--repeats"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at is not a folder"),
        (["--json", "same", "--output", "same"], "--output: same is the file of --json too"),
        (["--url", "ftp://x"], "is no address"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(rank: RankZero, given: list[str], words: str) -> None:
    done = calibrate(rank, *given)
    assert done.exit_code == 2
    assert words in done.output
    assert rank.engine is not None
    assert rank.engine.requests == []


def test_a_folder_that_takes_no_figures_is_told_before_an_hour_of_measuring(
    rank: RankZero, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The user of the tests may be root, whom no mode stops.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    done = calibrate(rank, "--output", str(tmp_path / "depth.env"))
    assert done.exit_code == 2
    assert f"--output: {tmp_path} cannot be written to" in done.output


@pytest.mark.parametrize("option", ["--json", "--output"])
@pytest.mark.parametrize("read", ["control", "stats"])
def test_no_figures_are_written_over_a_file_of_the_engine_s(rank: RankZero, option: str, read: str) -> None:
    path = {"control": rank.control, "stats": rank.stats}[read]
    done = calibrate(rank, option, str(path))
    assert done.exit_code == 2
    assert f"{option}: {path} is the file of --{read} too" in done.output


@pytest.mark.parametrize("text", ["{}", "[]", '["a", 1]', '[""]', "no JSON", "[" * 100_000])
def test_a_file_of_prompts_that_is_none_is_refused(rank: RankZero, tmp_path: Path, text: str) -> None:
    (tmp_path / "texts.json").write_text(text)
    done = calibrate(rank, "--prompts", str(tmp_path / "texts.json"))
    assert done.exit_code == 2
    assert "--prompts" in done.output


def test_an_engine_that_cannot_be_reached_has_its_own_status(rank: RankZero) -> None:
    done = calibrate(rank, "--url", "http://127.0.0.1:9")
    assert done.exit_code == 3
    assert "http://127.0.0.1:9" in done.output


def test_a_missing_stats_file_is_told_by_its_name(rank: RankZero, tmp_path: Path) -> None:
    done = calibrate(rank, "--stats", str(tmp_path / "none.json"))
    assert done.exit_code == 1
    assert f"{tmp_path / 'none.json'}: No such file or directory" in done.output


def test_a_run_that_takes_too_long_ends_and_gives_the_engine_back(rank: RankZero) -> None:
    done = calibrate(rank, "--timeout-s", "0.05")
    assert done.exit_code in (1, 3)
    assert (read_record(rank.control) or ControlRecord()).depth_max is None


def test_a_run_that_is_ended_gives_the_engine_back(rank: RankZero, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    obeys = rank.drafts_on

    def drafts_on() -> bool:
        if rank.record.depth_max == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return obeys()

    rank.planted.drafts_on = drafts_on
    done = calibrate(rank)
    assert done.exit_code == 130
    assert "ended before it was done" in done.output
    assert (read_record(rank.control) or ControlRecord()).depth_max is None


def test_an_engine_that_verifies_far_fewer_drafts_than_its_depth_is_refused(rank: RankZero) -> None:
    obeys = rank.drafts_on

    def drafts_on() -> bool:
        drafting = obeys()
        if rank.record.depth_max == 3:
            rank.planted.block = 2
        return drafting

    rank.planted.drafts_on = drafts_on
    done = calibrate(rank, "--depths", "3", "--generate", "96")
    assert done.exit_code == 1
    assert "held to depth 3, the engine verified only 2.00 drafts a step" in done.output


def test_a_control_file_that_may_not_be_used_is_told(rank: RankZero, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path) -> ControlRecord:
        raise ControlFileError("has mode 0666, which lets other users write it")

    monkeypatch.setattr(module, "read_record", refuses)
    done = calibrate(rank)
    assert done.exit_code == 1
    assert f"the control file {rank.control} has mode 0666" in done.output
