"""A server in its own process, for tests that kill it or stop it: serve.py ENDPOINT [OPTION=VALUE]...

Answers a request with its own bytes, except those that begin with an exclamation mark:
"!hold" is never answered, "!bytes N" is answered with N bytes, "!counters" with the server's counters as JSON.
"""

import json
import sys
import time

from ofl.echo import SERVICE
from ofl.interface import Request
from ofl.server import Server

MAX_FRAME_BYTES = 1 << 26
HANDSHAKE_NS = 60 * 10**9
"""A client on a machine that is busy, or emulated, is no stranger for that."""


def answer(server: Server, request: Request) -> None:
    word, _, rest = bytes(request.body[:32]).partition(b" ")
    if word == b"!hold":
        return
    body: object = request.body
    if word == b"!bytes":
        body = b"\xa5" * int(rest)
    elif word == b"!counters":
        body = json.dumps(server.counters()).encode()
    server.reply(request.connection, request.sequence, [body])  # type: ignore[list-item]


def main(endpoint: str, *settings: str) -> None:
    options = {name: int(value) for name, value in (setting.split("=") for setting in settings)}
    options = {"max_frame_bytes": MAX_FRAME_BYTES, "handshake_ns": HANDSHAKE_NS} | options
    with Server(SERVICE, version_min=1, version_max=1, **options) as server:  # type: ignore[arg-type]
        print("listening on", server.listen(endpoint), flush=True)
        while True:
            event = server.next_event(deadline_ns=time.monotonic_ns() + 10**10)
            if isinstance(event, Request):
                answer(server, event)


main(*sys.argv[1:])
