"""Commands that end: by themselves or, with all that they started, when their time is over."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence


def finished(words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command in a session of its own: its exit status, and what it printed.

    Raises subprocess.TimeoutExpired after `seconds`; no process of the session is left then, nor after an interrupt.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            status = process.wait(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # a build tool's compilers outlive it otherwise
            process.wait()
            raise
        log.seek(0)
        return status, log.read()
