"""The command line: what an operator can get wrong is one sentence and exit status 2."""

import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ofl import native
from ofl.keys import write_key
from ofl.server import Server
from x86_worker import __version__
from x86_worker.cli import _mock_sizes, main

SHAPE = ["--vocabulary", "100", "--hidden-size", "4", "--taps", "2", "--block-length", "3"]
LOCAL = ["--listen", "tcp://127.0.0.1:0"]


def call(*arguments: str) -> Result:
    """The command in this process; an option that is wrongly accepted must not serve for ever."""
    with no_longer_than(20):
        return CliRunner().invoke(main, arguments)


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def fail(*_: object) -> None:
        pytest.fail(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sentence(*arguments: str) -> str:
    """The one line that a refused command prints."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output.strip().splitlines()[-1]


def test_help_and_version() -> None:
    assert call("--help").exit_code == 0
    assert __version__ in call("--version").output
    for command in ("serve", "mock", "identity", "status"):
        assert call(command, "--help").exit_code == 0


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf"])
def test_a_timeout_that_is_not_positive_and_finite_is_refused(timeout: str) -> None:
    assert "--timeout-s" in sentence("status", "tcp://127.0.0.1:1", "--timeout-s", timeout)


@pytest.mark.parametrize("missing", range(0, len(SHAPE), 2))
def test_the_mock_names_the_size_that_is_missing(missing: int) -> None:
    shape = SHAPE[:missing] + SHAPE[missing + 2 :]
    assert SHAPE[missing] in sentence("mock", *shape, *LOCAL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "rdma://127.0.0.1"], ["rdma", "the port is missing"]),
        (["--listen", "tcp://127.0.0.1"], ["port is missing"]),
        (["--listen", "quic://127.0.0.1:1"], ["scheme 'quic' is unknown"]),
        (["--listen", "shm://a/b"], ["name 'a/b' is not"]),
        (["--listen", "tcp://127.0.0.1:0?bind=127.0.0.1"], ["bind"]),
        (["--listen", "tcp://0.0.0.0:0"], ["0.0.0.0"]),
        (["--listen", "tcp://192.0.2.1:0"], ["192.0.2.1"]),
        ([*LOCAL, "--name", "x" * 33], ["--name", "32 bytes"]),
        ([*LOCAL, "--ready-file", "/nonexistent/ready.json"], ["--ready-file", "/nonexistent"]),
        ([*LOCAL, "--identity", "abc"], ["--identity", "64 lower-case hex digits"]),
        ([*LOCAL, "--target-binding", "A" * 64], ["--target-binding"]),
        ([*LOCAL, "--key-file", "/nowhere/key"], ["--key-file", "/nowhere/key does not exist", "ofl keygen"]),
        ([*LOCAL, "--key-file", "/"], ["--key-file", "/ is not a regular file"]),
        ([*LOCAL, "--allow", "10.0.0.1/24"], ["--allow", "write 10.0.0.0/24 or 10.0.0.1"]),
        ([*LOCAL, "--allow", "::1", "--allow", "worker"], ["--allow", "'worker'", "no IPv4 or IPv6 address"]),
        ([*LOCAL, "--allow", ""], ["--allow", "''"]),
        (["--listen", "shm://x", "--listen", "shm://y", "--allow", "::1"], ["--allow", "have no address"]),
        ([*LOCAL, "--max-slots", "1025"], ["--max-slots"]),
        ([*LOCAL, "--draft-ms", "nan"], ["--draft-ms"]),
        ([], ["--listen"]),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(arguments: list[str], words: list[str]) -> None:
    line = sentence("mock", *SHAPE, *arguments)
    assert all(word in line for word in words), line


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = sentence("mock", *SHAPE, "--listen", f"tcp://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_busy_name_of_shared_memory_is_named() -> None:
    name = f"x86-worker-test-{os.getpid()}-{secrets.token_hex(4)}"
    with Server("other", version_min=1, version_max=1, max_frame_bytes=4096) as taken:
        taken.listen(f"shm://{name}")
        line = sentence("mock", *SHAPE, "--listen", f"shm://{name}")
    assert name in line
    assert "in use" in line


def test_rdma_where_the_host_cannot_is_one_sentence_that_says_what_is_missing() -> None:
    possible, reason = native.rdma_choice("127.0.0.1")
    assert not possible, "loopback has no RDMA device: this test needs another address"
    line = sentence("mock", *SHAPE, "--listen", "rdma://127.0.0.1:0")
    assert reason in line or (native.missing("rdma") and native.missing("rdma") in line), line


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused_before_anything_is_read_or_asked(
    tmp_path: Path, mode: int
) -> None:
    key = tmp_path / "key"
    write_key(key)
    key.chmod(mode)
    for command in (["serve", "--drafter", str(tmp_path), *LOCAL], ["status", "tcp://127.0.0.1:1"]):
        line = sentence(*command, "--key-file", str(key))
        assert f"--key-file: key file {key} has mode {mode:04o}" in line
        assert f"chmod 600 {key}" in line


def test_a_busy_port_is_said_before_weights_are_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = sentence("serve", "--drafter", str(tmp_path), "--listen", f"tcp://127.0.0.1:{port}")
    assert "in use" in line


def test_a_folder_that_is_no_drafter_is_named(tmp_path: Path) -> None:
    line = sentence("identity", "--drafter", str(tmp_path))
    assert str(tmp_path) in line
    assert "config.json" in line
    assert "config.json" in sentence("mock", "--like", str(tmp_path), *LOCAL)


def test_status_of_nobody_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert f"127.0.0.1:{port}" in sentence("status", f"tcp://127.0.0.1:{port}")


def test_like_takes_the_shape_of_a_drafter_and_options_override_it(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "hidden_size": 16, "vocab_size": 300,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "intermediate_size": 32, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "block_size": 5, "mask_token_id": 1, "markov_rank": 8, "markov_head_type": "vanilla",
        "target_layer_ids": [0, 1, 2], "enable_confidence_head": True, "confidence_head_with_markov": True,
        "num_target_layers": 4, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert _mock_sizes(tmp_path, {"block_length": 4}) == {
        "vocabulary": 300, "hidden_size": 16, "taps": 3, "block_length": 4, "window": 0, "max_positions": 256,
    }  # fmt: skip
