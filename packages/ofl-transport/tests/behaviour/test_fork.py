"""fork and exec after memory was registered: the child can do nothing, and the parent does not notice."""

import os
import signal
import subprocess
import warnings
from collections.abc import Callable

from ofl.errors import ClosedError
from ofl.memory import Buffer
from transport_harness import Harness, answer, take
from transport_times import soon


def forked(work: Callable[[], None]) -> int:
    """The exit code of a child by fork() that does the work: 0 if it held, 1 if it raised."""
    with warnings.catch_warnings():
        # Newer Pythons warn of fork() beside threads in general; that it is safe for these handles is the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def closed(call: Callable[[], object]) -> None:
    """The call must say that the handle is the parent's."""
    try:
        call()
    except ClosedError:
        return
    raise AssertionError("a child used its parent's handle")


def test_a_child_after_fork_leaves_the_parents_connection_alone(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)

    def child() -> None:
        closed(lambda: client.call([b"x"], deadline_ns=soon()))
        closed(lambda: server.next_event(deadline_ns=soon()))
        assert client.reason == "the connection belongs to the process before fork()"
        client.close()
        client.__del__()
        server.close()
        server.__del__()

    assert forked(child) == 0
    assert client.call([b"unharmed"], deadline_ns=soon()) == b"unharmed"
    assert server.counters()["disconnects"] == 0


def test_a_placement_under_way_across_a_fork_lands_in_the_parents_memory(harness: Harness) -> None:
    server, endpoint = harness.listening()
    size = 400_000
    buffer = Buffer(size)
    client = harness.client(endpoint)
    client.register(buffer)
    buffer.view[:] = b"p" * size
    for whole in (buffer.range(), buffer.range(1000, 200_000)):
        sequence = client.submit([b"x"], deadline_ns=soon(), into=whole)
        request = take(server)

        def child(sequence: int = sequence) -> None:
            buffer.view[:] = b"c" * size  # its own copy, whatever it does to it
            closed(lambda: client.wait(sequence, deadline_ns=soon()))
            closed(lambda: client.register(buffer))
            closed(lambda: client.submit([b"y"], deadline_ns=soon(), into=buffer.range()))
            assert buffer.view == b"c" * size

        assert forked(child) == 0
        answer(server, request, b"r" * whole.nbytes)
        assert client.wait(sequence, deadline_ns=soon()) == b"r" * whole.nbytes
        assert whole.view == b"r" * whole.nbytes
    assert b"c" not in bytes(buffer.view)


def test_children_that_write_while_replies_are_placed_change_nothing(harness: Harness) -> None:
    _, endpoint = harness.echo()
    size = 100_000
    buffer = Buffer(size)
    client = harness.client(endpoint)
    client.register(buffer)
    for turn in range(10):
        body = bytes([turn + 1]) * size
        sequence = client.submit([body], deadline_ns=soon(), into=buffer.range())

        def child() -> None:
            buffer.view[:] = b"c" * size

        assert forked(child) == 0
        assert client.wait(sequence, deadline_ns=soon()) == body


def test_a_lent_reply_reads_the_parents_memory_after_a_fork(harness: Harness) -> None:
    server, endpoint = harness.listening()
    lent = Buffer(300_000)
    server.register(lent)
    lent.view[:] = b"1" * 300_000
    client = harness.client(endpoint)

    def child() -> None:
        lent.view[:] = b"c" * 300_000

    assert forked(child) == 0
    lent.view[:] = b"2" * 300_000  # after the fork: this page is the parent's alone, or copied for the child
    sequence = client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    assert server.reply(request.connection, request.sequence, [lent.view], lent=lent)
    assert client.wait(sequence, deadline_ns=soon()) == b"2" * 300_000


def test_a_program_that_is_started_gets_none_of_it(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(100_000)
    client = harness.client(endpoint)
    client.register(buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    request = take(server)
    listing = ["ls", "-l", "/proc/self/fd"]
    shown = subprocess.run(listing, capture_output=True, text=True, check=True, close_fds=False)
    assert "pipe:" in shown.stdout
    for kind in ("socket:", "eventpoll", "eventfd", "memfd:", "infiniband"):
        assert kind not in shown.stdout
    answer(server, request, b"r" * 100_000)
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * 100_000
    assert server.counters()["disconnects"] == 0
