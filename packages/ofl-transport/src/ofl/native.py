"""The binding to libofl.so: finds it, loads it, turns statuses into the classes of `ofl.errors`.

ctypes releases the interpreter lock during every call.  Nothing here knows about requests or events.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

import ofl
from ofl import errors
from ofl.abi import ABI_VERSION as ABI_VERSION
from ofl.abi import PARTS_MAX as PARTS_MAX
from ofl.abi import SIGNATURES as _SIGNATURES
from ofl.abi import TEXT_BYTES, Capabilities, Transport

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
    """Where libofl.so is: OFL_LIBRARY if set, else the first folder of the package that holds it.

    An editable install keeps the library apart from the sources, so every folder of the package counts.
    Raises ImportError naming the folders.
    """
    if override := os.environ.get("OFL_LIBRARY"):
        return Path(override)
    for folder in ofl.__path__:
        if (candidate := Path(folder, "libofl.so")).is_file():
            return candidate
    places = ", ".join(ofl.__path__)
    raise ImportError(f"libofl.so is in none of: {places} (set OFL_LIBRARY, or install the package)")


@functools.cache
def loaded() -> ctypes.CDLL:
    """The loaded library with its functions declared.

    Raises ImportError when it is missing or has another ABI version.
    """
    path = library_path()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None
    loaded.ofl_abi_version.restype = ctypes.c_uint32
    loaded.ofl_abi_version.argtypes = ()
    if (version := loaded.ofl_abi_version()) != ABI_VERSION:
        raise ImportError(f"{path} has ABI version {version}; this package needs {ABI_VERSION}")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


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


def text_of(function: Callable[..., int]) -> tuple[int, str]:
    """Call a control-path function with room for its sentence; its status and the sentence."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    status = int(function(text, len(text)))
    return status, text.value.decode("ascii", "replace")


def raise_for(status: int, text: str) -> None:
    """Raise the class that `ofl.errors` has for a status; does nothing for OK."""
    if status != OK:
        raise _CLASSES.get(status, errors.TransportError)(text)
