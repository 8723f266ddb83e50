"""Tells systemd that the engine is up, as its sd_notify does: one datagram, where NOTIFY_SOCKET names a socket.

Standard library only.  Who is not started so is told nothing; a socket that takes nothing ends no engine.
"""

import socket
from collections.abc import Mapping

SOCKET = "NOTIFY_SOCKET"
"""Not for the engine: it would speak for the launcher."""


def notify(environ: Mapping[str, str], *states: str) -> str:
    """Send states such as READY=1; what went wrong, empty where nothing did or nobody asked."""
    address = environ.get(SOCKET, "")
    if not address:
        return ""
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)  # a full queue of a supervisor that reads nothing
            sender.connect(place)
            sender.send("\n".join(states).encode())
    except OSError as error:
        return f"{SOCKET}: {address} was not told {states[0]}: {error.strerror or error}"
    return ""
