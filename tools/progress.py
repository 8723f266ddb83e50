"""Run a command into a log file and show on stderr that it lives: elapsed seconds and the log's newest line.

Standard library only, because it runs before anything is installed.  The exit status is the command's.  On failure the
end of the log is shown.
"""

import argparse
import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TextIO

QUIET_S = 2.0
"""Commands that end within this time show nothing."""
PLAIN_INTERVAL_S = 15.0
"""Without a terminal, one line each so many seconds."""
PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: list[str] | None = None) -> int:
    """Parse options, run the command, return its exit status (128 + signal when it was ended by one)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--title", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with options.log.open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            options.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        status = _watch(child, options.log, options.title, sys.stderr)
    if status > 0:
        tail = options.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        print("\n".join(tail), file=sys.stderr)
    return status if status >= 0 else 128 - status


def _watch(child: subprocess.Popen[bytes], log: Path, title: str, out: TextIO) -> int:
    """Show progress until the command ends; its status, or that of the signal that ended it through us."""
    started, terminal = time.monotonic(), out.isatty()
    next_line = started + QUIET_S
    got: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        got.append(number)
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    with selectors.DefaultSelector() as waiter:
        pidfd = os.pidfd_open(child.pid)
        waiter.register(pidfd, selectors.EVENT_READ)
        while not waiter.select(max(next_line - time.monotonic(), 0)):
            elapsed = time.monotonic() - started
            _show(out, f"{title}: {elapsed:.0f} s  {_newest_line(log)}", terminal)
            next_line = time.monotonic() + (1.0 if terminal else PLAIN_INTERVAL_S)
        os.close(pidfd)
    status = child.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    if got and status:
        status = -got[0]  # whatever the command made of it, it was interrupted
    elapsed = time.monotonic() - started
    if elapsed >= QUIET_S:
        _show(out, f"{title}: {'done' if status == 0 else 'failed'} in {elapsed:.0f} s", terminal)
        if terminal:
            out.write("\n")
    return status


def _show(out: TextIO, text: str, terminal: bool) -> None:
    if terminal:
        width = shutil.get_terminal_size().columns - 1
        out.write("\r\x1b[K" + text[:width])
    else:
        out.write(text + "\n")
    out.flush()


def _newest_line(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(log.stat().st_size - 400, 0))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _end_with_the_shell() -> None:
    """Be told SIGTERM when the shell that started us dies: a shell does not hand on the signal that ends it."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    _end_with_the_shell()
    sys.exit(main())
