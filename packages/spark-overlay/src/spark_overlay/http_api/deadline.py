"""A socket under one absolute deadline: no peer that sends a byte now and then can hold a call for longer.

A socket's own timeout starts anew at every byte; here every read gets what is left of the call's time.
"""

import io
import socket
import time
from typing import Any


def remaining_s(deadline_s: float) -> float:
    """What is left until a deadline of time.monotonic.  Raises TimeoutError where it has passed."""
    left = deadline_s - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline passed")
    return left


class DeadlineSocket:
    """As much of a connected socket as http.client uses, every use of it bounded by the deadline."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        """connected: is closed with this one.  deadline_s: of time.monotonic, for everything to come."""
        self._socket = connected
        self._deadline_s = deadline_s

    def sendall(self, data: Any) -> None:
        """Send it all, or raise TimeoutError or another OSError."""
        self._socket.settimeout(remaining_s(self._deadline_s))
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader of what comes; http.client asks for "rb"."""
        assert mode == "rb", mode
        return io.BufferedReader(_DeadlineReader(self._socket, self._deadline_s))

    def close(self) -> None:
        """Close it; a reader that is open keeps the connection until it is closed too."""
        self._socket.close()


class _DeadlineReader(io.RawIOBase):
    """Raw reads of a socket, each with the time that is left."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._socket = connected
        self._deadline_s = deadline_s
        self._file = connected.makefile("rb", buffering=0)  # holds the socket open after its close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(remaining_s(self._deadline_s))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
