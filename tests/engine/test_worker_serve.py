"""`x86-worker serve` with real weights, as its own process over TCP: what it says it is, and what it
drafts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ofl.client import Client, connect
from ofl.contract.dspark_v1 import (
    SERVICE,
    VERSION,
    EntryFlag,
    Envelope,
    Hello,
    HelloFlag,
    HelloReply,
    Op,
    Policy,
    Refused,
    Reply,
    Request,
    RequestStatus,
    RowDtype,
    RowForm,
    Shape,
    Stats,
    StatsReply,
    Status,
    Step,
    StepEntry,
    StepReply,
    decode_reply,
    encode_request,
)
from ofl.contract.identity import parse_digest
from reference.tiny_checkpoints import HIDDEN, KINDS, TAPS, make_pair
from x86_worker.drafters.base import Draft, DraftWish
from x86_worker.drafters.reference import ReferenceDrafter, load_reference_drafter

pytestmark = pytest.mark.engine

START_S = 120.0
ROW_ELEMENTS = HIDDEN * len(TAPS)


def soon() -> int:
    return time.monotonic_ns() + int(60e9)


def worker(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "x86_worker", *arguments]


class Served:
    """A drafter's folders, what `identity` says of them, a worker that serves them, and the same in here."""

    def __init__(self, folder: Path) -> None:
        kind = KINDS["sliding"]
        drafter, target = make_pair(folder, kind)
        self.folders = ["--drafter", str(drafter), "--target", str(target)]
        identity = folder / "identity.json"
        subprocess.run(
            worker("identity", *self.folders, "--output", str(identity)), check=True, timeout=START_S
        )
        self.identity: dict[str, Any] = json.loads(identity.read_text())
        self.local: ReferenceDrafter = load_reference_drafter(drafter, target)
        ready = folder / "ready.json"
        command = worker("serve", *self.folders, "--listen", "tcp://127.0.0.1:0", "--ready-file", str(ready))
        env = os.environ | {"OMP_NUM_THREADS": "2"}  # as a host with several cores would have it
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._listens.wait(START_S)
        self.endpoint = json.loads(ready.read_text())["endpoints"][0]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "listens on" in line:
                self._listens.set()
        self._listens.set()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self._reader.join(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def shape(self, **changes: Any) -> Shape:
        """An engine configured from identity.json."""
        facts = self.identity
        values: dict[str, Any] = {
            "identity": parse_digest(facts["identity"], "identity"),
            "markov_identity": parse_digest(facts["markov_identity"], "markov_identity"),
            "target_binding": parse_digest(facts["target_binding"], "target_binding"),
            "vocabulary": facts["vocabulary"],
            "row_elements": ROW_ELEMENTS,
            "window": facts["window"],
            "max_positions": facts["max_positions"],
            "max_frame_bytes": 1 << 20,
            "block_length": facts["block_length"],
            "max_slots": 4,
            "tap_count": facts["tap_count"],
            "row_form": RowForm.RAW,
            "row_dtype": RowDtype.FLOAT32,
        }
        return Shape(**(values | changes))


class Engine:
    """One session with the worker."""

    def __init__(self, served: Served, **changes: Any) -> None:
        self.shape = served.shape(**changes)
        self.client: Client = connect(
            served.endpoint,
            service=SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=1 << 20,
            deadline_ns=soon(),
        )
        self.greeting = self.ask(Op.HELLO, Hello(uuid.uuid4().bytes, Policy.CAPACITY, self.shape))

    def ask(self, op: Op, request: Request) -> Reply:
        envelope = Envelope(op, 1, 1)
        body = self.client.call(encode_request(envelope, request, self.shape), deadline_ns=soon())
        return decode_reply(body, envelope, request, self.shape)

    def step(self, entry: StepEntry, taps: np.ndarray) -> StepReply:
        reply = self.ask(Op.STEP, Step((entry,), (taps.tobytes(),)))
        assert isinstance(reply, StepReply), reply
        return reply


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    assert made.stop() == 0


@pytest.fixture
def taps() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((120, ROW_ELEMENTS)).astype(np.float32)


def entry(served: Served, first: int, n_rows: int, reset: bool = False, generation: int = 1) -> StepEntry:
    end = first + n_rows
    window_start = first if reset else min(first, max(0, end - served.identity["window"]))
    flags = EntryFlag.NEED_DRAFT | (EntryFlag.RESET if reset else EntryFlag.NONE)
    if window_start > max(0, end - served.identity["window"]):
        flags |= EntryFlag.PARTIAL_WINDOW
    return StepEntry(
        1, flags, generation, first, n_rows, window_start, end % 500, served.identity["block_length"]
    )


def test_an_engine_configured_from_identity_json_is_served_real_drafts(served: Served) -> None:
    reply = Engine(served).greeting
    assert isinstance(reply, HelloReply), reply
    assert reply.flags is HelloFlag.CONFIDENCE


def test_a_cpu_worker_computes_with_one_thread_unless_told_otherwise(served: Served) -> None:
    reply = Engine(served).ask(Op.STATS, Stats())
    assert isinstance(reply, StatsReply)
    assert json.loads(reply.text)["drafter"]["threads"] == 1


@pytest.mark.parametrize("field", ["identity", "markov_identity", "target_binding"])
def test_another_digest_is_refused_by_name(served: Served, field: str) -> None:
    reply = Engine(served, **{field: b"\1" * 32}).greeting
    assert isinstance(reply, Refused)
    assert (reply.status, reply.field) == (Status.MISMATCH, f"hello.{field}")
    assert ("01" * 32) in reply.detail
    assert served.identity[field] in reply.detail


def test_rounds_over_the_wire_equal_the_drafter_in_process(served: Served, taps: np.ndarray) -> None:
    """Same weights, same rows, same appends: bit for bit, through windows that slide and a restart in
    between.
    """
    engine, context = Engine(served), served.local.new_context(RowForm.RAW, RowDtype.FLOAT32)
    position, generation = 0, 1
    for n_rows in (30, 1, 6, 3, 1, 40, 2):
        sent = entry(served, position, n_rows, reset=position == 0, generation=generation)
        rows = taps[position : position + n_rows]
        (got,) = engine.step(sent, rows).entries
        context.append(position, memoryview(rows.tobytes()), n_rows)
        position += n_rows
        wish = DraftWish(context, max(sent.window_start, context.start), sent.anchor, position, sent.n_out)
        (expected,) = served.local.draft([wish])
        assert isinstance(expected, Draft)
        assert got.drafts == expected.drafts
        np.testing.assert_allclose(got.confidences, expected.confidences, atol=1e-5)
        np.testing.assert_allclose(got.margins, expected.margins, atol=1e-3)


def test_rows_that_are_not_finite_fail_their_slot_and_a_reset_heals_it(
    served: Served, taps: np.ndarray
) -> None:
    engine = Engine(served)
    poisoned = taps[:20].copy()
    poisoned[7, 3] = np.nan
    (got,) = engine.step(entry(served, 0, 20, reset=True), poisoned).entries
    assert got.status is RequestStatus.DRAFTER
    (got,) = engine.step(entry(served, 20, 1), taps[20:21]).entries
    assert got.status is RequestStatus.NEEDS_RESET
    (got,) = engine.step(entry(served, 0, 21, reset=True), taps[:21]).entries
    assert got.status is RequestStatus.OK


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda:7"], ["--device", "cuda:7"]),
        (["--device", "nonsense"], ["--device", "nonsense"]),
        (["--dtype", "int8"], ["--dtype"]),
    ],
)
def test_what_cannot_be_computed_on_is_one_sentence(
    served: Served, arguments: list[str], words: list[str]
) -> None:
    command = worker("serve", *served.folders, "--listen", "tcp://127.0.0.1:0", *arguments)
    result = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert all(word in last for word in words), last
