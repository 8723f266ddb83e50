"""Before it opens a session the probe makes sure that the engine is idle, from a Python with nothing installed."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ofl
import pytest
import spark_overlay
from fake_engine_http import Planted, fake_engine
from ofl import client, native
from small_shape import SMALL_SHAPE as SHAPE
from spark_overlay import probe
from spark_overlay.http_api.idle import check_metrics_url
from spark_overlay.simulation.transport import SimulatedWire
from test_over_tcp import worker
from test_probe import IDENTITIES, WorkerWithStats
from wire_rig import SHAPE as MOCK

ASKED = ["--endpoint", "tcp://h:1", *IDENTITIES]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> SimulatedWire:
    """To a worker that would serve."""
    made = SimulatedWire(WorkerWithStats(SHAPE).answer)
    monkeypatch.setattr(client, "connect", made.connect)
    return made


@pytest.mark.parametrize("wish", [["--hello"], ["--step-rows", "4"]])
def test_with_an_idle_engine_it_asks_and_says_what_the_engine_said(
    wish: list[str], wire: SimulatedWire, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_engine() as engine:
        assert probe.main([*ASKED, *wish, "--metrics", engine.url]) == probe.EXIT_OK
    said = capsys.readouterr().out
    assert said.startswith("engine_load: 0 running and 0 waiting\n")
    assert "hello_status: OK\n" in said


@pytest.mark.parametrize("wish", [["--hello"], ["--step-rows", "4"]])
@pytest.mark.parametrize(("running", "waiting"), [(1, 0), (0, 2)])
def test_an_engine_with_requests_refuses_the_probe_and_the_worker_is_not_asked(
    running: int, waiting: int, wish: list[str], wire: SimulatedWire, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_engine(Planted(running=running, waiting=waiting)) as engine:
        status = probe.main([*ASKED, *wish, "--metrics", f"{engine.url}/metrics"])
    assert status == probe.EXIT_NOT_IDLE == 4
    assert f"the engine has requests, {running} running and {waiting} waiting" in capsys.readouterr().err
    assert not wire.connections


def test_an_engine_that_cannot_be_asked_refuses_it_and_both_ways_out_are_named(
    wire: SimulatedWire, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/metrics"
        assert probe.main([*ASKED, "--hello", "--metrics", url, "--json"]) == probe.EXIT_NOT_IDLE
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_status"] == 4
    assert f"{url}: Connection refused" in answer["error"]
    assert "by --metrics, or --no-metrics-check where no engine is running" in answer["error"]
    assert not wire.connections


@pytest.mark.parametrize(
    ("metrics", "clause"),
    [("<html>", "/metrics: it has no vllm:num_requests_running"), ("vllm:num_requests_running x\n", "'x'")],
)
def test_metrics_that_do_not_tell_are_no_idle_engine(
    metrics: str, clause: str, wire: SimulatedWire, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_engine(Planted(metrics=metrics)) as engine:
        assert probe.main([*ASKED, "--hello", "--metrics", engine.url]) == probe.EXIT_NOT_IDLE
    error = capsys.readouterr().err
    assert clause in error
    assert "--no-metrics-check" in error
    assert not wire.connections


def test_no_engine_is_asked_where_none_runs_or_nothing_is_opened(wire: SimulatedWire) -> None:
    with fake_engine(Planted(running=1)) as engine:
        busy = ["--metrics", engine.url]
        assert probe.main([*ASKED, *busy, "--hello", "--no-metrics-check"]) == probe.EXIT_OK
        assert probe.main([*ASKED, *busy]) == probe.EXIT_OK, "pings and statistics alone"
    assert len(wire.connections) == 2


@pytest.mark.parametrize("url", ["here", "http://h:1/metrics?a=b"])
def test_an_address_of_metrics_that_is_none_is_wrong_usage(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        probe.main([*ASKED, "--metrics", url])
    assert caught.value.code == probe.EXIT_USAGE
    assert f"argument --metrics: {url!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://h:1", "http://h:1/metrics"),
        ("http://h:1/", "http://h:1/metrics"),
        ("http://h:1/metrics", "http://h:1/metrics"),
        ("http://h:1/a/metrics", "http://h:1/a/metrics"),
    ],
)
def test_the_path_of_the_metrics_may_be_left_out(given: str, used: str) -> None:
    assert check_metrics_url(given) == used


PLAIN = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ("ofl", "spark_overlay") and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Nothing())
sys.path.insert(0, sys.argv.pop(1))
import runpy
runpy.run_module("spark_overlay.probe", run_name="__main__", alter_sys=True)
"""
"""As `python -m spark_overlay.probe`, where every import of a third package fails."""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The two package folders, the library in its own, as copied to a host."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for package in (ofl, spark_overlay):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, tmp_path / source.name, ignore=ignored)
    shutil.copy(native.library_path(), tmp_path / "ofl" / "libofl.so")
    return tmp_path


def run_plain(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The probe in a Python without site-packages and environment, standing elsewhere."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", PLAIN, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={},
        cwd="/",
    )


def test_two_copied_folders_and_a_system_python_are_enough_for_all_of_it(copied: Path) -> None:
    facts = MOCK.facts()
    with fake_engine() as engine, worker() as endpoint:
        asked = ["--endpoint", endpoint, "--identity", facts.identity.hex(), "--timeout-s", "30"]
        asked += ["--markov-identity", facts.markov_identity.hex(), "--metrics", engine.url]
        done = run_plain(copied, *asked, "--hello", "--step-rows", "8", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        engine.planted.running = 1
        busy = run_plain(copied, *asked, "--hello")
    assert answer["engine_load"] == "0 running and 0 waiting"
    assert (answer["hello_status"], answer["step_req_status"]) == ("OK", "OK")
    assert busy.returncode == probe.EXIT_NOT_IDLE
    assert busy.stderr.startswith("spark-overlay probe: the engine has requests, 1 running and 0 waiting")
    assert busy.stderr.count("\n") == 1


def test_the_plain_python_really_has_nothing_installed(copied: Path) -> None:
    (copied / "spark_overlay" / "probe.py").write_text("import click\n")
    done = run_plain(copied)
    assert "click is not installed here" in done.stderr
