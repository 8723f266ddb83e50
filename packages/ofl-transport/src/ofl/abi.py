"""The C ABI of libofl.so, declared for ctypes: `cpp/include/ofl.h`, field for field.  A test compares the two.

Declares only; `ofl.native` loads and calls.
"""

import ctypes
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
from enum import IntEnum

ABI_VERSION = 3
TEXT_BYTES = 512
PARTS_MAX = 64
COUNTERS = 19
BUFFER_BOUNCE = 1


class Transport(IntEnum):
    """Which wire, as the library numbers them."""

    TCP = 1
    RDMA = 2
    SHM = 3

    @classmethod
    def of(cls, scheme: str) -> "Transport":
        """The wire of an endpoint's scheme."""
        return cls[scheme.upper()]


class Part(ctypes.Structure):
    """One scatter-gather part; `base` takes a bytes object or an address."""

    _fields_ = (("base", c_char_p), ("bytes", c_size_t))


class Capabilities(ctypes.Structure):
    """What this build does over one transport."""

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
        ("key_file", c_char_p),
        ("port", c_uint16),
        ("version_min", c_uint16),
        ("version_max", c_uint16),
        ("transport", c_uint16),
        ("frame_bytes_max", c_uint32),
        ("reserved", c_uint32),
        ("heartbeat_ns", c_int64),
        ("loss_ns", c_int64),
        ("spin_ns", c_int64),
        ("abandoned", POINTER(c_int32)),
    )


class PeerRecord(ctypes.Structure):
    """What both ends agreed on."""

    _fields_ = (
        ("boot_nonce", c_uint64),
        ("frame_bytes_max", c_uint32),
        ("calls_max", c_uint32),
        ("version", c_uint16),
        ("authenticated", c_uint16),
        ("reserved", c_uint32),
        ("address", c_char * 112),
        ("local_address", c_char * 112),
        ("wire", c_char * 112),
    )


class CallOptions(ctypes.Structure):
    """Where a call's reply goes and what its request may read later."""

    _fields_ = (
        ("into", c_void_p),
        ("into_offset", c_size_t),
        ("into_bytes", c_size_t),
        ("lent", c_void_p),
    )


class ServerOptions(ctypes.Structure):
    """What a server offers and where it draws its limits."""

    _fields_ = (
        ("service", c_char_p),
        ("key_file", c_char_p),
        ("allowed", POINTER(c_char_p)),
        ("allowed_count", c_uint32),
        ("reserved", c_uint32),
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
        ("spin_ns", c_int64),
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
        ("reply_bytes_max", c_uint64),
        ("text", c_char * 256),
    )


_TEXT = (c_char_p, c_size_t)
_CONNECT = (POINTER(ClientOptions), c_int64, POINTER(c_void_p), POINTER(PeerRecord), *_TEXT)
_SUBMIT = (c_void_p, POINTER(Part), c_size_t, POINTER(CallOptions), c_int64, POINTER(c_uint64))
_RUN = (
    c_void_p,
    c_uint32,
    c_size_t,
    c_size_t,
    c_uint32,
    c_void_p,
    c_int64,
    POINTER(c_int64),
    POINTER(c_int64),
)

SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "ofl_capabilities_get": (c_int32, (c_uint32, POINTER(Capabilities))),
    "ofl_feature": (c_int32, (c_char_p, *_TEXT)),
    "ofl_rdma_choice": (c_int32, (c_char_p, *_TEXT)),
    "ofl_body_free": (None, (c_void_p,)),
    "ofl_buffer_create": (c_int32, (c_void_p, c_size_t, c_uint32, POINTER(c_void_p), *_TEXT)),
    "ofl_buffer_base": (c_void_p, (c_void_p,)),
    "ofl_buffer_free": (None, (c_void_p,)),
    "ofl_client_connect": (c_int32, _CONNECT),
    "ofl_client_register": (c_int32, (c_void_p, c_void_p, *_TEXT)),
    "ofl_client_submit": (c_int32, _SUBMIT),
    "ofl_client_wait": (c_int32, (c_void_p, c_uint64, c_int64, POINTER(c_void_p), POINTER(c_size_t))),
    "ofl_client_cancel": (c_int32, (c_void_p, c_uint64)),
    "ofl_client_settled": (c_int32, (c_void_p, c_uint64, c_int64)),
    "ofl_client_alive": (c_int32, (c_void_p,)),
    "ofl_client_reason": (None, (c_void_p, *_TEXT)),
    "ofl_client_close": (None, (c_void_p,)),
    "ofl_client_free": (None, (c_void_p,)),
    "ofl_server_create": (c_int32, (POINTER(ServerOptions), POINTER(c_void_p), *_TEXT)),
    "ofl_server_listen": (c_int32, (c_void_p, c_uint32, c_char_p, c_uint16, POINTER(c_uint16), *_TEXT)),
    "ofl_server_register": (c_int32, (c_void_p, c_void_p, *_TEXT)),
    "ofl_server_next": (c_int32, (c_void_p, c_int64, POINTER(EventRecord))),
    "ofl_server_reply": (c_int32, (c_void_p, c_uint64, c_uint64, POINTER(Part), c_size_t, c_void_p)),
    "ofl_server_idle": (c_int32, (c_void_p, c_void_p, c_int64)),
    "ofl_server_disconnect": (c_int32, (c_void_p, c_uint64, c_char_p)),
    "ofl_server_wake": (None, (c_void_p,)),
    "ofl_server_counters": (None, (c_void_p, POINTER(c_uint64))),
    "ofl_counter_name": (c_char_p, (c_uint32,)),
    "ofl_server_close": (None, (c_void_p,)),
    "ofl_server_free": (None, (c_void_p,)),
    "ofl_bench_serve": (c_int32, (c_void_p,)),
    "ofl_bench_run": (c_int32, _RUN),
}
"""Every function but ofl_abi_version, which is declared before it is known that the others are there."""
