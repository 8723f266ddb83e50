"""`serve` as an operator meets it: ready when verified, a clean stop, and one sentence for whatever is wrong."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from engram_process import engram, serving
from engram_remote.tables.manifest import read_manifest
from engram_remote.tables.record import in_memory
from engram_service import WIRES, built, called, lookup_of, soon
from engram_tables import TinyCheckpoint, tiny_checkpoint
from ofl.contract.engram_v1 import (
    Envelope,
    LookupReply,
    Op,
    Open,
    OpenLayer,
    Refused,
    Status,
    decode_reply,
    encode_request,
)
from ofl.errors import ConnectRefusedError, PeerLostError, TransportError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), smallest=2000)


@pytest.fixture(scope="module")
def pristine(made: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(made, tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture
def tables(pristine: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "tables"))


def open_of(folder: Path, rank: int = 0) -> Open:
    manifest = read_manifest(folder)
    shards = [shard for shard in manifest.shards if shard.rank == rank]
    layers = tuple(OpenLayer(shard.layer, shard.row_start, shard.row_end) for shard in shards)
    identity = bytes.fromhex(manifest.identity)
    return Open(identity, manifest.columns, manifest.scales, rank, manifest.ranks, 65536, layers)


def exact(made: TinyCheckpoint, endpoint: str, message: Open, layer: int = 14) -> None:
    with called(endpoint, message) as one:
        ids = np.random.default_rng(1).integers(message.layers[1].row_start, message.layers[1].row_end, 5000)
        values, scales = one.rows(ids, layer=1)
        expected_values, expected_scales = made.expected(layer, ids)
        assert np.array_equal(values, expected_values)
        assert np.array_equal(scales, expected_scales)


def test_serve_is_ready_when_everything_is_verified_and_ends_with_zero(
    made: TinyCheckpoint, tables: Path, tmp_path: Path
) -> None:
    name = f"shm://engram-{os.getpid()}-{tmp_path.name}"[:64]
    words = ("--listen", "tcp://127.0.0.1:0", "--listen", name, "--metrics", "127.0.0.1:0")
    with serving(tables, tmp_path, *words) as one:
        ready = one.ready()
        assert ready["identity"] == read_manifest(tables).identity
        assert ready["pid"] == one.process.pid
        assert ready["tables"] == [{"layer": layer, "rank": rank} for layer in (1, 14) for rank in (0, 1)]
        assert "4 digested, 0 as recorded" in one.wait_for("loaded 4 shards")
        for endpoint in ready["endpoints"]:
            for rank in (0, 1):
                exact(made, endpoint, open_of(tables, rank))
            status = engram("status", endpoint, "--json")
            assert status.returncode == 0, status.stderr
            figures = json.loads(status.stdout)["figures"]
            assert figures["identity"] == ready["identity"]
            assert figures["counters"]["connections_open"] == 1
        shown = engram("status", ready["endpoints"][0]).stdout
        assert "4 tables" in shown
        with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=10) as page:
            text = page.read().decode()
        assert "engram_lookups_total 4.0" in text
        assert "engram_rows_total 20000.0" in text
        assert 'engram_refused_total{status="identity"} 0.0' in text
        assert one.stop() == 0
        assert not one.ready_file.exists()
        assert "stopped on signal 15" in "".join(one.lines)


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_is_told_when_tables_are_served_and_when_they_are_about_to_stop(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"engram-notify-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(f"\0{name}" if abstract else name)
        told.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0") as one:
            assert told.recv(100) == b"READY=1"
            assert one.ready()["endpoints"]
            assert one.stop() == 0
        assert told.recv(100) == b"STOPPING=1"


def test_a_supervisors_socket_that_is_gone_stops_nobody(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0") as one:
        one.wait_for("was not told READY=1")
        assert one.stop() == 0


def test_sigint_ends_as_cleanly(tables: Path, tmp_path: Path) -> None:
    with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0") as one:
        one.ready()
        assert one.stop(signal.SIGINT) == 0


def test_a_second_load_is_spared_the_digests_and_full_asks_for_them(tables: Path, tmp_path: Path) -> None:
    assert engram("verify", tables).returncode == 0
    if in_memory(tables.stat().st_dev):
        pytest.skip("the tests' own folder is in memory, where nothing is recorded")
    for words, expected in (((), "0 digested, 4 as recorded"), (("--full",), "4 digested, 0 as recorded")):
        with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0", *words) as one:
            assert expected in one.wait_for("loaded 4 shards")


def test_one_ranks_shards_are_served_alone(made: TinyCheckpoint, tables: Path, tmp_path: Path) -> None:
    (tables / "layer-1.rank-0.engram").unlink()
    with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0", "--rank", "1") as one:
        endpoint = one.ready()["endpoints"][0]
        exact(made, endpoint, open_of(tables, 1))
        with called(endpoint) as caller:
            reply = caller.open(open_of(tables, 0))
            assert isinstance(reply, Refused)
            assert reply.status is Status.NO_TABLE


# --- what is wrong is told before anything listens ---


def shorten(folder: Path) -> str:
    file = folder / "layer-14.rank-1.engram"
    os.truncate(file, file.stat().st_size - 1)
    return "layer-14.rank-1.engram: bytes: "


def lengthen(folder: Path) -> str:
    with (folder / "layer-1.rank-0.engram").open("ab") as file:
        file.write(b"\0")
    return "layer-1.rank-0.engram: bytes: "


def flip(folder: Path) -> str:
    file = folder / "layer-14.rank-0.engram"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return "layer-14.rank-0.engram: chunks[1]: "


def swap(folder: Path) -> str:
    one, other, beside = (folder / name for name in ("layer-1.rank-0.engram", "layer-14.rank-0.engram", "x"))
    one.rename(beside)
    other.rename(one)
    beside.rename(other)
    return "layer-1.rank-0.engram: "


def remove(folder: Path) -> str:
    (folder / "layer-1.rank-1.engram").unlink()
    return "layer-1.rank-1.engram: file: "


def tamper(folder: Path) -> str:
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["shards"][0]["chunks"][0] = "0" * 64
    file.write_text(json.dumps(manifest))
    return "manifest.json: identity: "


def no_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "manifest.json: "


@pytest.mark.parametrize("spoil", [shorten, lengthen, flip, swap, remove, tamper, no_manifest])
def test_tables_that_are_not_whole_are_never_served(
    tables: Path, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    said = spoil(tables)
    ready = tmp_path / "ready.json"
    ended = engram("serve", tables, "--listen", "tcp://127.0.0.1:0", "--ready-file", ready)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "INFO identity " not in ended.stderr
    assert not ready.exists()


def test_a_shard_that_changed_since_it_was_recorded_is_digested_and_refused(tables: Path) -> None:
    assert engram("verify", tables).returncode == 0
    said = flip(tables)
    ended = engram("serve", tables, "--listen", "tcp://127.0.0.1:0")
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.mark.parametrize("what", ["--listen", "--metrics"])
def test_a_port_in_use_is_named_before_tables_are_read(tables: Path, what: str) -> None:
    flip(tables)  # which a load would find
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f"tcp://127.0.0.1:{port if what == '--listen' else 0}"
        words = ["--metrics", f"127.0.0.1:{port}"] if what == "--metrics" else []
        ended = engram("serve", tables, "--listen", listen, *words)
    assert ended.returncode == 2
    assert str(port) in ended.stderr
    assert "chunks" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr


def test_memory_that_is_too_small_is_told_with_need_and_have(tables: Path) -> None:
    ended = engram("serve", tables, "--listen", "tcp://127.0.0.1:0", "--reply-buffers", "65536")
    assert ended.returncode == 2
    assert "do not fit: " in ended.stderr
    assert "GiB" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_an_address_space_that_is_too_small_is_told(tables: Path, tmp_path: Path) -> None:
    """A limit that no preflight knows: mapping fails, and says how much was asked for."""
    soft = 1 << 30

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (soft, soft))

    code = "from engram_remote.cli import main; main()"
    words = [
        "serve",
        str(tables),
        "--listen",
        "tcp://127.0.0.1:0",
        "--reply-buffers",
        "64",
        "--batch-rows",
        "131072",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "reply buffer of " in ended.stderr
    assert "cannot be had" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "tcp://127.0.0.1:0", "--rank", "2"), "--rank: 2 is not one of the manifest's 2"),
        (("--listen", "ftp://127.0.0.1:0"), "scheme 'ftp' is unknown"),
        (("--listen", "tcp://0.0.0.0:0"), "0.0.0.0"),
        (("--listen", "shm://engram-x", "--allow", "10.0.0.0/8"), "--allow: "),
        (("--listen", "tcp://127.0.0.1:0", "--allow", "10.0.0.0/99"), "10.0.0.0/99"),
        (("--listen", "tcp://127.0.0.1:0", "--allow", "\udcff"), "--allow: '\\udcff' is no address"),
        (("--listen", "tcp://127.0.0.1:0", "--metrics", "nowhere"), "--metrics nowhere: "),
        (("--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:000080000"), "HOST:PORT is needed"),
        (("--listen", "tcp://127.0.0.1:0", "--metrics", "\udcff:80"), "HOST:PORT is needed"),
        (
            ("--listen", "tcp://127.0.0.1:0", "--ready-file", "/nowhere/ready"),
            "--ready-file /nowhere/ready: ",
        ),
        (("--listen", "tcp://127.0.0.1:0", "--key-file", "/nowhere/key"), "--key-file: "),
        (
            ("--listen", "tcp://127.0.0.1:0", "--batch-rows", "16777216", "--reply-buffers", "1"),
            "batch_rows_max: ",
        ),
    ],
)
def test_options_that_cannot_be_kept_are_one_sentence(
    tables: Path, words: tuple[str, ...], said: str
) -> None:
    ended = engram("serve", tables, *words)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_explicit_huge_pages_that_are_not_there_are_refused_with_need_and_have(tables: Path) -> None:
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if not free.exists() or int(free.read_text()) >= 4:
        pytest.skip("this host has free huge pages")
    ended = engram("serve", tables, "--listen", "tcp://127.0.0.1:0", "--huge-pages")
    assert ended.returncode == 2
    assert "--huge-pages: the tables need " in ended.stderr


# --- stop and death in the middle ---


@pytest.mark.parametrize("wire", WIRES)
def test_lookups_under_way_are_answered_when_the_server_stops(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, wire: str
) -> None:
    """Every lookup that was sent before the stop ends with its rows, or with DRAINING; none is lost or wrong."""
    name = f"shm://engram-stop-{os.getpid()}"
    listen = "tcp://127.0.0.1:0" if wire == "tcp" else name
    message = open_of(tables)
    with serving(
        tables, tmp_path, "--listen", listen, "--gather-threads", "1", "--reply-buffers", "2"
    ) as one:
        endpoint = one.ready()["endpoints"][0]
        with called(endpoint, message) as caller:
            sent = []
            for number in range(12):
                ids = np.random.default_rng(number).integers(0, message.layers[0].row_end, 20_000)
                lookup, envelope = lookup_of({0: ids}), Envelope(Op.LOOKUP, number + 1)
                sequence = caller.client.submit(encode_request(envelope, lookup), deadline_ns=soon())
                sent.append((sequence, envelope, lookup, ids))
            outcomes = []
            for number, (sequence, envelope, lookup, ids) in enumerate(sent):
                if number == 1:  # the others are under way
                    one.process.send_signal(signal.SIGTERM)
                body = caller.client.wait(sequence, deadline_ns=soon())
                reply = decode_reply(body, envelope, lookup, message)
                if isinstance(reply, LookupReply):
                    values, scales = caller.arrays(reply)[0]
                    expected_values, expected_scales = made.expected(1, ids)
                    assert np.array_equal(values, expected_values)
                    assert np.array_equal(scales, expected_scales)
                    outcomes.append(Status.OK)
                else:
                    assert isinstance(reply, Refused)
                    outcomes.append(reply.status)
        assert one.end() == 0
    assert outcomes[0] is Status.OK
    assert set(outcomes) <= {Status.OK, Status.DRAINING}


@pytest.mark.parametrize("wire", WIRES)
def test_a_killed_server_is_noticed_and_its_port_serves_again(
    made: TinyCheckpoint, tables: Path, tmp_path: Path, wire: str
) -> None:
    listen = "tcp://127.0.0.1:0" if wire == "tcp" else f"shm://engram-kill-{os.getpid()}"
    message = open_of(tables)
    with serving(tables, tmp_path, "--listen", listen) as one:
        endpoint = one.ready()["endpoints"][0]
        with called(endpoint, message) as caller:
            caller.rows([1])
            one.process.kill()
            one.end()
            with pytest.raises(PeerLostError):
                caller.rows([1])
        with pytest.raises(TransportError) as caught, called(endpoint, message):
            pass
        assert isinstance(caught.value, ConnectRefusedError)
    with serving(tables, tmp_path, "--listen", endpoint) as again:
        assert again.ready()["endpoints"] == [endpoint]
        exact(made, endpoint, message)


def test_a_stop_while_tables_are_loaded_ends_with_zero_and_nothing_listened(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    words = ("--synthetic", "--rows", "400000", "--ranks", "1", "--layers", "1", "--chunk-mib", "1")
    assert engram("build", *words, folder, timeout=120).returncode == 0
    ready = tmp_path / "ready.json"
    # The signal comes from within the load's own reads, so that it cannot come too late.
    code = (
        "import os, signal, sys\n"
        "from engram_remote.tables import verify\n"
        "read = verify.OpenShard.read_into\n"
        "def held(self, offset, target):\n"
        "    read(self, offset, target)\n"
        "    if offset: os.kill(os.getpid(), signal.SIGTERM)\n"
        "verify.OpenShard.read_into = held\n"
        "from engram_remote.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "serve", str(folder), "--listen", "tcp://127.0.0.1:0"]
    ended = subprocess.run(
        [*command, "--ready-file", str(ready)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "before the tables were loaded" in ended.stderr
    assert "INFO identity " not in ended.stderr
    assert not ready.exists()


def test_probe_says_what_this_host_offers() -> None:
    found = json.loads(engram("probe", "--json").stdout)
    assert set(found["features"]) == {"io_uring", "checksum", "huge_pages", "numa", "tcp", "shm", "rdma"}
    assert found["features"]["tcp"]["there"] is True
    for feature in found["features"].values():
        assert feature["there"] or feature["said"]
    assert any("MemAvailable" in name for name in found["memory"])
    assert "memory" in engram("probe").stdout


def test_status_of_nobody_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = engram("status", f"tcp://127.0.0.1:{port}")
    assert ended.returncode == 2
    assert str(port) in ended.stderr
    assert "Traceback" not in ended.stderr
