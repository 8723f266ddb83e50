"""Whether the first host of an engine of several still runs its part.

vLLM's other hosts do not notice that rank 0 is gone: their ranks wait for its next word for ever, and a new rank 0
would wait for them.  Rank 0's process listens at the engine's master port for all its life (torch's store), so a
connection that nobody takes, several times in a row, says that it ended.  Standard library only; must never send a
byte.
"""

import socket
from collections.abc import Callable

POLL_S = 5.0
"""Between two looks."""
CONNECT_S = 5.0
MISSES_MAX = 3
"""One connection may get lost; rank 0 is gone where so many in a row are not taken."""


def answers(host: str, port: int) -> bool:
    """Whether somebody takes a connection there."""
    try:
        with socket.create_connection((host, port), CONNECT_S):
            return True
    except OSError:
        return False


def outlived(host: str, port: int, ended: Callable[[float], bool], *, met: bool = True) -> bool:
    """Wait until our own part has ended (False), or the first host's has (True).

    ended: waits at most so many seconds for our own end; whether it came.  met: whether the first host was there
    already; where not it may start later, and is missed only once it has answered.
    """
    misses = 0
    while not ended(POLL_S):
        if answers(host, port):
            met, misses = True, 0
        elif met:
            misses += 1
        if misses == MISSES_MAX:
            return True
    return False
