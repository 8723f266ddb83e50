"""A client that always has a few requests open: presses.py ENDPOINT OPEN COUNT.

It says when it begins, and ends after COUNT replies, or where its server is gone.
"""

import contextlib
import sys
import time
from collections import deque

from ofl.client import connect
from ofl.echo import SERVICE
from ofl.errors import TransportError


def soon() -> int:
    return time.monotonic_ns() + 60 * 10**9


def main(endpoint: str, window: str, count: str) -> None:
    with (
        contextlib.suppress(TransportError),
        connect(
            endpoint,
            service=SERVICE,
            version_min=1,
            version_max=1,
            max_frame_bytes=1 << 20,
            deadline_ns=soon(),
            heartbeat_ns=10**9,
            loss_ns=60 * 10**9,
        ) as client,
    ):
        opened = deque(client.submit([b"press"], deadline_ns=soon()) for _ in range(int(window)))
        print("pressing", flush=True)
        for _ in range(int(count)):
            client.wait(opened.popleft(), deadline_ns=soon())
            opened.append(client.submit([b"press"], deadline_ns=soon()))


main(*sys.argv[1:])
