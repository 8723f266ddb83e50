"""The native client behind a `Client`: given to calls while it is open, freed once the last of them has left it."""

import ctypes
import os
import threading

from engram_remote.abi import Status
from engram_remote.client_results import ClientClosedError


class ClientHandle:
    """A context that a call enters to use the handle.  Raises ClientClosedError after `close`.

    pointer: what engram_client_create fills in.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.pointer = ctypes.c_void_p()
        self._library, self._process = library, os.getpid()
        self._changed = threading.Condition()  # of what follows; re-entrant, for signal handlers
        self._users: list[int] = []
        """Threads that are in a call."""
        self._closer: int | None = None
        """The thread that closes, or did."""
        self._ended = False
        self._last_frees = False

    def __enter__(self) -> ctypes.c_void_p:
        with self._changed:
            if self._closer is not None or not self.pointer:
                raise ClientClosedError(Status.CLOSED, "the client was closed")
            self._users.append(threading.get_ident())
        return self.pointer

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._users.remove(threading.get_ident())
            free = self._last_frees and not self._users
            self._changed.notify_all()
        if free:
            self._library.engram_client_free(self.pointer)

    def close(self) -> bool:
        """End what is open, wait for other threads' calls, which end by that, and free.  Twice is harmless.

        Returns whether all that was open has ended; not so only in a signal handler that interrupted this very
        method.  From one that interrupted another call of its thread: that call frees.  In a child of fork() there
        is nobody to wait for.
        """
        if os.getpid() != self._process:
            pointer, self.pointer = self.pointer, ctypes.c_void_p()
            self._library.engram_client_free(pointer)
            return True
        me = threading.get_ident()
        with self._changed:
            if self._closer is not None:
                return self._ended if self._closer == me else self._changed.wait_for(lambda: self._ended)
            self._closer = me
        if not self.pointer:  # it was never made
            self._ended = True
            return True
        self._library.engram_client_close(self.pointer)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            self._last_frees = me in self._users
            if self._last_frees:
                return True
            self._changed.wait_for(lambda: not self._users)
        self._library.engram_client_free(self.pointer)
        return True
