"""`ofl probe --connect` over RDMA, where the negotiation over TCP proves nothing of RDMA's own packets.

Here the connection itself goes over TCP, to a peer that is well or that falls silent; two_vms/ has the real thing.
"""

import threading
from functools import partial

import pytest
from ofl import client, echo, probe, probe_text
from transport_frames import accept_frame, finish, read_frame
from transport_harness import Harness
from transport_times import joined

LOSS_MS = 1000


@pytest.fixture(autouse=True)
def rdma_that_goes_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(endpoint: str, **options: object) -> client.Client:
        return client.connect(endpoint.replace("rdma:", "tcp:"), **options)  # type: ignore[arg-type]

    monkeypatch.setattr(probe, "connect", connect)
    monkeypatch.setenv("OFL_LOSS_MS", str(LOSS_MS))


def report_of(endpoint: str) -> probe.Report:
    asked = partial(probe.connect_report, service=echo.SERVICE, version=echo.VERSION, timeout_ns=20 * 10**9)
    return asked(endpoint.replace("tcp:", "rdma:"))


def test_a_way_counts_as_proved_once_it_has_outlived_the_loss_limit(harness: Harness) -> None:
    _, endpoint = harness.echo()
    report = report_of(endpoint)
    assert report["ok"] is True
    assert report["alive_ms"] == 2 * LOSS_MS
    assert f"alive for {2 * LOSS_MS} ms over RDMA" in probe_text.connect_line(report)


def test_a_way_that_carries_the_negotiation_alone_fails_and_says_what_to_look_for(harness: Harness) -> None:
    listener, endpoint = harness.listener()

    def play() -> None:
        listener.accept()[0].close()  # the probe times the handshake
        connection, _ = listener.accept()
        read_frame(connection)
        connection.sendall(accept_frame())
        finish(connection)

    peer = threading.Thread(target=play)
    peer.start()
    report = report_of(endpoint)
    joined(peer)
    assert report["ok"] is False
    error = report["error"]
    assert f"lost (no sign of life from the peer for {LOSS_MS} ms)" in error
    assert "UDP port 4791" in error
    assert "RoCE v1 and the other v2" in error
    assert probe_text.connect_line(report) == f"connect: failed: {error}"
