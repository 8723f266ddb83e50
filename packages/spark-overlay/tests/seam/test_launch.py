"""The launcher: an engine that does not prove that it drafts remotely is ended, whole, in one sentence."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from spark_overlay.launch import Launched, LaunchError, run
from spark_overlay.launch_command import launch
from spark_overlay.readiness import READY_FILE, START_ID, ReadinessRecord, write_record
from spark_overlay.refusal import leave_refusal
from spark_overlay.vllm_seam.errors import SeamError

READY = """
import os, pathlib, sys
from spark_overlay.readiness import ReadinessRecord, write_record
from spark_overlay.refusal import left_behind
def ready(start_id=os.environ["VLLM_DSPARK_REMOTE_START_ID"], pid=os.getpid(), worker="connected"):
    path = pathlib.Path(os.environ["VLLM_DSPARK_REMOTE_READY_FILE"])
    versions = {"vllm": "0.32.0"}
    write_record(path, ReadinessRecord(pid, start_id, "capacity", "tcp://h:1", "0" * 64, versions, worker=worker))
def refuse(sentence, environ=os.environ):
    from spark_overlay.vllm_seam.errors import SeamError
    with left_behind(environ):
        raise SeamError(sentence)
"""
"""What the engine's part does, for a command that stands for an engine."""
WAIT = "import signal; signal.pause()\n"
GONE_S = 5.0


def engine(code: str) -> list[str]:
    return [sys.executable, "-c", READY + code]


@pytest.fixture
def environ() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)}


@pytest.fixture
def settings(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of an operator whose settings are right."""
    right = {
        "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
        "VLLM_DSPARK_REMOTE_IDENTITY": "0" * 64,
        "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": "0" * 64,
        **environ,
    }
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    for name, value in right.items():
        monkeypatch.setenv(name, value)
    return right


def gone(pid: int) -> bool:
    """Whether a process ends within a few seconds; one that init must still reap counts as ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(process):
        return bool(select.select([process], [], [], GONE_S)[0])


def test_a_record_of_this_start_by_a_live_process_is_readiness(environ: dict[str, str]) -> None:
    with Launched(engine("ready()\n" + WAIT), environ=environ, start_id="s7") as launched:
        record = launched.wait_ready(30)
        assert (record.pid, record.start_id, record.policy) == (launched.process.pid, "s7", "capacity")
        assert not launched.ended(0)
    assert gone(record.pid)
    assert not launched.record_path.exists()


@pytest.mark.parametrize("call", ["ready(start_id='another')", "ready(pid=2 ** 22 + 1)", "pass"])
def test_without_a_record_of_this_start_by_a_live_process_the_engine_is_ended(
    environ: dict[str, str], call: str
) -> None:
    launched = Launched(engine(call + "\n" + WAIT), environ=environ)
    with pytest.raises(LaunchError, match="no readiness record within 2 s") as refused:
        launched.wait_ready(2)
    assert refused.value.status == 3
    assert gone(launched.process.pid)


def test_the_whole_process_group_is_ended_also_what_ignores_sigterm(environ: dict[str, str]) -> None:
    code = (
        "import subprocess\n"
        "ignore = 'import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()'\n"
        "child = subprocess.Popen([sys.executable, '-c', ignore], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "ready(pid=child.pid)\n" + WAIT
    )
    with Launched(engine(code), environ=environ) as launched:
        grandchild = launched.wait_ready(30).pid
    assert gone(grandchild)
    assert gone(launched.process.pid)


@pytest.mark.parametrize(("code", "status"), [("sys.exit(9)", 9), ("sys.exit(0)", 3), ("os.abort()", 134)])
def test_a_command_that_ends_before_it_is_ready_is_told_at_once_with_its_status(
    environ: dict[str, str], code: str, status: int
) -> None:
    launched = Launched(engine(code), environ=environ)
    with pytest.raises(
        LaunchError, match=r"ended with status \d+ before the remote drafter was in place"
    ) as refused:
        launched.wait_ready(60)
    assert refused.value.status == status


def test_what_a_process_of_the_engine_refused_is_the_launchers_last_line(settings: dict[str, str]) -> None:
    """The engine's own output has it far above the end."""
    code = (
        "import subprocess\n"
        "if len(sys.argv) > 1: refuse('dtype is\\n int8')\n"
        "subprocess.run([*sys.orig_argv, 'child'])\nrefuse('what the first made of it')"
    )
    done = CliRunner().invoke(launch, ["--", *engine(code)])
    assert done.exit_code == 1
    assert done.stderr == (
        "spark-overlay: the command ended with status 1 before the remote drafter was in place: dtype is int8\n"
    )


def test_an_engine_that_refused_and_went_on_is_told_with_its_sentence(environ: dict[str, str]) -> None:
    code = "try: refuse('as it is')\nexcept Exception: pass\n" + WAIT
    with (
        Launched(engine(code), environ=environ) as launched,
        pytest.raises(LaunchError, match=r"within 3 s and was ended: as it is$"),
    ):
        launched.wait_ready(3)


@pytest.mark.parametrize("start_id", ["s7", "another"])
def test_an_older_starts_refusal_is_not_taken_for_this_ones(
    environ: dict[str, str], tmp_path: Path, start_id: str
) -> None:
    given = environ | {READY_FILE: str(tmp_path / "ready.json"), START_ID: start_id}
    leave_refusal(given, SeamError("of an older start"))
    late = f"\nrefuse('of another', os.environ | {{{START_ID!r}: 'another'}})"
    with Launched(engine(late), environ=given, start_id="s7") as launched:
        with pytest.raises(LaunchError, match=r"in place$"):
            launched.wait_ready(30)
        assert launched.status() == 1


def test_a_launcher_that_is_killed_takes_the_engine_with_it(settings: dict[str, str]) -> None:
    command = [sys.executable, "-c", "from spark_overlay.cli import main; main()", "launch", "--"]
    code = (
        "import subprocess\n"
        f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}], stdout=subprocess.DEVNULL)\n"
        "ready()\nprint(os.getpid(), child.pid, flush=True)\n" + WAIT
    )
    with subprocess.Popen([*command, *engine(code)], stdout=subprocess.PIPE, env=settings) as launcher:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        launcher.kill()
    assert [pid for pid in pids if not gone(pid)] == []


def test_nothing_of_the_launcher_is_left_after_an_end_in_good_order(environ: dict[str, str]) -> None:
    with Launched(engine("ready()\n" + WAIT), environ=environ) as launched:
        launched.wait_ready(30)
        guard = launched._guard
        assert guard.poll() is None
    assert guard.returncode == 0


@pytest.mark.parametrize("value", ["nan", "inf", "0"])
def test_a_time_to_wait_that_would_never_end_is_refused(settings: dict[str, str], value: str) -> None:
    done = CliRunner().invoke(launch, ["--ready-timeout-s", value, "--", "no-such-command"])
    assert (done.exit_code, "--ready-timeout-s" in done.stderr) == (2, True)


def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_READY_FILE", str(tmp_path / "missing" / "ready.json"))
    done = CliRunner().invoke(launch, ["--", "no-such-command"])
    assert (done.exit_code, f"{tmp_path / 'missing'} is not a folder" in done.stderr) == (2, True)


def test_a_key_that_may_not_be_used_is_refused_before_anything_starts(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_KEY_FILE", str(tmp_path / "key"))
    done = CliRunner().invoke(launch, ["--", "no-such-command"])
    said = f"spark-overlay: VLLM_DSPARK_REMOTE_KEY_FILE: key file {tmp_path / 'key'} does not exist: "
    assert (done.exit_code, done.stderr.startswith(said), done.stderr.count("\n")) == (2, True, 1)


def test_an_older_starts_record_is_not_taken_for_this_ones(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    write_record(path, ReadinessRecord(os.getpid(), "s7", "capacity", "tcp://h:1", "0" * 64, {}))
    given = environ | {"VLLM_DSPARK_REMOTE_READY_FILE": str(path)}
    with Launched(engine(WAIT), environ=given, start_id="s7") as launched, pytest.raises(LaunchError):
        launched.wait_ready(0.3)


@pytest.mark.parametrize("plugins", ["", "lora_filesystem_resolver", "spark_overlay_too"])
def test_plugins_that_leave_the_overlay_out_are_refused_before_anything_starts(
    environ: dict[str, str], tmp_path: Path, plugins: str
) -> None:
    touched = tmp_path / "touched"
    command = [sys.executable, "-c", f"open({str(touched)!r}, 'w')"]
    with pytest.raises(LaunchError, match=r"VLLM_PLUGINS is .* leaves out 'spark_overlay'") as refused:
        Launched(command, environ=environ | {"VLLM_PLUGINS": plugins})
    assert refused.value.status == 2, "nothing was started"
    assert not touched.exists()


def test_plugins_that_name_the_overlay_are_served(environ: dict[str, str]) -> None:
    given = environ | {"VLLM_PLUGINS": "other,spark_overlay"}
    with Launched(engine("ready()\n" + WAIT), environ=given) as launched:
        launched.wait_ready(30)


def test_a_command_that_does_not_exist_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match="'no-such-command' cannot be started") as refused:
        Launched(["no-such-command"], environ=environ)
    assert refused.value.status == 2, "nothing was started"


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_status_is_the_commands_own(environ: dict[str, str], end: str, status: int) -> None:
    command = engine(f"import signal\nsignal.signal(10, lambda *_: {end})\nready()\nsignal.pause()")

    def end_it(record: ReadinessRecord) -> None:
        os.kill(record.pid, signal.SIGUSR1)

    assert run(command, environ=environ, start_id=None, timeout_s=30, on_ready=end_it) == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_and_the_launcher_outlives_them(
    environ: dict[str, str], number: signal.Signals
) -> None:
    code = f"import signal\nsignal.signal({number.value}, lambda *_: sys.exit(21))\nready()\nsignal.pause()"
    before = signal.getsignal(number)

    def signal_the_launcher(record: ReadinessRecord) -> None:
        os.kill(os.getpid(), number)

    status = run(engine(code), environ=environ, start_id=None, timeout_s=30, on_ready=signal_the_launcher)
    assert status == 21
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ("connected", "; the worker is connected\n"),
        ("not there yet: nobody listens", "; the worker is not there yet: nobody listens\n"),
        ("not used in this run: identity", "; the worker is not used in this run: identity\n"),
        ("", "\n"),
    ],
)
def test_the_command_line_starts_the_engine_says_who_is_ready_and_returns_its_status(
    settings: dict[str, str], worker: str, told: str
) -> None:
    code = f"ready(worker={worker!r})\nsys.exit(5)"
    done = CliRunner().invoke(launch, ["--ready-timeout-s", "30", "--start-id", "s1", "--", *engine(code)])
    assert done.exit_code == 5
    assert f" has the remote drafter (capacity) in place{told}" in done.stderr
    assert "the worker's endpoint is tcp://h:1; vllm 0.32.0" in done.stderr


def test_the_command_line_refuses_to_start_without_the_switch(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_DSPARK_REMOTE")
    done = CliRunner().invoke(launch, ["--", "no-such-command"])
    assert (done.exit_code, "VLLM_DSPARK_REMOTE is not set" in done.stderr) == (2, True)


def test_the_command_line_refuses_bad_settings_before_anything_starts(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_TIMEOUT_MS", "nan")
    done = CliRunner().invoke(launch, ["--", "no-such-command"])
    assert (done.exit_code, "VLLM_DSPARK_REMOTE_TIMEOUT_MS" in done.stderr) == (2, True)


def test_the_command_line_returns_3_for_an_engine_that_is_not_ready_in_time(settings: dict[str, str]) -> None:
    done = CliRunner().invoke(launch, ["--ready-timeout-s", "0.5", "--", *engine(WAIT)])
    assert (done.exit_code, "no readiness record within 0.5 s" in done.stderr) == (3, True)
    assert "Traceback" not in done.output
