"""The binding to libofl.so: turns statuses into the classes of `ofl.errors`.

ctypes releases the interpreter lock during every call.  Nothing here knows about requests or events.
"""

import ctypes
import functools
from pathlib import Path

import ofl
from ofl import errors, library
from ofl.abi import ABI_VERSION as ABI_VERSION
from ofl.abi import PARTS_MAX as PARTS_MAX
from ofl.abi import SIGNATURES as _SIGNATURES
from ofl.abi import Capabilities, Transport
from ofl.library import text_of as text_of

(
    OK,
    DEADLINE,
    LOST,
    REFUSED,
    TOO_LARGE,
    CLOSED,
    IN_USE,
    INVALID,
    LIMIT,
    UNKNOWN,
    INTERRUPTED,
    BUSY,
    SYSTEM,
    WOKEN,
    QUARANTINED,
    OVERLAP,
) = range(16)

_CLASSES: dict[int, type[errors.TransportError]] = {
    DEADLINE: errors.DeadlineError,
    LOST: errors.PeerLostError,
    REFUSED: errors.ConnectRefusedError,
    TOO_LARGE: errors.FrameTooLargeError,
    CLOSED: errors.ClosedError,
    IN_USE: errors.AddressInUseError,
    INVALID: errors.EndpointError,
    QUARANTINED: errors.QuarantinedError,
    OVERLAP: errors.OverlapError,
}
FEATURES = ("tcp", "shm", "rdma", "hmac-sha256")


def library_path() -> Path:
    """Where libofl.so is: OFL_LIBRARY if set, else in the package.  Raises ImportError naming its folders."""
    return library.library_path("libofl.so", ofl.__path__, "OFL_LIBRARY")


@functools.cache
def loaded() -> ctypes.CDLL:
    """The loaded library with its functions declared.

    Raises ImportError when it is missing or has another ABI version.
    """
    return library.load(library_path(), "ofl_abi_version", ABI_VERSION, _SIGNATURES)


def capabilities(scheme: str = "tcp") -> dict[str, int]:
    """What this build does over one scheme, by name.  Raises TransportError where it does nothing over it."""
    record = Capabilities()
    status = loaded().ofl_capabilities_get(Transport.of(scheme), record)
    raise_for(status, f"this build has no {scheme}")
    return {str(field[0]): int(getattr(record, field[0])) for field in Capabilities._fields_}


def missing(feature: str) -> str:
    """What is missing for one of FEATURES on this host, as a sentence; empty where nothing is."""
    status, text = text_of(lambda *room: loaded().ofl_feature(feature.encode(), *room))
    return "" if status == OK else text or "this build does not know it"


def rdma_choice(address: str) -> tuple[bool, str]:
    """Whether RDMA is possible from a local address, and the device, port and GID, or why there is none."""
    status, text = text_of(lambda *room: loaded().ofl_rdma_choice(address.encode(), *room))
    return status == OK, text


def raise_for(status: int, text: str) -> None:
    """Raise the class that `ofl.errors` has for a status; does nothing for OK."""
    if status != OK:
        raise _CLASSES.get(status, errors.TransportError)(text)
