"""`x86-worker serve --device cuda` as its own process, drafting over TCP for the overlay's own rounds."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import compare
from ofl.contract.dspark_v1 import RowDtype
from ofl.contract.identity import parse_digest
from spark_overlay.interface import EngineFacts
from spark_overlay.round.messages import RoundRequest
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import Settings
from texts import DEMO_PAIR, Piece, Text, demo_texts, play, plays
from x86_worker.drafters.base import Draft
from x86_worker.drafters.reference import load_reference_drafter

pytestmark = pytest.mark.gpu

START_S = 180.0
FOLDERS = ["--drafter", str(DEMO_PAIR / "drafter"), "--target", str(DEMO_PAIR / "target")]


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return demo_texts()


@pytest.fixture(scope="module")
def rounds(texts: list[Text]) -> list[list[Piece]]:
    return list(plays([len(text.taps) for text in texts], prompt=40, seed=6))


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an operator reads from identity.json."""
    path = tmp_path_factory.mktemp("identity") / "identity.json"
    command = [sys.executable, "-m", "x86_worker", "identity", *FOLDERS, "--output", str(path)]
    subprocess.run(command, check=True, timeout=START_S)
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """A worker process; yields its endpoint.  At the end SIGTERM must end it with status 0."""
    ready, listens, log = folder / "ready.json", threading.Event(), []
    command = [sys.executable, "-m", "x86_worker", "serve", *FOLDERS, *options]
    command += ["--listen", "tcp://127.0.0.1:0", "--ready-file", str(ready)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                log.append(line)
                if "listens on" in line:
                    listens.set()
            listens.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert listens.wait(START_S)
            assert ready.exists(), "".join(log)
            yield json.loads(ready.read_text(encoding="utf-8"))["endpoints"][0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "".join(log)
            assert not ready.exists()
        finally:
            process.kill()
            reader.join(60)


@contextmanager
def overlay(endpoint: str, identity: dict[str, Any], row_dtype: RowDtype) -> Iterator[RemoteDrafter]:
    """The engine's side, configured as an operator would."""
    settings = Settings.from_environ(
        {
            "VLLM_DSPARK_REMOTE": endpoint,
            "VLLM_DSPARK_REMOTE_IDENTITY": identity["identity"],
            "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": identity["markov_identity"],
            "VLLM_DSPARK_REMOTE_TIMEOUT_MS": "60000",
            "VLLM_DSPARK_REMOTE_CONNECT_TIMEOUT_MS": "60000",
        }
    )
    assert settings is not None
    facts = EngineFacts(
        vocabulary=identity["vocabulary"],
        row_elements=identity["row_elements_raw"],
        row_dtype=row_dtype,
        tap_count=identity["tap_count"],
        window=identity["window"],
        max_positions=identity["max_positions"],
        block_length=identity["block_length"],
        max_slots=8,
        target_binding=parse_digest(identity["target_binding"], "target_binding"),
    )
    drafter = RemoteDrafter(settings, facts)
    try:
        assert drafter.start(60.0), drafter.stats()
        yield drafter
    finally:
        drafter.close()


def play_remotely(
    drafter: RemoteDrafter, texts: list[Text], rounds: list[list[Piece]], row_dtype: RowDtype
) -> list[Draft]:
    """The play as an engine's steps; margins stay with the worker, so they are given as infinite."""
    blocks = []
    for pieces in rounds:
        requests, rows, offset = [], [], 0
        for piece in pieces:
            text = texts[piece.slot]
            anchor = text.ids[piece.end]
            requests.append(
                RoundRequest(piece.slot, f"r{piece.slot}", piece.first, piece.n_rows, offset, anchor, 5)
            )
            rows.append(text.rows(piece.first, piece.n_rows, row_dtype))
            offset += piece.n_rows
        result = drafter.round(requests, b"".join(rows))
        assert result.reason == "", (result.reason, result.detail)
        assert result.ok.all(), result.outcomes
        blocks += [
            Draft(tuple(ids), tuple(confidences), (float("inf"),) * 5)
            for ids, confidences in zip(result.drafts.tolist(), result.confidences.tolist(), strict=True)
        ]
    return blocks


@pytest.mark.parametrize(
    ("options", "standard", "confidence_max"),
    [
        pytest.param(("--dtype", "float32"), "cpu", 1e-3, id="float32-as-on-the-cpu"),
        pytest.param((), "same device", 1e-6, id="bfloat16-as-in-process"),
    ],
)
def test_a_worker_on_the_gpu_drafts_over_tcp_what_the_drafter_drafts_in_process(
    device: torch.device,
    texts: list[Text],
    rounds: list[list[Piece]],
    identity: dict[str, Any],
    tmp_path: Path,
    options: tuple[str, ...],
    standard: str,
    confidence_max: float,
) -> None:
    dtype = options[1] if options else "bfloat16"
    row_dtype = RowDtype[dtype.upper()]
    local = load_reference_drafter(
        DEMO_PAIR / "drafter",
        DEMO_PAIR / "target",
        dtype=dtype,
        device="cpu" if standard == "cpu" else str(device),
    )
    expected = play(local, texts, rounds, row_dtype)
    with (
        served(tmp_path, "--device", str(device), *options) as endpoint,
        overlay(endpoint, identity, row_dtype) as drafter,
    ):
        given = play_remotely(drafter, texts, rounds, row_dtype)
        latency = drafter.stats()["latency"]
    found = compare(given, expected)
    print(f"{dtype} over TCP, {standard}: {found}", latency, sep="\n  ")
    assert found.blocks > 200
    assert found.differences == []
    assert len(found.ties) <= found.blocks / 100
    assert found.confidence <= confidence_max


def test_the_ready_worker_says_on_which_device_it_drafts(device: torch.device, tmp_path: Path) -> None:
    with served(tmp_path, "--device", str(device)) as endpoint:
        command = [sys.executable, "-m", "x86_worker", "status", endpoint, "--json"]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    assert f'"{device}' in json.dumps(answer)


def test_a_gpu_that_is_not_there_is_one_sentence(device: torch.device) -> None:
    command = [sys.executable, "-m", "x86_worker", "serve", *FOLDERS, "--listen", "tcp://127.0.0.1:0"]
    result = subprocess.run(
        [*command, "--device", "cuda:99"], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert "--device" in last
    assert "cuda:99" in last
