"""How much of a file the page cache holds: what a benchmark of disk reads must know and say."""

import ctypes
import mmap
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def resident_share(path: Path) -> float:
    """Share of the file's pages that are in the page cache, 0 to 1, by mincore(2).  Raises OSError."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view,
    ):
        pages = -(-len(view) // mmap.PAGESIZE)
        flags = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(view)
        try:
            if _libc.mincore(ctypes.addressof(start), len(view), flags):
                number = ctypes.get_errno()
                raise OSError(number, "mincore failed", str(path))
        finally:
            del start  # or the map could not be closed
        return sum(flag & 1 for flag in flags) / pages
