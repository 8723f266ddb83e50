"""Tells systemd what the worker is about, as its sd_notify does: one datagram, where NOTIFY_SOCKET names a socket.

Who is not started so is told nothing; a socket that takes nothing is no reason to stop serving.
"""

import os
import socket

from x86_worker.log import LOGGER

SOCKET = "NOTIFY_SOCKET"


def notify(*states: str) -> bool:
    """Send states such as READY=1 or STOPPING=1; whether somebody took them."""
    address = os.environ.get(SOCKET, "")
    if not address:
        return False
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)  # a full queue of a supervisor that reads nothing
            sender.connect(place)
            sender.send("\n".join(states).encode())
    except OSError as error:
        LOGGER.warning("%s: %s was not told %s: %s", SOCKET, address, states[0], error.strerror or error)
        return False
    return True
