"""Signals that ask the demo to end: they become one exception, so that every process is ended on the way out.

Owns the handlers.  Must never let a second signal cut the ending short.
"""

import signal
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end.  Not an Exception: nothing on the way may take it for a fault of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def raise_on_signals() -> None:
    """From now on the first ending signal raises Interrupted on the main thread, and later ones do nothing."""

    def interrupt(number: int, _: FrameType | None) -> None:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        raise Interrupted(number)

    for ending in ENDING:
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as under nohup: whoever started us wants it so
            signal.signal(ending, interrupt)
