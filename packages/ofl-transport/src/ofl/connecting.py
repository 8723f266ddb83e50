"""One attempt of the library's to connect, made so that signal handlers run while it lasts.

Python runs signal handlers on its main thread alone, between bytecodes.  A library call that waits there would have to
come back for them, and an attempt that comes back half way begins anew.  So the main thread has another one make the
attempt, and waits as Python waits: a handler runs at once, the attempt goes on, and a handler that raises abandons it.
"""

import ctypes
import threading

from ofl import abi, native


class Attempt:
    """What came of it: a status and its text, and with `OK` what both ends agreed on.

    handle: the caller's, set to the library's handle with `OK` and left alone otherwise.
    """

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.status = native.INTERRUPTED
        self.text = ""
        self.record = abi.PeerRecord()

    def run(self, options: abi.ClientOptions, deadline_ns: int) -> None:
        """Connect and negotiate; deadline: absolute, CLOCK_MONOTONIC nanoseconds.

        Raises what a signal handler raises, on the main thread; nothing is left connected then.
        """
        if threading.current_thread() is threading.main_thread():
            _Elsewhere(self, options, deadline_ns).wait()
        else:
            self.connect(options, deadline_ns, self.handle)

    def connect(self, options: abi.ClientOptions, deadline_ns: int, handle: ctypes.c_void_p) -> None:
        """The same on this thread, until it is abandoned."""
        library = native.loaded()
        while self.status == native.INTERRUPTED and not (
            options.abandoned and options.abandoned.contents.value
        ):
            self.status, self.text = native.text_of(
                lambda *room: library.ofl_client_connect(options, deadline_ns, handle, self.record, *room)
            )


class _Elsewhere:
    """An attempt on a thread of its own, which ends soon after it was abandoned."""

    def __init__(self, attempt: Attempt, options: abi.ClientOptions, deadline_ns: int) -> None:
        self._attempt, self._options, self._deadline_ns = attempt, options, deadline_ns
        self._abandoned = ctypes.c_int32(0)
        options.abandoned = ctypes.pointer(self._abandoned)
        self._lock = threading.Lock()  # held to abandon it, and to hand out what was made
        self._done = threading.Event()
        self._failure: BaseException | None = None

    def wait(self) -> None:
        try:
            threading.Thread(target=self._run, name="ofl-connect", daemon=True).start()
            self._done.wait()
        except BaseException:
            self._abandon()
            raise
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        made = ctypes.c_void_p()
        try:
            self._attempt.connect(self._options, self._deadline_ns, made)
        except BaseException as failure:  # raised where the attempt was asked for
            self._failure = failure
        with self._lock:
            if not self._abandoned.value:
                self._attempt.handle.value = made.value
            elif made:
                native.loaded().ofl_client_free(made)
        self._done.set()

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned.value = 1
