"""Memory that GPU, reader and network card share: page-aligned, and pinned where there is a GPU."""

import mmap
import weakref
from typing import Any

import numpy as np
import torch

from engram_remote.vllm_seam.errors import SeamError


class SharedMemory:
    """Zeroed anonymous pages of this process.

    tensor: u8 [size], on the CPU; with pinned=True registered with CUDA, so that kernels and stream operations of any
    device take its address.  Registered memory and not CUDA's own, because RDMA devices register anonymous pages too.
    """

    def __init__(self, size: int, *, pinned: bool) -> None:
        mapping = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        owner = np.frombuffer(mapping, dtype=np.uint8)
        self.size = size
        self.address = int(owner.ctypes.data)
        self.tensor = torch.from_numpy(owner)
        if pinned:
            _register(self.address, len(mapping))
            # The tensor's storage keeps the array, the array keeps the pages: they are unregistered last.
            finalizer = weakref.finalize(owner, _unregister, mapping, self.address)
            finalizer.atexit = False

    def words(self) -> Any:
        """The same bytes as i32 [size / 4]."""
        return self.tensor[: self.size // 4 * 4].view(torch.int32)


def _register(address: int, size: int) -> None:
    result = torch.cuda.cudart().cudaHostRegister(address, size, 0)
    if result.value != 0:
        raise SeamError(
            f"{size} bytes of memory could not be pinned for the GPU: cudaHostRegister says {result}"
        )


def _unregister(mapping: mmap.mmap, address: int) -> None:
    del mapping  # kept until here, past the last view of it
    torch.cuda.cudart().cudaHostUnregister(address)
