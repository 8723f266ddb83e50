"""The C ABI of libengram.so, declared for ctypes: `cpp/include/engram.h`, field for field.  A test compares the two.

Declares only; `engram_remote.native` loads and calls.
"""

import ctypes
from ctypes import (
    POINTER,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum, IntFlag

ABI_VERSION = 1
SERVER_COUNTERS = 24
CLIENT_COUNTERS = 32
LATENCY_BUCKETS = 160
HANDOVER_IDS_AT = 128
"""Where the ids of a hand-over block begin, in bytes."""


class Status(IntEnum):
    """What the library's functions return."""

    OK = 0
    DEADLINE = 1
    REFUSED = 2
    LOST = 3
    INVALID = 4
    IN_USE = 5
    CLOSED = 6
    UNKNOWN = 7
    SYSTEM = 8
    SHARD = 9
    FAILED = 10


class MemoryFlag(IntFlag):
    """Of `engram_memory_allocate`."""

    HUGE = 1


class ClientFlag(IntFlag):
    """Of `ClientOptions`."""

    BOUNCE = 1
    CHECKSUM = 2
    REQUIRED = 4
    BUFFERED = 8
    PREAD = 16


class Outcome(IntEnum):
    """Where a lookup's rows came from."""

    REMOTE = 1
    LOCAL = 2


class ServerOptions(ctypes.Structure):
    """What a server offers and where it draws its limits."""

    _fields_ = (
        ("key_file", c_char_p),
        ("allowed", POINTER(c_char_p)),
        ("allowed_count", c_uint32),
        ("allow_any", c_uint32),
        ("identity", c_uint8 * 32),
        ("columns", c_uint32),
        ("scales", c_uint32),
        ("gather_threads", c_uint32),
        ("connections_max", c_uint32),
        ("batch_rows_max", c_uint32),
        ("calls_max", c_uint32),
        ("reply_buffers", c_uint32),
        ("flags", c_uint32),
        ("spin_ns", c_int64),
    )


class TableRecord(ctypes.Structure):
    """One table in memory."""

    _fields_ = (
        ("rows", c_void_p),
        ("row_start", c_uint64),
        ("row_end", c_uint64),
        ("layer", c_uint32),
        ("rank", c_uint32),
        ("ranks", c_uint32),
        ("reserved", c_uint32),
    )


class LayerRecord(ctypes.Structure):
    """One layer that a client reads, with its local shard."""

    _fields_ = (
        ("shard", c_char_p),
        ("row_start", c_uint64),
        ("row_end", c_uint64),
        ("layer", c_uint32),
        ("reserved", c_uint32),
        ("source_sha256", c_uint8 * 32),
    )


class ClientOptions(ctypes.Structure):
    """What a client asks for."""

    _fields_ = (
        ("host", c_char_p),
        ("bind", c_char_p),
        ("key_file", c_char_p),
        ("layers", POINTER(LayerRecord)),
        ("layer_count", c_uint32),
        ("port", c_uint16),
        ("transport", c_uint16),
        ("identity", c_uint8 * 32),
        ("rank", c_uint32),
        ("ranks", c_uint32),
        ("columns", c_uint32),
        ("scales", c_uint32),
        ("batch_rows_max", c_uint32),
        ("flags", c_uint32),
        ("read_threads", c_uint32),
        ("reserved", c_uint32),
        ("timeout_ns", c_int64),
        ("connect_timeout_ns", c_int64),
        ("retry_ns", c_int64),
        ("retry_max_ns", c_int64),
        ("heartbeat_ns", c_int64),
        ("loss_ns", c_int64),
        ("spin_ns", c_int64),
    )


class BatchRecord(ctypes.Structure):
    """One layer's part of a lookup."""

    _fields_ = (("ids", c_void_p), ("count", c_uint32), ("layer", c_uint32))


class ResultRecord(ctypes.Structure):
    """How a lookup ended."""

    _fields_ = (
        ("outcome", c_uint32),
        ("reason", c_uint32),
        ("rows", c_uint64),
        ("out_of_shard", c_uint64),
        ("elapsed_ns", c_int64),
    )


class HandoverRecord(ctypes.Structure):
    """The block that a stream and the proxy share; ids follow it."""

    _fields_ = (
        ("request", c_uint32),
        ("rows", c_uint32),
        ("reserved0", c_uint32 * 14),
        ("done", c_uint32),
        ("reserved1", c_uint32 * 15),
    )


class LatencyRecord(ctypes.Structure):
    """Spans of the lookups with one outcome."""

    _fields_ = (
        ("count", c_uint64),
        ("sum_ns", c_uint64),
        ("min_ns", c_uint64),
        ("max_ns", c_uint64),
        ("buckets", c_uint64 * LATENCY_BUCKETS),
    )


_TEXT = (c_char_p, c_size_t)
_LISTEN = (c_void_p, c_uint32, c_char_p, c_uint16, POINTER(c_uint16), *_TEXT)
_ENQUEUE = (c_void_p, POINTER(BatchRecord), c_uint32, c_uint32, POINTER(c_uint64), *_TEXT)
_WAIT = (c_void_p, c_uint64, c_int64, POINTER(ResultRecord), *_TEXT)

Signatures = dict[str, tuple[object, tuple[object, ...]]]

LIBRARY: Signatures = {
    "engram_library_open": (c_int32, (c_char_p, *_TEXT)),
    "engram_feature": (c_int32, (c_char_p, *_TEXT)),
    "engram_memory_allocate": (c_int32, (c_uint64, c_uint32, POINTER(c_void_p), *_TEXT)),
    "engram_memory_seal": (c_int32, (c_void_p, c_uint64, *_TEXT)),
    "engram_memory_free": (None, (c_void_p, c_uint64)),
}
"""Every function that belongs to neither side, but engram_abi_version, which is declared before the others."""

SERVER: Signatures = {
    "engram_server_create": (c_int32, (POINTER(ServerOptions), POINTER(c_void_p), *_TEXT)),
    "engram_server_add_table": (c_int32, (c_void_p, POINTER(TableRecord), *_TEXT)),
    "engram_server_listen": (c_int32, _LISTEN),
    "engram_server_prepare": (c_int32, (c_void_p, *_TEXT)),
    "engram_server_run": (c_int32, (c_void_p, *_TEXT)),
    "engram_server_stop": (None, (c_void_p,)),
    "engram_server_counters": (None, (c_void_p, POINTER(c_uint64))),
    "engram_server_counter_name": (c_char_p, (c_uint32,)),
    "engram_server_free": (None, (c_void_p,)),
}

CLIENT: Signatures = {
    "engram_client_create": (c_int32, (POINTER(ClientOptions), POINTER(c_void_p), *_TEXT)),
    "engram_client_add_staging": (c_int32, (c_void_p, c_void_p, c_size_t, POINTER(c_uint32), *_TEXT)),
    "engram_staging_bytes": (c_size_t, (POINTER(c_uint32), c_uint32, c_uint32, c_uint32)),
    "engram_client_enqueue": (c_int32, _ENQUEUE),
    "engram_client_wait": (c_int32, _WAIT),
    "engram_client_attach": (c_int32, (c_void_p, c_void_p, c_uint32, c_uint32, c_uint32, *_TEXT)),
    "engram_client_connected": (c_int32, (c_void_p, *_TEXT)),
    "engram_client_shards": (c_int32, (c_void_p, *_TEXT)),
    "engram_client_counters": (None, (c_void_p, POINTER(c_uint64))),
    "engram_client_counter_name": (c_char_p, (c_uint32,)),
    "engram_client_latency": (c_int32, (c_void_p, c_uint32, POINTER(LatencyRecord))),
    "engram_latency_bucket_ns": (c_uint64, (c_uint32,)),
    "engram_reason_name": (c_char_p, (c_uint32,)),
    "engram_client_close": (None, (c_void_p,)),
    "engram_client_free": (None, (c_void_p,)),
}
