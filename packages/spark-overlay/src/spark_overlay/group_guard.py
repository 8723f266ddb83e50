"""`python group_guard.py GROUP GRACE_S`: ends a process group once the launcher that owned it is gone.

A launcher that is killed can end nobody, and the system's own signal reaches only its direct child: vLLM's engine core
and workers would go on.  So this process waits on a pipe from the launcher.  A byte says that the launcher ended the
group itself; the pipe's end without one says that it was killed.  Standard library only: it is started by its path.
"""

import os
import signal
import sys
import time

POLL_S = 0.1
"""How often a group that was told to end is looked at; there is no event for a group's end."""


def main(group: int, grace_s: float) -> None:
    """Wait for the launcher's word or its death; after the latter SIGTERM, and SIGKILL for what is left."""
    if os.read(0, 1):
        return
    try:
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(POLL_S)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
