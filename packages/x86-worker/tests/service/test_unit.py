"""The systemd unit that the package brings, and what a supervisor is told of the worker's life."""

import configparser
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from mock_process import WorkerProcess
from x86_worker.cli import main
from x86_worker.supervisor import notify
from x86_worker.unit import unit

VERIFIER = shutil.which("systemd-analyze")


def service(text: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


@pytest.fixture(params=[False, True], ids=["path", "abstract"])
def supervisor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """What systemd listens on, by a path or by an abstract name."""
    name = f"x86-worker-notify-{os.getpid()}" if request.param else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(f"\0{name}" if request.param else name)
        told.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if request.param else name)
        yield told


def test_a_supervisor_is_told_when_the_worker_listens_and_once_that_it_stops(
    supervisor: socket.socket, tmp_path: Path
) -> None:
    worker = WorkerProcess(tmp_path)
    assert supervisor.recv(1000).decode().splitlines() == [
        "READY=1",
        f"STATUS=listening on {worker.endpoints[0]}",
    ]
    assert worker.stop() == 0
    assert supervisor.recv(1000) == b"STOPPING=1"
    supervisor.setblocking(False)
    with pytest.raises(BlockingIOError):
        supervisor.recv(1000)


def test_a_supervisors_socket_that_is_gone_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    worker = WorkerProcess(tmp_path)
    assert worker.stop() == 0
    assert "gone was not told READY=1: No such file or directory" in worker.log


def test_states_go_in_one_message_and_to_nobody_who_did_not_ask(
    supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert notify("READY=1", "STATUS=so")
    assert supervisor.recv(1000) == b"READY=1\nSTATUS=so"
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    assert not notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not notify("READY=1")


def test_the_unit_waits_for_the_worker_and_asks_for_options_that_exist() -> None:
    found = service(unit(Path("/nowhere")))
    assert (found["Type"], found["NotifyAccess"]) == ("notify", "main")
    assert found["RestartPreventExitStatus"] == "2", "what Problem ends with"
    words = shlex.split(found["ExecStart"])
    assert words[:3] == ["/usr/bin/env", "x86-worker", "serve"]
    serve = main.get_command(click.Context(main), "serve")
    assert serve is not None
    known = {option for parameter in serve.params for option in parameter.opts}
    comments = [
        line for line in unit(Path("/nowhere")).splitlines() if line.startswith("#   WORKER_OPTIONS=")
    ]
    assert len(comments) == 1
    given = shlex.split(comments[0].partition("=")[2])
    used = {word for word in (*words, *given) if word.startswith("--")}
    assert {"--drafter", "--target", "--listen"} <= used
    assert used - known == set()


def test_the_unit_names_the_command_of_this_installation_in_full(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "x86-worker").write_text("")
    assert f"ExecStart={tmp_path}/bin/x86-worker serve --drafter " in unit(tmp_path)


def test_the_command_prints_the_unit_or_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["unit"])
    assert (printed.exit_code, printed.stdout) == (0, unit(Path(sys.prefix)))
    done = CliRunner().invoke(main, ["unit", "--output", str(tmp_path)])
    assert done.exit_code == 0
    assert (tmp_path / "x86-worker.service").read_text() == printed.stdout
    assert "/etc/default/x86-worker" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x86-worker.service").mkdir()
    done = CliRunner().invoke(main, ["unit", "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert f"--output: {tmp_path} cannot be written to: Is a directory" in done.stderr


@pytest.mark.skipif(VERIFIER is None, reason="no systemd-analyze here")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert VERIFIER is not None
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "x86-worker"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = tmp_path / "x86-worker.service"
    path.write_text(unit(tmp_path))
    done = subprocess.run(
        [VERIFIER, "verify", str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    told = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, told) == (0, []), done.stderr
