"""The supervisor stops a run that must not go on, and leaves nothing running."""

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest
from one_check import CHECK, READY, MakePlatform, MakeRun
from qualification.runs import supervisor as supervising
from qualification.runs import watcher
from qualification.runs.folder import RunError
from qualification.runs.ledger import of_kind
from qualification.runs.processes import Process
from qualification.runs.side import run_side
from qualification.runs.supervisor import StoppedError, Supervisor
from qualification.runs.window import Limits, Window

STUBBORN = ["trap '' TERM", "sleep 60 & echo $! > {pid}", "wait"]
"""An arm that does not end when it is told to, with a child of its own."""
SECONDS = 30.0


def stubborn(pid: Path) -> list[str]:
    return [line.format(pid=pid) for line in STUBBORN]


def gone(pid: int) -> bool:
    """Whether a process ends within a bound."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([file], [], [], SECONDS)[0])
    finally:
        os.close(file)


def test_at_the_hard_bound_everything_is_ended(
    tmp_path: Path, scripted: MakePlatform, make_run: MakeRun
) -> None:
    platform = scripted(stubborn(tmp_path / "pid"))
    run = make_run(platform, Limits(1.0, 1.5, 60))
    with pytest.raises(RunError, match=r"the run was stopped: the window's hard bound"):
        run_side(run, platform, [CHECK], "off")
    assert gone(int((tmp_path / "pid").read_text()))
    assert run.ledger.entries[-1].kind == "stopped"


def test_no_case_begins_after_the_submission_deadline(scripted: MakePlatform, make_run: MakeRun) -> None:
    """The engine is up too late: its check is left out, by name, and the start ends in order."""
    lines = ["sleep 0.5", f"echo '{READY}'", "read order", """echo '{"event":"closed"}'"""]
    platform = scripted(lines)
    run = make_run(platform, Limits(0.3, 30, 30))
    run_side(run, platform, [CHECK], "off")
    (left_out,) = of_kind(run.ledger.entries, "not_begun")
    assert (left_out["check"], left_out["why"]) == ("one", "the submission deadline has passed")
    assert not any(of_kind(run.ledger.entries, "intent"))


def test_a_guard_command_that_fails_stops_the_run(
    tmp_path: Path, scripted: MakePlatform, make_run: MakeRun
) -> None:
    platform = scripted(stubborn(tmp_path / "pid"))
    run = make_run(platform)
    guard = ["sh", "-c", f"test ! -e {tmp_path / 'pid'}"]
    with pytest.raises(RunError, match="the run was stopped: the guard command ended with status 1"):
        run_side(run, platform, [CHECK], "off", guard=guard, guard_every_s=0.1)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_guard_command_that_hangs_or_is_not_there_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "GUARD_LIMIT_S", 0.2)
    for guard, why in (
        (["sleep", "60"], r"did not end within 0\.2 s"),
        (["/nowhere/guard"], "cannot be started"),
    ):
        with (
            Supervisor(Window(Limits(60, 60, 60)), guard) as supervisor,
            pytest.raises(StoppedError, match=why),
        ):
            wait_stopped(supervisor)


def test_a_guard_that_holds_stops_nothing(tmp_path: Path) -> None:
    told = tmp_path / "told"
    guard = ["sh", "-c", f"echo >> {told}"]
    with Supervisor(Window(Limits(60, 60, 60)), guard, guard_every_s=0.05) as supervisor:
        for _ in range(int(SECONDS / 0.05)):
            supervisor.check()
            if told.is_file() and told.read_bytes().count(b"\n") >= 3:
                return
            time.sleep(0.05)  # nothing tells when another process has run
    raise AssertionError("the guard was not run again")


def test_evidence_of_another_start_in_a_starts_folder_stops_the_run(tmp_path: Path) -> None:
    """As of an engine that ended and was started again: its hooks write under another id."""
    first, second = '{"kind":"facts","start_id":"a1"}\n', '{"kind":"facts","start_id":"b2"}\n'
    (tmp_path / "observations-a1-rank0.jsonl").write_text(first)
    with Supervisor(Window(Limits(60, 60, 60))) as supervisor:
        supervisor.start("a1", tmp_path)
        (tmp_path / "observations-b2-rank0.jsonl").write_text(second)
        with pytest.raises(StoppedError, match="of the start b2, and a1 is running"):
            wait_stopped(supervisor)


def test_a_start_that_is_over_is_not_watched(tmp_path: Path) -> None:
    with Supervisor(Window(Limits(60, 60, 60))) as supervisor:
        supervisor.start("a1", tmp_path)
        supervisor.over(tmp_path)
        (tmp_path / "observations-b2-rank0.jsonl").write_text('{"start_id":"b2"}\n')
        time.sleep(0.5)  # two looks of the watcher's: that nothing happens has no event
        supervisor.check()


def test_a_supervisor_that_is_gone_stops_the_run() -> None:
    with Supervisor(Window(Limits(60, 60, 60))) as supervisor:
        os.kill(supervisor.pid, signal.SIGKILL)
        with pytest.raises(StoppedError, match="the supervisor is gone"):
            wait_stopped(supervisor)


def test_a_process_that_ignores_the_end_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qualification.runs.processes.END_S", 0.3)
    script = tmp_path / "script"
    script.write_text("\n".join(stubborn(tmp_path / "pid")))
    with Supervisor(Window(Limits(60, 60, 60))) as supervisor:
        with Process("it", ["sh", str(script)], dict(os.environ), tmp_path / "log", supervisor) as process:
            for _ in range(int(SECONDS / 0.05)):
                if (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().strip():
                    break
                assert process.wait(0.05) is None
        assert gone(int((tmp_path / "pid").read_text()))
        assert process.status == -signal.SIGKILL


def test_the_watcher_needs_the_standard_library_alone() -> None:
    """It is started isolated and without site-packages."""
    source = Path(watcher.__file__).read_text(encoding="utf-8")
    names = [
        line.split()[1].partition(".")[0]
        for line in source.splitlines()
        if line.startswith(("import", "from"))
    ]
    assert names
    assert set(names) <= sys.stdlib_module_names


def wait_stopped(supervisor: Supervisor) -> None:
    """Ask until it stops; raises StoppedError."""
    for _ in range(int(SECONDS / 0.05)):
        supervisor.check()
        time.sleep(0.05)
    raise AssertionError("it never stopped")
