"""Signals that ask a run to end: they become one exception, so that every process is ended on the way out.

Must never let a second signal cut the ending short.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end.  Not an Exception: nothing on the way may take it for a fault of its own."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        super().__init__(self.name)
        self.status = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, the first ending signal raises Interrupted on the main thread and later ones do nothing."""

    def interrupt(number: int, _: FrameType | None) -> None:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup: whoever started us wants it so
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Within, an ending signal waits: for what must be done whole or not at all, and takes no time."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
