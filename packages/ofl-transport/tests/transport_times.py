"""Times of tests, for a machine that runs as fast as it should.

OFL_TEST_TIME_SCALE stretches all of them, for one that is emulated; `scaled`, `span_ns` and `after` apply it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TypedDict

SECOND = 1_000_000_000
SCALE = float(os.environ.get("OFL_TEST_TIME_SCALE", "1"))


def scaled(seconds: float) -> float:
    """Seconds of this machine."""
    return seconds * SCALE


def span_ns(seconds: float) -> int:
    """The same in nanoseconds."""
    return int(scaled(seconds) * SECOND)


def after(seconds: float) -> int:
    """A deadline that is meant to pass, in seconds from now."""
    return time.monotonic_ns() + span_ns(seconds)


def soon(seconds: float = 20.0) -> int:
    """A deadline that a healthy test never meets, also on a machine that is busy with other work."""
    return after(seconds)


class Liveness(TypedDict):
    """How often a client says that it is there, and how long it believes the same of its peer."""

    heartbeat_ns: int
    loss_ns: int


FAST: Liveness = {"heartbeat_ns": span_ns(0.05), "loss_ns": span_ns(0.5)}
"""For tests that wait for a peer to be lost."""

PATIENT: Liveness = {"heartbeat_ns": span_ns(0.05), "loss_ns": span_ns(20)}
"""For all others: a machine that is busy with other work is no reason to lose a peer."""


def joined(thread: threading.Thread, seconds: float = 20.0) -> None:
    """Wait for the end of a thread; fails where it goes on."""
    thread.join(scaled(seconds))
    assert not thread.is_alive(), "a thread of the test goes on"


class Elapsed:
    """Seconds spent inside a `with` block."""

    def __enter__(self) -> "Elapsed":
        self.begun = time.monotonic()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.begun


def eventually(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Poll until it holds; fails with what was expected."""
    deadline = soon(seconds)
    while not holds():
        assert time.monotonic_ns() < deadline, f"did not happen in {scaled(seconds)} s: {what}"
        time.sleep(0.002)
