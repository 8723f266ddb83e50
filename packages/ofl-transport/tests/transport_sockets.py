"""What the kernel says of the TCP sockets of this host, in /proc/net/tcp: events that no peer tells of."""

import re
from pathlib import Path

SYN_SENT = "02"
ZERO_WINDOW_PROBE = "04"


def _found(pattern: str) -> list[str]:
    """By one expression over the whole: after a thousand tests there are thousands of rows, and sockets come and go."""
    return re.findall(pattern, Path("/proc/net/tcp").read_text(), re.MULTILINE)


def attempts(port: int) -> set[int]:
    """The local ports of attempts to connect to a port, while nobody has answered them."""
    return {int(local, 16) for local in _found(rf"^ *\d+: \w+:(\w+) \w+:{port:04X} {SYN_SENT} ")}


def is_stuck(port: int) -> bool:
    """Whether a socket of this port has more to send than its peer has room for, and probes for room."""
    return bool(_found(rf"^ *\d+: \w+:{port:04X} \w+:\w+ \w+ \w+:\w+ {ZERO_WINDOW_PROBE}:"))
