"""A cancel against a reply that is on the wire by halves, which a plain socket can hold there."""

import threading

import pytest
from ofl.errors import DeadlineError
from transport_frames import CANCEL_TYPE, REPLY_TYPE, REQUEST_TYPE, accept_frame, frame, read_frame
from transport_harness import Harness
from transport_times import after, joined, scaled, soon


def test_a_large_reply_can_be_cancelled_while_it_arrives(harness: Harness) -> None:
    listener, endpoint = harness.listener()
    half, cancelled = threading.Event(), threading.Event()
    big = frame(REPLY_TYPE, sequence=1, body=bytes(200_000))

    def play() -> None:
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            connection.sendall(accept_frame())
            read_frame(connection)
            connection.sendall(big[:100_000])
            half.set()
            assert cancelled.wait(scaled(20))
            connection.sendall(big[100_000:])
            assert read_frame(connection)[:2] == (CANCEL_TYPE, 1)
            kind, sequence, _ = read_frame(connection)
            assert kind == REQUEST_TYPE
            connection.sendall(frame(REPLY_TYPE, sequence=sequence, body=b"kept"))
            read_frame(connection)

    thread = threading.Thread(target=play)
    thread.start()
    client = harness.client(endpoint)
    sequence = client.submit([b"big"], deadline_ns=soon())
    assert half.wait(scaled(20))
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.1))  # reads the first half of it
    client.cancel(sequence)
    cancelled.set()
    assert client.call([b"small"], deadline_ns=soon()) == b"kept"
    client.close()
    joined(thread)
