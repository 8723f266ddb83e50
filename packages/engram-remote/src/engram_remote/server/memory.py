"""Memory that tables lie in, as libengram allocates it: zeroed, in huge pages, spread over NUMA nodes."""

import ctypes

from engram_remote import native
from engram_remote.abi import MemoryFlag


class TableMemory:
    """`size` bytes at `address`, page-aligned.  huge: explicit huge pages, or EngramError with need and have.

    text: what the kernel gave.  Use as a context manager, or call `close`; views must be gone before.
    """

    def __init__(self, size: int, *, huge: bool = False) -> None:
        self._library = native.loaded()
        base = ctypes.c_void_p()
        flags = MemoryFlag.HUGE if huge else MemoryFlag(0)
        self.text = native.check(
            lambda *room: self._library.engram_memory_allocate(size, flags, ctypes.byref(base), *room)
        )
        assert base.value is not None
        self.size = size
        self._base: int | None = base.value

    @property
    def address(self) -> int:
        """Where it begins.  Raises ValueError once it was given back."""
        if self._base is None:
            raise ValueError("table memory: was given back")
        return self._base

    def view(self) -> memoryview:
        """All bytes, to be written to before `seal`; no copy."""
        return memoryview((ctypes.c_uint8 * self.size).from_address(self.address)).cast("B")

    def seal(self) -> None:
        """From now on a write ends the process rather than changing a row.  Raises EngramError."""
        native.check(lambda *room: self._library.engram_memory_seal(self.address, self.size, *room))

    def close(self) -> None:
        """Give the memory back; nothing may read it any more."""
        if self._base is not None:
            self._library.engram_memory_free(self._base, self.size)
            self._base = None

    def __enter__(self) -> "TableMemory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
