"""A process that is inside one blocking call, for tests that send it a signal: waits.py ENDPOINT CALL [catch].

CALL: connect, submit, wait, next_event (ENDPOINT is then listened on).  It says "inside" right before the call.  With
`catch`, SIGTERM raises SystemExit(7), as in a program that wants to end in order; else a signal does what it does.
"""

import signal
import sys
import time

from ofl.client import Client, connect
from ofl.echo import SERVICE
from ofl.server import Server

DEADLINE_NS = time.monotonic_ns() + 600 * 10**9


def connected(endpoint: str) -> Client:
    limits = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 26}
    return connect(
        endpoint,
        service=SERVICE,
        deadline_ns=DEADLINE_NS,
        heartbeat_ns=10**9,
        loss_ns=600 * 10**9,  # the peer is stopped on purpose
        **limits,
    )


def say_inside() -> None:
    print("inside", flush=True)


def main(endpoint: str, call: str, catch: str = "") -> None:
    # A shell starts what it puts into the background with Ctrl-C ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if catch:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    if call == "connect":
        say_inside()
        connected(endpoint)
    elif call == "next_event":
        with Server(SERVICE, version_min=1, version_max=1, max_frame_bytes=1024) as server:
            server.listen(endpoint)
            say_inside()
            server.next_event(deadline_ns=DEADLINE_NS)
    else:
        client = connected(endpoint)
        print("connected", flush=True)
        sys.stdin.readline()  # the test stops the peer here
        say_inside()
        if call == "submit":
            client.submit([bytes(1 << 26)], deadline_ns=DEADLINE_NS)
        else:
            client.call([b"!hold"], deadline_ns=DEADLINE_NS)


main(*sys.argv[1:])
