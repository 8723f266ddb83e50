"""Memory that a program shares with the transport: replies are placed into it, and what lies in it is sent uncopied.

Owns the library's handle of a buffer and how long its memory lives.  Never decides when a buffer may be used again:
`Client.settled` and `Server.idle` say that.

The memory lives as long as anything can reach it: the `Buffer`, a view of it, a call under way, a quarantine.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from ofl import abi, arguments, native
from ofl.errors import ClosedError


class Handle:
    """The library's buffer; freed with the last reference.  pinned: what keeps memory of the caller's in its place."""

    def __init__(self, base: int | None, nbytes: int, bounce: bool, pinned: object) -> None:
        self.pointer = ctypes.c_void_p()
        self.pinned = pinned
        self._library = native.loaded()
        flags = abi.BUFFER_BOUNCE if bounce else 0
        status, text = native.text_of(
            lambda *room: self._library.ofl_buffer_create(base, nbytes, flags, self.pointer, *room)
        )
        if status == native.INVALID:
            raise ValueError(text)
        native.raise_for(status, text)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.ofl_buffer_free(self.pointer)


class Buffer:
    """Contiguous memory, to be registered with its connection (`Client.register`) or server (`Server.register`) first.

    Any thread may use it; one buffer may serve several clients and servers.  nbytes: at least 1.  bounce: peers write
    into a twin of the library's, and `Client.wait` copies; for memory that must not change before a reply is waited
    for, at the price of one copy.

    Raises ValueError for a size, TransportError where there is no memory.
    """

    def __init__(self, nbytes: int, *, bounce: bool = False) -> None:
        if not 1 <= nbytes < 1 << 63:
            raise ValueError(f"a buffer must have at least one byte and less than 2**63, not {nbytes}")
        handle = Handle(None, nbytes, bounce, None)
        base = handle._library.ofl_buffer_base(handle.pointer)
        owner: Any = (ctypes.c_ubyte * nbytes).from_address(base)
        owner.handle = handle  # a view keeps its owner, and so the memory
        self._own(handle, memoryview(owner).cast("B"), bounce)

    @classmethod
    def of(cls, memory: Any, *, bounce: bool = False) -> "Buffer":
        """A buffer of memory that is there already: a bytearray, an mmap, an array; pinned, not copied.

        It cannot be resized while anything can reach it.  Raises TypeError where it is no writable C-contiguous buffer,
        ValueError where it is empty.
        """
        view = memoryview(memory)
        if view.nbytes == 0:
            raise ValueError("a buffer must have at least one byte, not 0")
        view = view.cast("B")
        owner = (ctypes.c_ubyte * view.nbytes).from_buffer(view)
        made = cls.__new__(cls)
        made._own(Handle(ctypes.addressof(owner), view.nbytes, bounce, owner), view, bounce)
        return made

    def _own(self, handle: Handle, view: memoryview, bounce: bool) -> None:
        self._handle: Handle | None = handle
        self._view = view
        self.nbytes = view.nbytes
        self.bounce = bounce

    @property
    def handle(self) -> Handle:
        """For the transport.  Raises ClosedError."""
        if self._handle is None:
            raise ClosedError("the buffer was closed")
        return self._handle

    @property
    def view(self) -> memoryview:
        """The whole of it, writable, of format 'B'.  Raises ClosedError."""
        if self._handle is None:
            raise ClosedError("the buffer was closed")
        return self._view

    def range(self, offset: int = 0, nbytes: int | None = None) -> "Range":
        """A stretch of it for a reply; by default from offset to the end.  Raises ValueError out of bounds."""
        size = self.nbytes - offset if nbytes is None else nbytes
        if offset < 0 or size < 1 or offset + size > self.nbytes:
            raise ValueError(f"{size} bytes at {offset} do not lie in a buffer of {self.nbytes}")
        return Range(self, offset, size)

    def close(self) -> None:
        """Give the memory back: now, or once no view and no call under way can reach it.  Twice is harmless."""
        self._handle = None
        self._view = memoryview(b"")

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True)
class Range:
    """Where one reply goes: the largest that fits has nbytes.  `Buffer.range` makes one that lies in its buffer.

    Raises ValueError for numbers that the library cannot be told; it refuses those that are out of bounds.
    """

    buffer: Buffer
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        arguments.unsigned("offset", self.offset, 63)
        arguments.unsigned("nbytes", self.nbytes, 63)

    @property
    def view(self) -> memoryview:
        """Its bytes.  Raises ClosedError."""
        return self.buffer.view[self.offset : self.offset + self.nbytes]
