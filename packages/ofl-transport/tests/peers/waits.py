"""A process that is inside one blocking call, for tests that send it a signal: waits.py ENDPOINT CALL [catch].

CALL: connect, submit, wait, settled; or next_event, idle, and ENDPOINT is listened on.  It says "inside" right before
the call.  With `catch`, SIGTERM raises SystemExit(7), as in a program that wants to end in order; else a signal does
what it does.
"""

import signal
import sys
import time

from ofl.client import Client, connect
from ofl.echo import SERVICE
from ofl.interface import Request
from ofl.memory import Buffer
from ofl.server import Server

DEADLINE_NS = time.monotonic_ns() + 600 * 10**9


def connected(endpoint: str) -> Client:
    return connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=1 << 26,
        deadline_ns=DEADLINE_NS,
        heartbeat_ns=10**9,
        loss_ns=600 * 10**9,  # the peer is stopped on purpose
    )


def say_inside() -> None:
    print("inside", flush=True)


def lend(endpoint: str) -> None:
    """Replies with more lent memory than a client that does not read takes, and waits until it is idle."""
    with Server(SERVICE, version_min=1, version_max=1, max_frame_bytes=1 << 26) as server:
        print("listening on", server.listen(endpoint), flush=True)
        lent = Buffer(1 << 26)
        server.register(lent)
        request = server.next_event(deadline_ns=DEADLINE_NS)
        while not isinstance(request, Request):
            request = server.next_event(deadline_ns=DEADLINE_NS)
        server.reply(request.connection, request.sequence, [lent.view], lent=lent)
        say_inside()
        server.idle(lent, deadline_ns=DEADLINE_NS)


def give_up(client: Client) -> None:
    """Cancels a placed call whose server does not answer, and waits until it is settled."""
    room = Buffer(1000)
    client.register(room)
    sequence = client.submit([b"!hold"], deadline_ns=DEADLINE_NS, into=room.range())
    client.cancel(sequence)
    say_inside()
    client.settled(sequence, deadline_ns=DEADLINE_NS)


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
    elif call == "idle":
        lend(endpoint)
    else:
        client = connected(endpoint)
        print("connected", flush=True)
        sys.stdin.readline()  # the test stops the peer here
        if call == "settled":
            give_up(client)
        elif call == "submit":
            say_inside()
            client.submit([bytes(1 << 26)], deadline_ns=DEADLINE_NS)
        else:
            say_inside()
            client.call([b"!hold"], deadline_ns=DEADLINE_NS)


main(*sys.argv[1:])
