"""What `serve` makes of its options, of a process of its own."""

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from engram_client_tools import until
from engram_process import engram, serving
from engram_service import built, called
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.errors import TransportError

ANYWHERE = ("--listen", "tcp://127.0.0.1:0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=60)


@pytest.fixture(scope="module")
def tables(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


def test_limits_are_those_that_were_asked_for(tables: Path, tmp_path: Path) -> None:
    numbers = {
        "batch-rows": 777,
        "max-connections": 2,
        "max-lookups": 5,
        "reply-buffers": 3,
        "gather-threads": 6,
    }
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    with serving(tables, tmp_path, *ANYWHERE, *words, "--load-threads", "3", "--spin-us", "7") as one:
        [endpoint] = one.ready()["endpoints"]
        figures = json.loads(engram("status", endpoint, "--json").stdout)["figures"]
        limits = figures["limits"]
        assert figures["gather_threads"] == 6
        assert (limits["batch_rows_max"], limits["connections_max"]) == (777, 2)
        assert (limits["calls_max"], limits["reply_buffers"]) == (5, 3)
        with called(endpoint), called(endpoint), pytest.raises(TransportError), called(endpoint):
            pass
        with called(endpoint) as again:  # those that ended make room
            assert again.stats().text


def test_clients_from_elsewhere_are_closed_and_those_from_there_are_served(
    tables: Path, tmp_path: Path
) -> None:
    for prefix, welcome in (("192.0.2.0/24", False), ("127.0.0.0/8", True)):
        with serving(tables, tmp_path, *ANYWHERE, "--allow", prefix) as one:
            [endpoint] = one.ready()["endpoints"]
            assert f"from {prefix}" in one.wait_for("INFO identity ")
            assert (engram("status", endpoint).returncode == 0) is welcome


def test_a_wildcard_address_is_listened_on_where_that_is_asked_for(tables: Path, tmp_path: Path) -> None:
    with serving(tables, tmp_path, "--listen", "tcp://0.0.0.0:0", "--any-address") as one:
        [endpoint] = one.ready()["endpoints"]
        port = endpoint.rpartition(":")[2]
        assert engram("status", f"tcp://127.0.0.1:{port}").returncode == 0


def test_metrics_are_served_at_an_address_of_ipv6(tables: Path, tmp_path: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this host has no ::1")
    with serving(tables, tmp_path, *ANYWHERE, "--metrics", "[::1]:0") as one:
        where = one.ready()["metrics"]
        assert re.fullmatch(r"\[::1\]:[0-9]+", where)
        with urllib.request.urlopen(f"http://{where}/metrics", timeout=10) as page:
            assert b"engram_connections_total 0.0" in page.read()


def test_the_log_has_no_lines_below_the_level_that_was_asked_for(tables: Path, tmp_path: Path) -> None:
    with serving(tables, tmp_path, *ANYWHERE, "--log-level", "warning") as one:
        until(one.ready_file.exists, "the ready file")
        [endpoint] = json.loads(one.ready_file.read_text())["endpoints"]
        assert engram("check", tables, "--endpoint", endpoint, "--rows", "1", timeout=120).returncode == 0
        said = one.wait_for("requests refused: ")
        assert one.stop() == 0
        assert "WARNING requests refused: " in said
        assert " identity" in said
        assert not any(" INFO " in line for line in one.lines)
