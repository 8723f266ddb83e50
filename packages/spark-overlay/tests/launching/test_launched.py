"""A config that is started: the engine gets its environment, and is ended where what was asked for did not come."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from launch_rig import Place
from spark_overlay import first_host
from spark_overlay.launch import Launched, LaunchError
from spark_overlay.launch_command import launch
from spark_overlay.supervisor import notify

ENGINE = """
import json, os, pathlib, signal, sys, time
from spark_overlay.readiness import ReadinessRecord, write_record
def drafter(worker="connected"):
    path = pathlib.Path(os.environ["VLLM_DSPARK_REMOTE_READY_FILE"])
    start = os.environ["VLLM_DSPARK_REMOTE_START_ID"]
    write_record(path, ReadinessRecord(os.getpid(), start, "capacity", "tcp://h:1", "0" * 64, {}, worker=worker))
def tables(number, pid=os.getpid(), connected=True, **more):
    start = os.environ["VLLM_ENGRAM_REMOTE_START_ID"]
    record = {"format": 1, "pid": pid, "start_id": start, "rank": number, "connected": connected, **more}
    path = pathlib.Path(os.environ["VLLM_ENGRAM_REMOTE_READY_FILE"] + f".{number}")
    path.write_text(json.dumps(record))
"""
WAIT = "\nsignal.pause()\n"
TABLES = {"VLLM_ENGRAM_REMOTE": "tcp://h:1", "VLLM_ENGRAM_REMOTE_TABLES": "/srv/engram"}


@pytest.fixture
def environ() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)}


def engine(code: str) -> list[str]:
    return [sys.executable, "-c", ENGINE + code]


class Rig:
    """A deployment whose engine is a program of ours."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place, self._patch = place, monkeypatch
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))

    def launch(self, code: str, *options: str, config: str = "C-capacity", more: str = "") -> Result:
        path = self._place.root / "engine.py"
        path.write_text(ENGINE + code)
        self._place.write(more)
        text = self._place.site.read_text()
        self._place.site.write_text(f'command = ["{sys.executable}", "{path}"]\n{text}')
        arguments = ["--config", config, "--site", str(self._place.site), "--ready-timeout-s", "20", *options]
        return CliRunner().invoke(launch, arguments)


@pytest.fixture
def rig(place: Place, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(place, monkeypatch)


def test_the_engine_gets_the_configs_environment_and_command_and_none_of_the_shells(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_TRIP", "9")
    monkeypatch.setenv("VLLM_ENGRAM_REMOTE", "tcp://elsewhere:1")
    code = """
assert "VLLM_DSPARK_REMOTE_TRIP" not in os.environ and "VLLM_ENGRAM_REMOTE" not in os.environ
assert os.environ["VLLM_DSPARK_REMOTE"] == "tcp://10.0.0.1:18620"
assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1"
assert sys.argv[-2:] == ["--seed", "7"] and "--speculative-config" in sys.argv
drafter()
"""
    done = rig.launch(code, "--", "--seed", "7")
    assert done.exit_code == 0, done.output
    first, second = done.stderr.splitlines()[:2]
    assert first == (
        "spark-overlay: left out of the engine's environment, as C-capacity decides: VLLM_DSPARK_REMOTE_TRIP, "
        "VLLM_ENGRAM_REMOTE"
    )
    assert second.endswith("has the remote drafter (capacity) in place; the worker is connected")


def test_an_engine_of_a_config_that_came_up_without_its_drafter_is_ended(rig: Rig) -> None:
    done = rig.launch(WAIT, "--ready-timeout-s", "1")
    assert done.exit_code == 3
    assert "the engine wrote no readiness record within 1 s and was ended" in done.stderr


def test_local_drafting_is_started_and_nothing_is_waited_for(rig: Rig) -> None:
    done = rig.launch("sys.exit(7)", config="A-local")
    assert done.exit_code == 7
    assert done.stderr == "spark-overlay: A-local has nothing of ours in it, so nothing is waited for\n"


def test_a_host_without_rank_0_waits_for_its_own_ranks_word(rig: Rig) -> None:
    more = 'tensor_parallel_size = 2\nhosts = ["10.0.1.1", "10.0.1.2"]\n'
    code = "assert sys.argv[-1] == '--headless'\ndrafter(worker=\"asked by rank 0 alone, on another host\")"
    done = rig.launch(code, "--rank", "1", more=more)
    assert done.exit_code == 0, done.output
    assert "in place; the worker is asked by rank 0 alone, on another host" in done.stderr


def test_a_host_whose_first_host_is_gone_is_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_host, "POLL_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    more = f'tensor_parallel_size = 2\nhosts = ["127.0.0.1", "127.0.0.2"]\nmaster_port = {port}\n'
    done = rig.launch("drafter()" + WAIT, "--rank", "1", more=more)
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1] == (
        f"spark-overlay: rank 0 at 127.0.0.1, port {port}, answers no more: this host's part was ended"
    )


def test_one_lost_connection_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_host, "POLL_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        assert first_host.answers(host, port)
        seen = iter([True, False, False, True, False, False, True])
        monkeypatch.setattr(first_host, "answers", lambda host, port: next(seen))
        waits = iter([False] * 7 + [True])
        assert not first_host.outlived(host, port, lambda seconds: next(waits))
        seen = iter([False, True, False, False, False])
        assert first_host.outlived(host, port, lambda seconds: False)
        assert next(seen, None) is None


def test_a_first_host_that_is_started_later_is_waited_for_and_missed_once_it_was_there(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_host, "POLL_S", 0.0)
    seen = iter([False] * 9 + [True, False, False, False])
    monkeypatch.setattr(first_host, "answers", lambda host, port: next(seen))
    more = 'tensor_parallel_size = 2\nhosts = ["127.0.0.1", "127.0.0.2"]\n'
    done = rig.launch(WAIT, "--rank", "1", config="A-local", more=more)
    assert done.exit_code == 3
    assert "answers no more" in done.stderr
    assert next(seen, None) is None


def test_tables_of_every_local_rank_are_waited_for_and_said(rig: Rig) -> None:
    more = 'tensor_parallel_size = 2\n[tables]\nservers = "tcp://h:1"\ntables = "/srv/engram"\n'
    done = rig.launch("tables(1, connected=False); drafter(); time.sleep(0.2); tables(0)", more=more)
    assert done.exit_code == 0, done.output
    last = done.stderr.splitlines()[-1]
    assert last == "spark-overlay: ranks 0, 1 read Engram tables remotely; of 1 the server is not there yet"


def test_tables_beside_local_drafting_are_waited_for_too(rig: Rig) -> None:
    more = '[tables]\nservers = "tcp://h:1"\ntables = "/srv/engram"\n'
    done = rig.launch("tables(0)", config="A-local", more=more)
    assert done.exit_code == 0, done.output
    assert done.stderr == "spark-overlay: rank 0 read Engram tables remotely\n"


def test_an_engine_that_ends_before_its_tables_are_remote_is_told_with_its_status(
    environ: dict[str, str],
) -> None:
    for code, status in (("sys.exit(9)", 9), ("sys.exit(0)", 3)):
        with (
            Launched(engine(code), environ=environ | TABLES, drafter=False) as launched,
            pytest.raises(
                LaunchError, match=r"ended with status \d before its tables were remote$"
            ) as refused,
        ):
            launched.wait_tables(1, 20)
        assert refused.value.status == status


@pytest.mark.parametrize(
    "code",
    [
        "drafter()",
        "drafter(); tables(0, start_id='another')",
        "drafter(); tables(0, pid=2 ** 22 + 1)",
        "drafter(); tables(0, rank='0')",
        "drafter(); pathlib.Path(os.environ['VLLM_ENGRAM_REMOTE_READY_FILE'] + '.0').write_text('{')",
        "drafter(); pathlib.Path(os.environ['VLLM_ENGRAM_REMOTE_READY_FILE'] + '.0').mkdir()",
    ],
)
def test_without_the_word_of_a_live_rank_of_this_start_the_engine_is_ended(
    environ: dict[str, str], code: str
) -> None:
    with Launched(engine(code + WAIT), environ=environ | TABLES) as launched:
        launched.wait_ready(20)
        with pytest.raises(LaunchError, match=r"^0 of 2 ranks said within 0\.5 s") as refused:
            launched.wait_tables(2, 0.5)
        assert refused.value.status == 3
        assert launched.ended(0)


def test_a_place_for_the_records_that_an_operator_gave_is_kept(
    environ: dict[str, str], tmp_path: Path
) -> None:
    given = environ | TABLES | {"VLLM_ENGRAM_REMOTE_READY_FILE": str(tmp_path / "tables.json")}
    with Launched(engine("tables(3)" + WAIT), environ=given, drafter=False) as launched:
        (record,) = launched.wait_tables(1, 20)
    assert record.rank == 3
    assert (tmp_path / "tables.json.3").is_file()


@pytest.mark.parametrize(
    ("drafts", "plugins", "missing"),
    [(True, "spark_overlay", "engram_remote"), (False, "", "engram_remote")],
)
def test_plugins_that_leave_the_tables_out_are_refused_before_anything_starts(
    environ: dict[str, str], drafts: bool, plugins: str, missing: str
) -> None:
    given = environ | TABLES | {"VLLM_PLUGINS": plugins}
    with pytest.raises(
        LaunchError, match=f"leaves out '{missing}': the engine would serve without it"
    ) as refused:
        Launched(engine("pass"), environ=given, drafter=drafts)
    assert refused.value.status == 2


def test_plugins_may_leave_the_overlay_out_where_it_was_not_asked_for(environ: dict[str, str]) -> None:
    given = environ | TABLES | {"VLLM_PLUGINS": "engram_remote"}
    with Launched(engine("tables(0)" + WAIT), environ=given, drafter=False) as launched:
        assert len(launched.wait_tables(1, 20)) == 1


@pytest.fixture(params=[False, True], ids=["path", "abstract"])
def supervisor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """What systemd listens on, by a path or by an abstract name."""
    name = f"spark-overlay-notify-{os.getpid()}" if request.param else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(f"\0{name}" if request.param else name)
        told.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if request.param else name)
        yield told


def test_a_supervisor_is_told_once_everything_is_in_place_and_the_engine_is_not_given_its_socket(
    rig: Rig, supervisor: socket.socket
) -> None:
    done = rig.launch("assert 'NOTIFY_SOCKET' not in os.environ\ndrafter()")
    assert done.exit_code == 0, done.output
    assert supervisor.recv(1000) == b"READY=1\nSTATUS=C-capacity has what it was asked for"


def test_a_supervisor_is_told_nothing_by_an_engine_that_was_ended(
    rig: Rig, supervisor: socket.socket
) -> None:
    assert rig.launch(WAIT, "--ready-timeout-s", "1").exit_code == 3
    supervisor.setblocking(False)
    with pytest.raises(BlockingIOError):
        supervisor.recv(1000)


def test_a_supervisors_socket_that_is_gone_ends_no_engine(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    done = rig.launch("drafter()")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1].endswith("gone was not told READY=1: No such file or directory")


def test_without_a_supervisor_nobody_is_told() -> None:
    assert notify({}, "READY=1") == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND: what starts the engine must be given after --, or --config"),
        (["--site", "x", "--", "true"], "--site: it needs --config, which is not given"),
        (["--set", "a=b", "--", "true"], "--set: it needs --config, which is not given"),
        (["--rank", "0", "--", "true"], "--rank: it needs --config, which is not given"),
        (["--print", "--", "true"], "--print: it needs --config, which is not given"),
        (
            ["--config", "A-local", "--format", "json"],
            "--format: it says how --print prints, which is not given",
        ),
    ],
)
def test_options_that_go_together_are_told_where_one_is_missing(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(launch, arguments)
    assert (done.exit_code, done.stderr) == (2, f"spark-overlay: {said}\n")


def test_a_mistyped_option_is_told_and_not_taken_for_the_engines() -> None:
    done = CliRunner().invoke(launch, ["--confg", "C-capacity"])
    assert done.exit_code == 2
    assert "No such option" in done.stderr
    assert "--config" in done.stderr


def test_options_behind_the_engines_command_are_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vllm serve` has a --config too."""
    for name, value in (("", "tcp://h:1"), ("_IDENTITY", "0" * 64), ("_MARKOV_IDENTITY", "0" * 64)):
        monkeypatch.setenv(f"VLLM_DSPARK_REMOTE{name}", value)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    code = ENGINE + "assert sys.argv[1:] == ['--config', 'engine.yaml', '--rank', '3']\ndrafter()"
    for separator in ([], ["--"]):
        arguments = [*separator, sys.executable, "-c", code, "--config", "engine.yaml", "--rank", "3"]
        assert CliRunner().invoke(launch, arguments).exit_code == 0
