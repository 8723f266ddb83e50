"""`spark-overlay bench` against an engine over HTTP: OFF and ON by turns, and no figures where ON was not ON."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_control import FakeRankZero, fake_rank_zero
from fake_engine_http import FakeEngine, Planted, fake_engine
from spark_overlay.bench import arms, run
from spark_overlay.bench.result import BenchResult
from spark_overlay.cli import main
from spark_overlay.control.files import changed, read_record

SMALL = ("--contexts", "60,200", "--generate", "17", "--repeats", "2")
REMOTE = ("VLLM_DSPARK_REMOTE_CONTROL_FILE", "VLLM_DSPARK_REMOTE_STATS_FILE")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for long here."""
    for name in REMOTE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run, "SETTLE_S", 0.5)
    monkeypatch.setattr(run, "SETTLE_PAUSE_S", 0.01)
    monkeypatch.setattr(arms, "EFFECT_S", 1.0)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[FakeRankZero]:
    with fake_rank_zero(tmp_path) as made:
        yield made


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def paused(rank: FakeRankZero, engine: FakeEngine, *arguments: str) -> Result:
    """One engine that is paused and resumed."""
    engine.planted.drafts_on = rank.drafts_on
    files = ("--control", str(rank.control), "--stats", str(rank.stats))
    return bench("--url", engine.url, *files, *SMALL, *arguments)


def test_one_engine_is_paused_and_resumed_by_turns_and_both_arms_are_told(rank: FakeRankZero) -> None:
    with fake_engine(Planted(accepted=3, step_s=0.001, step_off_s=0.003)) as engine:
        done = paused(rank, engine, "--json")
    assert done.exit_code == 0, done.output
    result = BenchResult.model_validate_json(done.stdout)
    assert [one.context_tokens for one in result.contexts] == [60, 200]
    for one in result.contexts:
        # 16 tokens behind the first: 16 steps of 3 ms in OFF, 4 of 1 ms in ON.
        assert (one.off.steps, one.on.steps) == (32, 8), "of both repeats"
        assert (one.off.accepted_per_draft, one.on.accepted_per_draft) == (None, 3.0)
        assert one.on_over_off.step_mean.median == pytest.approx(1 / 3)
        assert one.on_over_off.decode_tokens_per_s.median == pytest.approx(12.0)
    assert result.how == "one engine, paused and resumed"
    assert rank.orders == ["paused", "active"] * 3, (
        "OFF ON, ON OFF, twice, and ON; an arm is not entered anew"
    )


def test_prompts_are_new_each_and_the_same_from_the_same_seed(rank: FakeRankZero) -> None:
    with fake_engine() as engine:
        for seed in ("1", "1", "2"):
            assert paused(rank, engine, "--seed", seed).exit_code == 0
        thirds = len(engine.requests) // 3
        runs = [engine.requests[at * thirds : (at + 1) * thirds] for at in range(3)]
    prompts = [[tuple(request["prompt"]) for request in one] for one in runs]
    assert len(set(prompts[0])) == thirds, "the short ones that are not measured too"
    assert prompts[0][:-1] == prompts[1][:-1]
    assert not set(prompts[0]) & set(prompts[2])
    assert len({request["cache_salt"] for one in runs for request in one}) == 3, (
        "and no run meets another's cache"
    )


def test_the_table_is_for_people(rank: FakeRankZero) -> None:
    with fake_engine() as engine:
        done = paused(rank, engine)
    assert done.exit_code == 0, done.output
    assert "ON/OFF" in done.stdout
    assert "medians of 2 repeats" in done.stdout
    assert done.stderr == ""


def test_the_engine_is_left_drafting_as_it_was(rank: FakeRankZero) -> None:
    changed(rank.control, lambda record: record.changed(depth_max=4))
    with fake_engine() as engine:
        assert paused(rank, engine).exit_code == 0
    record = read_record(rank.control)
    assert record is not None
    assert (record.state, record.reason, record.depth_max) == ("active", "", 4)


def test_an_engine_is_resumed_too_where_the_bench_fails_in_off(rank: FakeRankZero) -> None:
    with fake_engine(Planted(fewer=1)) as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert rank.orders[0] == "paused"
    record = read_record(rank.control)
    assert record is not None
    assert record.state == "active"


@pytest.mark.parametrize(
    ("told", "clause"),
    [
        ({"disabled": "identity: another worker"}, "the remote is not used in this run of the engine"),
        ({"policy": "shadow"}, "the engine is in shadow"),
        ({"control": None}, "obeys another control file than"),
        ({"control": {"file": "/elsewhere"}}, "obeys another control file than"),
        ({"counters": []}, "counters is not a mapping"),
    ],
)
def test_an_engine_that_cannot_be_paused_is_refused_before_it_is_touched(
    told: dict[str, Any], clause: str, rank: FakeRankZero
) -> None:
    rank.told |= told
    rank.write()
    with fake_engine() as engine:
        done = paused(rank, engine)
        assert not engine.requests
    assert done.exit_code == 1
    assert clause in done.stderr
    assert not rank.control.exists()


def test_an_engine_that_somebody_paused_is_refused_and_stays_paused(rank: FakeRankZero) -> None:
    changed(rank.control, lambda record: record.changed(state="paused", reason="drain the worker"))
    with fake_engine() as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert "is paused by" in done.stderr
    assert "drain the worker" in done.stderr
    record = read_record(rank.control)
    assert record is not None
    assert record.state == "paused"


def test_somebody_elses_order_during_the_run_ends_it(rank: FakeRankZero) -> None:
    def resume() -> bool:
        if len(engine.requests) == 2:  # in the first measured request: OFF
            changed(rank.control, lambda record: record.changed(state="active", reason="mine"))
            rank.look()
        return rank.drafts_on()

    with fake_engine() as engine:
        files = ("--control", str(rank.control), "--stats", str(rank.stats))
        engine.planted.drafts_on = resume
        done = bench("--url", engine.url, *files, "--contexts", "60", "--generate", "17", "--repeats", "2")
    assert done.exit_code == 1
    assert "somebody else changed" in done.stderr
    record = read_record(rank.control)
    assert record is not None
    assert (record.state, record.reason) == ("active", "mine"), "and it stays"


def test_a_pause_that_does_not_take_effect_is_said(rank: FakeRankZero) -> None:
    rank.obeys = False
    with fake_engine() as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert "said paused the engine is active still" in done.stderr


def test_an_engine_that_is_not_idle_is_refused(rank: FakeRankZero) -> None:
    with fake_engine(Planted(running=1)) as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert "has other requests, 1 running and 0 waiting" in done.stderr


@pytest.mark.parametrize(
    ("planted", "clause"),
    [
        (Planted(accepted=0), "the remote is not in use: in 0.5 s of requests with drafting on"),
        (Planted(speculative=False), "it runs without speculative decoding"),
    ],
)
def test_on_without_accepted_drafts_gives_no_figures(
    planted: Planted, clause: str, rank: FakeRankZero
) -> None:
    with fake_engine(planted) as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert clause in done.stderr
    assert done.stdout == ""


def test_a_remote_that_failed_in_some_rounds_gives_no_figures(rank: FakeRankZero) -> None:
    rank.failing = 5
    with fake_engine() as engine:
        done = paused(rank, engine)
    assert done.exit_code == 1
    assert "the remote failed in " in done.stderr
    assert "fallback_timeout" in done.stderr
    assert "ON was a mix of both" in done.stderr


def test_a_stats_file_that_no_round_changes_is_of_another_engine(rank: FakeRankZero) -> None:
    with fake_engine() as engine:
        engine.planted.drafts_on = lambda: rank.state == "active"  # rounds are counted elsewhere
        files = ("--control", str(rank.control), "--stats", str(rank.stats))
        done = bench("--url", engine.url, *files, *SMALL)
    assert done.exit_code == 1
    assert "it is of another engine" in done.stderr


def test_two_engines_are_asked_by_turns_with_and_without_a_stats_file(rank: FakeRankZero) -> None:
    stock = Planted(drafts_on=lambda: False, speculative=False)
    with fake_engine(stock) as off, fake_engine(Planted(drafts_on=rank.drafts_on)) as on:
        for more in ((), ("--stats", str(rank.stats))):
            done = bench("--url", on.url, "--off-url", off.url, *SMALL, "--json", *more)
            assert done.exit_code == 0, done.output
        result = BenchResult.model_validate_json(done.stdout)
    assert (result.url, result.off_url, result.how) == (on.url, off.url, "two engines")
    assert not rank.orders
    assert result.contexts[0].off.drafts == 0
    assert result.contexts[0].on.accepted_per_draft == 3.0


def test_of_two_engines_both_must_be_idle_and_of_one_model() -> None:
    with fake_engine() as on, fake_engine(Planted(running=1)) as off:
        done = bench("--url", on.url, "--off-url", off.url, *SMALL)
        assert (done.exit_code, "has other requests" in done.stderr) == (1, True)
        off.planted.models = ("other",)
        done = bench("--url", on.url, "--off-url", off.url, *SMALL)
        assert (done.exit_code, "'tiny' is not one of them" in done.stderr) == (1, True)


def test_the_engines_settings_stand_in_for_the_files(
    rank: FakeRankZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in zip(REMOTE, (rank.control, rank.stats), strict=True):
        monkeypatch.setenv(name, str(path))
    with fake_engine(Planted(drafts_on=rank.drafts_on)) as engine:
        assert bench("--url", engine.url, *SMALL).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "clause"),
    [
        (
            [],
            "OFF needs --control, the engine's VLLM_DSPARK_REMOTE_CONTROL_FILE, or another engine by --off-url",
        ),
        (["--control", "c"], "--control needs --stats, the engine's VLLM_DSPARK_REMOTE_STATS_FILE"),
        (["--control", "c", "--off-url", "http://h:1"], "--control and --off-url exclude each other"),
        (["--url", "http://h:1/v1", "--off-url", "http://h:1"], "--off-url is the same engine as --url"),
        (["--url", "h"], "no address such as"),
        (["--contexts", "1,x"], "numbers above 0 with commas between"),
        (["--generate", "15"], "--generate"),
        (["--repeats", "0"], "--repeats"),
    ],
)
def test_wrong_usage_is_said_in_a_sentence(arguments: list[str], clause: str) -> None:
    done = bench(*arguments)
    assert done.exit_code == 2
    assert clause in " ".join(done.stderr.split())


def test_an_engine_that_cannot_be_reached_or_is_too_slow_is_status_3(rank: FakeRankZero) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = bench("--url", url, "--off-url", "http://h:1")
    assert (done.exit_code, "Connection refused" in done.stderr) == (3, True)
    with fake_engine(Planted(first_s=3.0)) as engine:
        done = paused(rank, engine, "--timeout-s", "0.5")
    assert done.exit_code == 3
    assert "no whole answer within" in done.stderr


def test_a_bench_that_is_ended_resumes_the_engine(rank: FakeRankZero) -> None:
    code = "from spark_overlay.cli import main; main()"
    with fake_engine(Planted(drafts_on=rank.drafts_on, first_s=60.0)) as engine:
        files = ("--control", str(rank.control), "--stats", str(rank.stats))
        command = [sys.executable, "-c", code, "bench", "--url", engine.url, *files, *SMALL]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ))
        try:
            assert rank.ordered.wait(60)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode not in (0, -signal.SIGTERM), said
    record = read_record(rank.control)
    assert record is not None
    assert record.state == "active"
    assert json.loads(rank.stats.read_text())["policy"] == "capacity"
