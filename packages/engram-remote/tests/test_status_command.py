"""`status` and what a server may answer; metrics where their library is missing."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engram_process import engram
from engram_remote.commands.consoles import plain_console
from engram_remote.commands.status import show
from engram_remote.problem import Problem
from engram_remote.server.status import ServerStatus, ask, parsed
from engram_service import SECONDS, built
from engram_tables import tiny_checkpoint
from ofl.contract.engram_v1.layout import SERVICE, VERSION
from ofl.interface import Request
from ofl.server import Server


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A server of that service that says these bytes, whatever it is asked."""
    server = Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=1 << 21)
    endpoint = server.listen("tcp://127.0.0.1:0")
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            event = server.next_event(deadline_ns=time.monotonic_ns() + 50_000_000)
            if isinstance(event, Request):
                server.reply(event.connection, event.sequence, [body])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield endpoint
    finally:
        over.set()
        thread.join(SECONDS)
        server.close()


@pytest.mark.parametrize("body", [b"", b"no message of this contract, but long enough to be one"])
def test_a_reply_that_is_none_is_one_sentence(body: bytes) -> None:
    with (
        answering(body) as endpoint,
        pytest.raises(Problem, match=f"^{endpoint}: the server's reply breaks the contract: header"),
    ):
        ask(endpoint, 10.0)


def test_figures_that_are_no_object_are_one_sentence() -> None:
    assert parsed("e", '{"a": 1}') == {"a": 1}
    with pytest.raises(Problem, match=r"^e: STATS is not JSON: "):
        parsed("e", "{")
    with pytest.raises(Problem, match=r"^e: STATS is not JSON: "):
        parsed("e", "[" * 200_000)
    with pytest.raises(Problem, match=r"^e: STATS is not a JSON object$"):
        parsed("e", "[1]")


def test_what_a_server_says_is_shown_as_it_is_and_rules_no_terminal() -> None:
    figures = {
        "boot": "[/b] :smile: \x1b[2J",
        "counters": {"[red]": 1, "[/x]": "[/y]"},
        "tables": [{"layer": "[/z]"}],
    }
    console = plain_console(width=200)
    with console.capture() as capture:
        show(ServerStatus("tcp://[::1]:5", figures, 1.0, "[/w]", False), console)
    shown = capture.get()
    for text in ("[/b] :smile: ", "counters.[red]", "counters.[/x]", "[/y]", "[/z]", "[/w]", "tcp://[::1]:5"):
        assert text in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "3601"])
def test_what_is_no_time_to_wait_is_refused(seconds: str) -> None:
    ended = engram("status", "tcp://127.0.0.1:1", "--timeout-s", seconds)
    assert ended.returncode == 2
    assert "--timeout-s: " in ended.stderr
    assert "is not above 0 and up to 3600" in ended.stderr


def test_metrics_without_their_library_are_refused_before_tables_are_read(tmp_path: Path) -> None:
    tables = built(tiny_checkpoint(tmp_path / "model"), tmp_path / "out")
    next(tables.glob("*.engram")).unlink()  # which a load would find
    code = "import sys; sys.modules['prometheus_client'] = None; from engram_remote.cli import main; main()"
    words = ["serve", str(tables), "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "--metrics: needs prometheus-client (pip install 'engram-remote[server]')" in ended.stderr
