"""Python buffers as the library takes them, and the library's memory as Python takes it.  Sends nothing."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_void_p

from ofl.abi import PARTS_MAX, Part
from ofl.contract.records import Buffer


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, up to what we read."""

    _fields_ = (
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    )


# The buffer protocol is the only way to the address of a read-only memoryview without copying it.
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (POINTER(_PyBuffer),)
_release_buffer.restype = None
_bytearray_from = ctypes.pythonapi.PyByteArray_FromStringAndSize
_bytearray_from.argtypes = (c_void_p, ctypes.c_ssize_t)
_bytearray_from.restype = ctypes.py_object


def copy_bytes(address: int | None, size: int) -> bytearray:
    """A bytearray of what lies at an address: one copy."""
    if address is None or size == 0:
        return bytearray()
    copied: bytearray = _bytearray_from(address, size)
    return copied


_JOINED_MAX = 4096
"""Bytes up to which copying the parts together is cheaper than pinning each of them."""


def joined(buffers: Sequence[Buffer]) -> bytes | None:
    """A small message as one bytes object, or None if its parts should be pinned instead."""
    if len(buffers) == 1 and type(buffers[0]) is bytes:
        return buffers[0]
    return b"".join(buffers) if sum(map(len, buffers)) <= _JOINED_MAX and len(buffers) <= PARTS_MAX else None


class Parts:
    """Python buffers as an array of parts, pinned while the `with` block runs.  Nothing is copied."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.count = len(buffers)
        self.array = (Part * self.count)()
        self._buffers = buffers
        self._pinned: list[_PyBuffer] = []

    def __enter__(self) -> "Parts":
        try:
            for part, buffer in zip(self.array, self._buffers, strict=True):
                if type(buffer) is bytes:
                    part.base = buffer
                    part.bytes = len(buffer)
                else:
                    self._pin(part, buffer)
        except BaseException:
            self._release()
            raise
        return self

    def _pin(self, part: Part, buffer: Buffer) -> None:
        view = _PyBuffer()
        _get_buffer(buffer, view, 0)  # raises BufferError or TypeError itself
        self._pinned.append(view)
        part.base = view.buf
        part.bytes = view.len

    def _release(self) -> None:
        for view in self._pinned:
            _release_buffer(view)
        self._pinned.clear()

    def __exit__(self, *exception: object) -> None:
        self._release()
