"""The binding to libofl.so: finds it, declares it, turns statuses into the classes of `ofl.errors`.

ctypes releases the interpreter lock during every call.  Nothing here knows about requests or events.
"""

import ctypes
import functools
import os
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

import ofl
from ofl import errors

ABI_VERSION = 1
TEXT_BYTES = 512
PARTS_MAX = 64

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
) = range(14)

_CLASSES: dict[int, type[errors.TransportError]] = {
    DEADLINE: errors.DeadlineError,
    LOST: errors.PeerLostError,
    REFUSED: errors.ConnectRefusedError,
    TOO_LARGE: errors.FrameTooLargeError,
    CLOSED: errors.ClosedError,
    IN_USE: errors.AddressInUseError,
    INVALID: errors.EndpointError,
}


class Part(ctypes.Structure):
    """One scatter-gather part; `base` takes a bytes object or an address."""

    _fields_ = (("base", c_char_p), ("bytes", c_size_t))


class Capabilities(ctypes.Structure):
    """What this build can do."""

    _fields_ = tuple(
        (name, c_uint32)
        for name in (
            "abi_version",
            "wire_version",
            "parts_max",
            "registered_memory",
            "direct_placement",
            "one_sided",
        )
    )


class ClientOptions(ctypes.Structure):
    """What a client asks for."""

    _fields_ = (
        ("host", c_char_p),
        ("bind", c_char_p),
        ("service", c_char_p),
        ("port", c_uint16),
        ("version_min", c_uint16),
        ("version_max", c_uint16),
        ("reserved", c_uint16),
        ("frame_bytes_max", c_uint32),
        ("reserved_2", c_uint32),
        ("heartbeat_ns", c_int64),
        ("loss_ns", c_int64),
    )


class PeerRecord(ctypes.Structure):
    """What both ends agreed on."""

    _fields_ = (
        ("boot_nonce", c_uint64),
        ("frame_bytes_max", c_uint32),
        ("calls_max", c_uint32),
        ("version", c_uint16),
        ("reserved", c_uint16 * 3),
        ("address", c_char * 64),
        ("local_address", c_char * 64),
    )


class ServerOptions(ctypes.Structure):
    """What a server offers and where it draws its limits."""

    _fields_ = (
        ("service", c_char_p),
        ("version_min", c_uint16),
        ("version_max", c_uint16),
        ("frame_bytes_max", c_uint32),
        ("connections_max", c_uint32),
        ("pending_max", c_uint32),
        ("calls_max", c_uint32),
        ("allow_any", c_uint32),
        ("handshake_ns", c_int64),
        ("frame_ns", c_int64),
        ("queue_bytes_max", c_uint64),
    )


class EventRecord(ctypes.Structure):
    """One event of a server."""

    _fields_ = (
        ("kind", c_uint32),
        ("version", c_uint32),
        ("connection", c_uint64),
        ("sequence", c_uint64),
        ("received_ns", c_int64),
        ("body", c_void_p),
        ("body_bytes", c_uint64),
        ("capacity", c_uint64),
        ("text", c_char * 256),
    )


_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "ofl_capabilities_get": (None, (POINTER(Capabilities),)),
    "ofl_body_free": (None, (c_void_p,)),
    "ofl_client_connect": (
        c_int32,
        (POINTER(ClientOptions), c_int64, POINTER(c_void_p), POINTER(PeerRecord), c_char_p, c_size_t),
    ),
    "ofl_client_submit": (c_int32, (c_void_p, POINTER(Part), c_size_t, c_int64, POINTER(c_uint64))),
    "ofl_client_wait": (c_int32, (c_void_p, c_uint64, c_int64, POINTER(c_void_p), POINTER(c_size_t))),
    "ofl_client_cancel": (c_int32, (c_void_p, c_uint64)),
    "ofl_client_alive": (c_int32, (c_void_p,)),
    "ofl_client_reason": (None, (c_void_p, c_char_p, c_size_t)),
    "ofl_client_close": (None, (c_void_p,)),
    "ofl_client_free": (None, (c_void_p,)),
    "ofl_server_create": (c_int32, (POINTER(ServerOptions), POINTER(c_void_p), c_char_p, c_size_t)),
    "ofl_server_listen": (c_int32, (c_void_p, c_char_p, c_uint16, POINTER(c_uint16), c_char_p, c_size_t)),
    "ofl_server_next": (c_int32, (c_void_p, c_int64, POINTER(EventRecord))),
    "ofl_server_reply": (c_int32, (c_void_p, c_uint64, c_uint64, POINTER(Part), c_size_t)),
    "ofl_server_disconnect": (c_int32, (c_void_p, c_uint64, c_char_p)),
    "ofl_server_wake": (None, (c_void_p,)),
    "ofl_server_counters": (None, (c_void_p, POINTER(c_uint64))),
    "ofl_counter_name": (c_char_p, (c_uint32,)),
    "ofl_server_close": (None, (c_void_p,)),
    "ofl_server_free": (None, (c_void_p,)),
}


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
    loaded.ofl_abi_version.restype = c_uint32
    loaded.ofl_abi_version.argtypes = ()
    if (version := loaded.ofl_abi_version()) != ABI_VERSION:
        raise ImportError(f"{path} has ABI version {version}; this package needs {ABI_VERSION}")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


def capabilities() -> dict[str, int]:
    """What this build can do, by name."""
    record = Capabilities()
    loaded().ofl_capabilities_get(record)
    return {str(field[0]): int(getattr(record, field[0])) for field in Capabilities._fields_}


def raise_for(status: int, text: str) -> None:
    """Raise the class that `ofl.errors` has for a status; does nothing for OK."""
    if status != OK:
        raise _CLASSES.get(status, errors.TransportError)(text)
