"""The drafter over the real transport, against the real worker service with made-up drafts."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ofl.contract.dspark_v1 import SERVICE, VERSION
from ofl.server import Server
from spark_overlay import probe
from wire_rig import PATIENCE_S, SHAPE, OneRequest, make_drafter
from x86_worker.mock import MockDrafter
from x86_worker.serve import Stop, run
from x86_worker.session import DrafterService, Limits


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


def test_rounds_draft_through_prefill_decode_and_a_restart_of_the_worker() -> None:
    with worker() as endpoint:
        drafter = make_drafter(endpoint)
        request = OneRequest(drafter)
        try:
            assert drafter.start(PATIENCE_S), drafter.stats()
            for n_rows in (300, 7, 1, 5, 6, 1):
                request.drafts_exactly(n_rows)
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
            request.drafts_exactly(1)
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
            arguments += ["--no-metrics-check"]
            assert probe.main(arguments) == probe.EXIT_OK
            assert "step_req_status: OK" in capsys.readouterr().out
            request.drafts_exactly(3)
            assert drafter.core.counters.resync_rounds == 0
        finally:
            drafter.close()
