"""The drafter over the real transport, against the real worker service with made-up drafts."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from ofl.contract.dspark_v1 import SERVICE, VERSION, RowDtype
from ofl.server import Server
from spark_overlay import probe
from spark_overlay.interface import EngineFacts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import Settings
from x86_worker.mock import MockDrafter, MockShape, mock_block, row_digest
from x86_worker.serve import Stop, run
from x86_worker.session import DrafterService, Limits

SHAPE = MockShape(
    vocabulary=5000,
    row_elements=256,
    projected_elements=64,
    tap_count=2,
    block_length=5,
    window=16,
    max_positions=2000,
)
FACTS = EngineFacts(
    vocabulary=5000,
    row_elements=256,
    row_dtype=RowDtype.FLOAT32,
    tap_count=2,
    window=16,
    max_positions=2000,
    block_length=5,
    max_slots=4,
)
PATIENCE_S = 30.0
"""For what comes at once unless something is broken; the machine may be busy."""


@contextmanager
def worker(endpoint: str = "tcp://127.0.0.1:0") -> Iterator[str]:
    """A worker's service in a thread; yields the endpoint as bound."""
    server = Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=1 << 20)
    bound = server.listen(endpoint)
    service = DrafterService(
        MockDrafter(SHAPE),
        worker_name="mock",
        boot_nonce=1,
        now_ns=time.monotonic_ns(),
        limits=Limits(max_frame_bytes=1 << 20),
        any_policy=True,
    )
    stop = Stop()
    stop.wake = server.wake
    thread = threading.Thread(target=run, args=(server, service, stop))
    thread.start()
    try:
        yield bound
    finally:
        stop.signal = 15
        stop.wake()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@dataclass
class OneRequest:
    """A request that grows; the drafts it must get are known."""

    drafter: RemoteDrafter
    rows: list[bytes] = field(default_factory=list)

    def step(self, n_rows: int) -> RoundResult:
        first = len(self.rows)
        self.rows += [os.urandom(FACTS.row_bytes) for _ in range(n_rows)]
        request = RoundRequest(2, "r", first, n_rows, 0, 7, 5)
        return self.drafter.round([request], b"".join(self.rows[first:]))

    def expected(self) -> list[int]:
        end = len(self.rows)
        start = max(0, end - FACTS.window)
        digests = [row_digest(position, self.rows[position]) for position in range(start, end)]
        return list(mock_block(SHAPE.facts().identity, 7, end, digests, 5000, 5).drafts)


def make_drafter(endpoint: str) -> RemoteDrafter:
    settings = Settings.from_environ(
        {
            "VLLM_DSPARK_REMOTE": endpoint,
            "VLLM_DSPARK_REMOTE_IDENTITY": SHAPE.facts().identity.hex(),
            "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": SHAPE.facts().markov_identity.hex(),
            "VLLM_DSPARK_REMOTE_TIMEOUT_MS": "20000",
            "VLLM_DSPARK_REMOTE_RETRY_MS": "1",
            "VLLM_DSPARK_REMOTE_RETRY_MAX_MS": "20",
            "VLLM_DSPARK_REMOTE_FRAME_BYTES": "8192",
        }
    )
    assert settings is not None
    return RemoteDrafter(settings, FACTS)


def test_rounds_draft_through_prefill_decode_and_a_restart_of_the_worker() -> None:
    with worker() as endpoint:
        drafter = make_drafter(endpoint)
        request = OneRequest(drafter)
        try:
            assert drafter.start(PATIENCE_S), drafter.stats()
            for n_rows in (300, 7, 1, 5, 6, 1):
                result = request.step(n_rows)
                assert result.reason == "", result.detail
                assert result.drafts.tolist() == [request.expected()]
            first = drafter.link.session
        except BaseException:
            drafter.close()
            raise
    try:
        # The worker has stopped: whatever the next round meets, it ends without drafts and without an exception.
        lost = request.step(2)
        assert lost.reason in ("transport_error", "not_ready", "frame_draining")
        assert not lost.drafts.any()
        with worker(endpoint):
            while drafter.link.session in (None, first):
                assert drafter.link.wait_ready(PATIENCE_S), drafter.stats()
            result = request.step(1)
            assert result.reason == "", result.detail
            assert result.drafts.tolist() == [request.expected()]
            counters = drafter.core.counters
            assert counters.resync_rounds >= 1
            assert counters.rounds_ok == 7
            drafter.close()
    finally:
        drafter.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("spark-overlay")]


def test_the_probe_disturbs_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with worker() as endpoint:
        drafter = make_drafter(endpoint)
        request = OneRequest(drafter)
        try:
            assert drafter.start(PATIENCE_S), drafter.stats()
            assert request.step(40).ok.all()
            facts = SHAPE.facts()
            arguments = ["--endpoint", endpoint, "--identity", facts.identity.hex()]
            arguments += ["--markov-identity", facts.markov_identity.hex(), "--step-rows", "16"]
            assert probe.main(arguments) == probe.EXIT_OK
            assert "step_req_status: OK" in capsys.readouterr().out
            result = request.step(3)
            assert result.drafts.tolist() == [request.expected()]
            assert drafter.core.counters.resync_rounds == 0
        finally:
            drafter.close()
