"""What a child process that was started with `spawn` does; a module of its own, since the child imports it by name."""

import time

from ofl.client import connect
from ofl.echo import SERVICE
from ofl.memory import Buffer


def place(endpoint: str, turns: int, patience_ns: int) -> None:
    """A connection and memory of the child's own, into which it has its requests echoed.  Exit status 0 if it held."""
    deadline_ns = time.monotonic_ns() + patience_ns
    client = connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=1 << 20,
        deadline_ns=deadline_ns,
        heartbeat_ns=10**8,
        loss_ns=patience_ns,
    )
    with client, Buffer(100_000) as buffer:
        client.register(buffer)
        for turn in range(turns):
            body = bytes([turn + 1]) * buffer.nbytes
            sequence = client.submit([body], deadline_ns=deadline_ns, into=buffer.range())
            if client.wait(sequence, deadline_ns=deadline_ns) != body or buffer.view != body:
                raise SystemExit("the reply is not what was sent")
