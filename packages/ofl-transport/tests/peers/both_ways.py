"""A server and a client of the other process in one, for connects both ways at once: both_ways.py ENDPOINT ROUNDS.

It listens, says where, reads the other's endpoint, and then connects, calls and closes ROUNDS times while it serves.
"""

import sys
import threading
import time

from ofl.client import connect
from ofl.echo import SERVICE, serve_echo
from ofl.server import Server

MAX_FRAME_BYTES = 1 << 20


def soon() -> int:
    return time.monotonic_ns() + 300 * 10**9


def visit(endpoint: str, turn: int) -> int:
    """One connection with one call; returns the boot nonce of the other process."""
    with connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=MAX_FRAME_BYTES,
        deadline_ns=soon(),
        heartbeat_ns=10**9,
        loss_ns=60 * 10**9,
    ) as client:
        body = turn.to_bytes(8, "little") * 1000
        if client.call([body], deadline_ns=soon()) != body:
            raise SystemExit("the reply differs from the request")
        return client.peer.boot_nonce


def main(endpoint: str, rounds: str) -> None:
    with Server(
        SERVICE, version_min=1, version_max=1, max_frame_bytes=MAX_FRAME_BYTES, handshake_ns=60 * 10**9
    ) as server:
        print("listening on", server.listen(endpoint), flush=True)
        other = sys.stdin.readline().strip()
        stopped = threading.Event()
        thread = threading.Thread(target=serve_echo, args=(server,), kwargs={"stopped": stopped.is_set})
        thread.start()
        nonces = {visit(other, turn) for turn in range(int(rounds))}
        print("done", int(rounds), "with", len(nonces), flush=True)
        sys.stdin.readline()  # goes on serving until the other has done the same
        stopped.set()
        server.wake()
        thread.join(60)


main(*sys.argv[1:])
