"""A child that does not outlive its parent, however the parent dies.

A parent that is killed with SIGKILL can end nobody; Linux can: it signals a child when the thread that started it
ends.  Standard library only.
"""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
"""Looked up here, so that nothing is loaded between fork and exec."""


def end_with_parent(number: int = signal.SIGTERM) -> Callable[[], None]:
    """A preexec_fn for subprocess.Popen: the child gets signal number when the calling thread ends.

    Call it, and Popen, on a thread that lives as long as the child should.
    """
    parent = os.getpid()

    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be watched
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
