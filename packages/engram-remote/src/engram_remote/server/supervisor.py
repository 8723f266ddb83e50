"""Tells a supervisor what the process is about, as systemd's sd_notify does: one datagram, where NOTIFY_SOCKET
names a socket.

Who is not started so, is told nothing; a socket that takes nothing is no reason to stop serving.
"""

import logging
import os
import socket

LOGGER = logging.getLogger("engram_remote")


def notify(state: str) -> bool:
    """Send a state, such as READY=1 or STOPPING=1; whether somebody took it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except OSError as error:
        LOGGER.warning("NOTIFY_SOCKET: %s was not told %s: %s", address, state, error.strerror or error)
        return False
    return True
