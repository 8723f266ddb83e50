"""`spark-overlay pause`, `resume`, `rearm`: what is written, what is waited for, and each exit status."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spark_overlay.cli import main
from spark_overlay.control.files import read_record
from spark_overlay.control.ordering import effect, order, wait_for
from spark_overlay.control.record import ControlRecord
from spark_overlay.stats_file import StatsFileError

VARIABLE = "VLLM_DSPARK_REMOTE_CONTROL_FILE"


class Host:
    """A folder with a control file and the figures of an engine that obeys it."""

    def __init__(self, folder: Path) -> None:
        self.control, self.stats = folder / "control.json", folder / "stats.json"

    def run(self, *words: str, environ: bool = False) -> Result:
        file = [] if environ else ["--control", str(self.control)]
        return CliRunner().invoke(main, [words[0], *file, *words[1:]], env={VARIABLE: str(self.control)})

    def record(self) -> ControlRecord:
        record = read_record(self.control)
        assert record is not None
        return record

    def write_stats(self, control: dict[str, Any] | None, **more: object) -> None:
        empty: dict[str, Any] = {"counters": {}, "latency": {}, "acceptance": {}, "control": control}
        self.stats.with_suffix(".new").write_text(json.dumps(empty | more))
        self.stats.with_suffix(".new").replace(self.stats)

    def obey(self, **more: object) -> None:
        """The figures of an engine in which what the file says is in effect."""
        self.write_stats(self.control_section(), **more)

    def control_section(self, **changes: object) -> dict[str, Any]:
        record = read_record(self.control) or ControlRecord()
        return {"file": str(self.control), "pending": False, "problem": "", **record.model_dump(), **changes}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_pause_and_resume_are_written_whole_with_reason_time_and_user(host: Host) -> None:
    before = time.time()
    result = host.run("pause", "--reason", "a new kernel")
    assert (result.exit_code, result.output) == (
        0,
        f"spark-overlay: {host.control} asks for paused, rearm 0\n",
    )
    paused = host.record()
    assert (paused.state, paused.reason, paused.written_by_uid) == ("paused", "a new kernel", os.getuid())
    assert before <= paused.written_at <= time.time() + 1
    assert host.run("resume").exit_code == 0
    active = host.record()
    assert (active.state, active.reason) == ("active", "")
    assert active.written_at > paused.written_at


def test_the_variable_of_the_engine_names_the_file_too(host: Host) -> None:
    assert host.run("pause", environ=True).exit_code == 0
    assert host.record().state == "paused"


def test_an_order_leaves_alone_what_it_is_not_about(host: Host) -> None:
    order(host.control, depth_max=3)
    host.run("pause")
    host.run("rearm")
    record = host.record()
    assert (record.state, record.depth_max) == ("paused", 3)
    assert record.rearm > 0


def test_each_rearm_has_a_number_of_its_own_also_after_the_file_was_removed(host: Host) -> None:
    numbers = []
    for _ in range(3):
        host.run("rearm")
        numbers.append(host.record().rearm)
    assert numbers == sorted(set(numbers))
    host.control.unlink()
    before = int(time.time())
    host.run("rearm")
    assert host.record().rearm >= before


def test_two_orders_never_carry_one_time(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)
    times = [order(host.control).written_at for _ in range(50)]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("pause", "--wait", "1"), 2, "--wait needs --stats"),
        (("pause", "--reason", "x" * 501), 2, "'--reason': 500 characters are the most, not 501."),
        (("pause", "--reason", "\udcff"), 2, "'--reason': it is not UTF-8 text."),
        (("pause", "--stats", "s.json", "--wait", "nan"), 2, "nan is not a finite number"),
        (("pause", "now"), 2, "unexpected extra argument"),
    ],
)
def test_bad_input_writes_nothing(host: Host, words: tuple[str, ...], status: int, said: str) -> None:
    result = host.run(*words)
    assert result.exit_code == status
    assert said in result.output
    assert not host.control.exists()


def test_no_file_named_anywhere_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["pause"], env={VARIABLE: ""})
    assert result.exit_code == 2
    assert "--control" in result.output
    assert VARIABLE in result.output


@pytest.mark.parametrize("content", ["{", '{"schema_version": 9}'])
def test_a_file_that_is_no_record_is_refused_and_kept(host: Host, content: str) -> None:
    host.control.write_text(content)
    result = host.run("resume")
    assert result.exit_code == 2
    assert result.output.startswith(f"spark-overlay: the control file {host.control} ")
    assert host.control.read_text() == content


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no" / "control.json"
    result = CliRunner().invoke(main, ["pause", "--control", str(path)])
    assert result.exit_code == 2
    assert result.output == (
        f"spark-overlay: the control file {path} cannot be written: No such file or directory\n"
    )


# --- waiting ---


def answered(host: Host, *words: str, **more: object) -> Result:
    """A command, and an engine that obeys once the order is written."""
    before = host.record().written_at if host.control.exists() else 0.0
    ended = threading.Event()

    def obey() -> None:
        while not ended.wait(0.01):
            if host.control.exists() and host.record().written_at > before:
                host.obey(**more)
                return

    engine = threading.Thread(target=obey)
    engine.start()
    try:
        return host.run(*words, "--stats", str(host.stats), "--wait", "20")
    finally:
        ended.set()
        engine.join()


def test_pause_waits_until_the_figures_say_so(host: Host) -> None:
    result = answered(host, "pause", connected=False)
    assert result.exit_code == 0
    assert result.output.endswith("in effect: paused, no session with the worker\n")


def test_resume_says_whom_it_is_connected_to(host: Host) -> None:
    result = answered(host, "resume", connected=True, endpoint="tcp://w:1")
    assert result.exit_code == 0
    assert result.output.endswith("in effect: active, connected to tcp://w:1\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"disabled": "identity: ours aa, theirs bb"}, "the worker is refused: identity: ours aa, theirs bb"),
        (
            {"connected": False, "last_failure": "nobody\nlistens"},
            "no worker is connected: nobody\ufffdlistens",
        ),
        ({"connected": False}, "no worker is connected: no answer yet"),
    ],
)
def test_a_rearm_that_brings_no_session_is_status_1(host: Host, more: dict[str, Any], said: str) -> None:
    result = answered(host, "rearm", **more)
    assert result.exit_code == 1
    assert said in result.output


def test_a_later_order_of_somebody_else_is_told(host: Host) -> None:
    ordered = order(host.control, state="paused")
    host.write_stats(host.control_section(state="active", written_at=ordered.written_at + 1))
    result = host.run("pause", "--stats", str(host.stats), "--wait", "0")
    assert result.exit_code == 1  # the figures are of a record of before this order, or of another one
    stats, why = wait_for(host.stats, ordered, 0.0)
    assert stats is not None
    assert why == ""


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (None, "this engine has no control file: VLLM_DSPARK_REMOTE_CONTROL_FILE is not set for it"),
        ({"file": "/c", "written_at": 1.0}, "the engine, which reads /c, has not read it yet"),
        (
            {"file": "/c", "written_at": 1.0, "problem": "has mode 0666"},
            "the engine refuses its control file /c, which has mode 0666",
        ),
        ({"file": "/c", "written_at": 9.0, "pending": True}, "the engine is connecting to its worker"),
    ],
)
def test_why_an_order_is_not_in_effect_is_said(host: Host, section: dict[str, Any] | None, said: str) -> None:
    host.write_stats(section)
    assert wait_for(host.stats, ControlRecord(written_at=5.0), 0.0) == (None, said)


def test_a_wait_is_bounded_and_says_what_is_missing(host: Host) -> None:
    result = host.run("pause", "--stats", str(host.stats), "--wait", "0.05")
    assert result.exit_code == 1
    assert f"not in effect: {host.stats}: No such file or directory" in result.output
    assert host.record().state == "paused"


def test_figures_of_another_kind_are_named() -> None:
    with pytest.raises(StatsFileError, match="control is not a mapping"):
        effect({"control": 3}, ControlRecord())
