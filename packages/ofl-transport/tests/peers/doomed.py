"""Clients that die by SIGKILL at some step: doomed.py ENDPOINT COUNT SEED SCALE.

This process never has a handle of the library: each client is a child by fork().  Half of them kill themselves after a
step that the seed draws, the other half are killed by this process at a time that it draws, wherever they are.  Says
"done" and how many died so.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator

from ofl.client import connect
from ofl.echo import SERVICE
from ofl.memory import Buffer

ROOM = 300_000
STEPS = ("connect", "submit", "wait", "place", "placed", "cancel", "send", "close")
AT_ONCE = 4
LIFE_S = 0.015
"""About as long as all steps take."""


def soon() -> int:
    return time.monotonic_ns() + 60 * 10**9


def steps(endpoint: str) -> Iterator[str]:
    """Does one step after the other, and says which."""
    client = connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=1 << 20,
        deadline_ns=soon(),
        heartbeat_ns=10**8,
        loss_ns=60 * 10**9,  # a busy machine is no reason to lose the server
    )
    yield "connect"
    sequence = client.submit([b"small"], deadline_ns=soon())
    yield "submit"
    client.wait(sequence, deadline_ns=soon())
    yield "wait"
    buffer = Buffer(2 * ROOM)
    client.register(buffer)
    sequences = [
        client.submit([bytes(ROOM)], deadline_ns=soon(), into=buffer.range(start, ROOM))
        for start in (0, ROOM)
    ]
    yield "place"
    client.wait(sequences[0], deadline_ns=soon())
    yield "placed"
    client.cancel(sequences[1])
    yield "cancel"
    client.submit([bytes(1 << 20)], deadline_ns=soon())
    yield "send"
    client.close()
    yield "close"


def live(endpoint: str, last: str) -> None:
    """Dies after the step `last`; without one goes on for ever."""
    while True:
        for step in steps(endpoint):
            if step == last:
                os.kill(os.getpid(), signal.SIGKILL)


def begin(endpoint: str, last: str) -> int:
    """One more client; returns its process id."""
    child = os.fork()
    if child == 0:
        try:
            live(endpoint, last)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def reap() -> list[int]:
    """The clients that have died since.  Raises SystemExit for one that nobody killed."""
    dead: list[int] = []
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if child == 0:
            return dead
        if (code := os.waitstatus_to_exitcode(status)) != -signal.SIGKILL:
            raise SystemExit(f"a client ended by itself with {code}")
        dead.append(child)


def main(endpoint: str, count: str, seed: str, scale: str) -> None:
    chance = random.Random(int(seed))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # so that it can be waited for
    ends_s: dict[int, float] = {}
    begun = died = 0
    started_s = time.monotonic()
    while died < int(count):
        while begun < int(count) and len(ends_s) < AT_ONCE:
            last = chance.choice(STEPS) if begun % 2 else ""
            life_s = float("inf") if last else chance.random() * LIFE_S * float(scale)
            ends_s[begin(endpoint, last)] = time.monotonic() + life_s
            begun += 1
        due_s = min(ends_s.values()) - time.monotonic()
        signal.sigtimedwait([signal.SIGCHLD], max(0.0, min(due_s, 1.0)))
        for child, end_s in ends_s.items():
            if end_s <= time.monotonic():
                os.kill(child, signal.SIGKILL)
        for child in reap():
            del ends_s[child]
            died += 1
            if died % 100 == 0:  # for whoever reads why it took so long
                print(f"{died} clients are dead after {time.monotonic() - started_s:.1f} s", file=sys.stderr)
    print("done", died, flush=True)


main(*sys.argv[1:])
