"""What the kernel says of the TCP sockets of this host, in /proc/net/tcp: events that no peer tells of."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYN_SENT = 2
ZERO_WINDOW_PROBE = 4


@dataclass(frozen=True)
class Row:
    """One socket of IPv4.  timer: which one runs, 0 for none."""

    local_port: int
    remote_port: int
    state: int
    timer: int


def _rows() -> Iterator[Row]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, _, timer, *_ = line.split()
        local_port, remote_port = (int(address.split(":")[1], 16) for address in (local, remote))
        yield Row(local_port, remote_port, int(state, 16), int(timer.split(":")[0], 16))


def attempts(port: int) -> set[int]:
    """The local ports of attempts to connect to a port, while nobody has answered them."""
    return {row.local_port for row in _rows() if row.remote_port == port and row.state == SYN_SENT}


def is_stuck(port: int) -> bool:
    """Whether a socket of this port has more to send than its peer has room for, and probes for room."""
    return any(row.local_port == port and row.timer == ZERO_WINDOW_PROBE for row in _rows())
