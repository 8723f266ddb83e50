"""`serve` against whoever means it ill: signals at the wrong moment, a ready file that cannot be written, a scrape that
never ends.
"""

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engram_process import engram, serving
from engram_remote.server import scrapes
from engram_remote.server.metrics import ServerCollector, metrics_server
from engram_service import built
from engram_tables import tiny_checkpoint

STOP_SECONDS = 15
"""What a stop may take here: the 10 s that it states, and a busy machine."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=2000)
    return built(made, tmp_path_factory.mktemp("tables") / "out")


def test_a_signal_after_the_server_was_freed_ends_nothing(tables: Path) -> None:
    """A supervisor that asks twice: the second signal comes while tables are being given back."""
    script = (
        "import sys; from pathlib import Path\n"
        "from engram_remote.server.service import ServerLimits, TableServer\n"
        "from engram_remote.tables.manifest import read_manifest\n"
        "server = TableServer(read_manifest(Path(sys.argv[1])), ServerLimits())\n"
        "server.close(); server.stop(); server.close(); print(server.counters())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tables)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "{}\n"), ended.stderr


def test_a_ready_file_that_cannot_be_written_is_one_sentence_and_no_crash(tables: Path) -> None:
    ended = engram("serve", tables, "--listen", "tcp://127.0.0.1:0", "--ready-file", "/proc/self/ready.json")
    assert ended.returncode == 2, (ended.returncode, ended.stderr)
    assert "ready.json" in ended.stderr.splitlines()[-1]


@contextmanager
def dripping(address: str) -> Iterator[socket.socket]:
    """A connection on which a request comes byte by byte and never ends, each well within any limit of one read."""
    host, port = address.rsplit(":", 1)
    over = threading.Event()
    with socket.create_connection((host, int(port))) as one:

        def drip() -> None:
            while not over.wait(0.2):
                try:
                    one.sendall(b"G")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield one
        finally:
            over.set()
            thread.join()


def test_a_scrape_that_never_ends_does_not_hold_up_the_stop(tables: Path, tmp_path: Path) -> None:
    words = ("--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with serving(tables, tmp_path, *words) as one, dripping(str(one.ready()["metrics"])):
        time.sleep(1)  # the request is under way: nothing says so before it ends
        began = time.monotonic()
        one.process.terminate()
        assert one.process.wait(STOP_SECONDS) == 0
        assert time.monotonic() - began < STOP_SECONDS


def test_garbage_at_the_metrics_port_is_answered_and_forgotten(tables: Path, tmp_path: Path) -> None:
    words = ("--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with serving(tables, tmp_path, *words) as one:
        host, port = str(one.ready()["metrics"]).rsplit(":", 1)
        for garbage in (
            b"\x00" * 70_000,
            b"GET /metrics HTTP/9.9\r\n\r\n",
            b"GET " + b"/" * 70_000 + b"\r\n",
            b"",
        ):
            with socket.create_connection((host, int(port)), timeout=15) as other:
                try:
                    other.sendall(garbage)
                    other.shutdown(socket.SHUT_WR)
                    while other.recv(1 << 16):
                        pass
                except (ConnectionResetError, BrokenPipeError):
                    pass
        with socket.create_connection((host, int(port)), timeout=15) as scrape:
            scrape.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert scrape.recv(100).startswith(b"HTTP/1.0 200")
        assert one.stop() == 0
    assert "Traceback" not in "".join(one.lines)


def test_a_scrape_that_never_ends_keeps_others_waiting_for_its_limit_at_most(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scrapes, "REQUEST_S", 1.0)
    collector = ServerCollector(dict, {"identity": "x"})
    with metrics_server("127.0.0.1:0", collector) as address, dripping(address):  # noqa: SIM117
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
            assert b"engram_server_info" in page.read()
    assert capfd.readouterr().err == ""
