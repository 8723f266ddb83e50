"""A client in its own process, for tests that kill it or stop it: client.py ENDPOINT STEP LOSS_NS [NUMBER].

It connects, says "connected", and after one line of input it does one STEP and says so when it returned:
idle: nothing; call: one call; held: waits for a reply that never comes; sending: one request of NUMBER bytes;
hoarding: NUMBER requests whose replies it never reads, because it stops; receiving: a reply of 64 MiB, with the signal
NUMBER to itself once the first byte is there.
"""

import os
import signal
import sys
import threading
import time

from ofl.client import Client, connect
from ofl.echo import SERVICE
from ofl.memory import Buffer

MAX_FRAME_BYTES = 1 << 28


def soon() -> int:
    return time.monotonic_ns() + 600 * 10**9


def receive(client: Client, number: int) -> None:
    room = 1 << 26
    buffer = Buffer(room)
    client.register(buffer)
    sequence = client.submit([f"!bytes {room}".encode()], deadline_ns=soon(), into=buffer.range())
    threading.Thread(target=client.wait, args=(sequence,), kwargs={"deadline_ns": soon()}).start()
    view = buffer.view
    while view[0] == 0:
        if not client.alive:  # or this would go on for ever
            raise SystemExit(f"the connection was lost before a byte came: {client.reason}")
    print("begun", flush=True)
    os.kill(os.getpid(), number)


def main(endpoint: str, step: str, loss_ns: str, number: str = "0") -> None:
    client = connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=MAX_FRAME_BYTES,
        deadline_ns=soon(),
        heartbeat_ns=min(int(loss_ns) // 5, 10**9),
        loss_ns=int(loss_ns),
    )
    print("connected", flush=True)
    sys.stdin.readline()
    if step == "call":
        client.call([b"echo"], deadline_ns=soon())
    elif step == "held":
        client.call([b"!hold"], deadline_ns=soon())
    elif step == "sending":
        client.submit([bytes(int(number))], deadline_ns=soon())
    elif step == "hoarding":
        for _ in range(int(number)):
            client.submit([b"x"], deadline_ns=soon())
        os.kill(os.getpid(), signal.SIGSTOP)
    elif step == "receiving":
        receive(client, int(number))
    print("done", flush=True)
    sys.stdin.readline()


main(*sys.argv[1:])
