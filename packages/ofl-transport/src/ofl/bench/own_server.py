"""The bench server of a run without one: a process of its own that ends with this one."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ofl.errors import TransportError

START_S = 60.0
END_S = 5.0


@contextmanager
def own_server(endpoint: str, *, spin_us: int, key_file: str | None) -> Iterator[str]:
    """While open, a server listens there; the endpoint as bound.  Raises TransportError with the server's own words.

    It ends when its standard input does, so it cannot outlive this process; at once where the body raises.
    """
    command = [sys.executable, "-m", "ofl", "bench", "serve", endpoint, "--until-eof"]
    command += ["--spin-us", str(spin_us)] + (["--key-file", key_file] if key_file else [])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is ours; it ends by the end of its input
    )
    try:
        yield _bound(process)
    except BaseException:
        process.kill()  # it may be what stands still
        raise
    finally:
        _end(process)


def _bound(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + START_S
    while not select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
        if time.monotonic() >= deadline:
            raise TransportError(f"the bench server did not listen within {START_S:g} s")
    line = process.stdout.readline()
    if " listening on " not in line:
        said = process.stderr.read().strip().removeprefix("ofl: ") or "it said nothing"
        raise TransportError(f"the bench server did not start: {said}")
    return line.split()[-1]


def _end(process: "subprocess.Popen[str]") -> None:
    try:
        process.communicate(timeout=END_S)  # closes its input
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def free_name() -> str:
    """A name for shm that no other run has."""
    return f"shm://ofl-bench-{os.getpid()}"
