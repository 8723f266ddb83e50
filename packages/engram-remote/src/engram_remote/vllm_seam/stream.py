"""Words of pinned memory, written and waited for by the current CUDA stream: the hand-over of a captured graph.

Owns the choice of how: memory operations of the stream (cuStreamWriteValue32, cuStreamWaitValue32), which are nodes
of a graph when captured, or, where they do not work, a spinning kernel.  Either is tried once under a deadline, because
a wait that nothing releases would park the engine for ever.  No attribute of the device is asked: the only one that
there is speaks of the first version of these calls, and newer drivers deny it.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.memory import SharedMemory

WAIT_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
WRITE_DEFAULT = 0  # CU_STREAM_WRITE_VALUE_DEFAULT: what the stream wrote before is visible first
REQUEST_BYTE, DONE_BYTE = 0, 64
"""Of a hand-over block, as engram.h lays it out (engram_handover)."""
TRIAL_S = 5.0
"""Longest that a trial waits; one takes some microseconds."""


class Exchange(Protocol):
    """On the current stream: request = 1, wait for done == 1, done = 0, in a hand-over block.  name: for the log."""

    name: str

    def __call__(self, block: SharedMemory) -> None: ...


class MemoryOperations:
    """Through the driver's stream memory operations.  Raises SeamError naming the call and its error."""

    name = "stream memory operations"

    def __init__(self) -> None:
        driver = driver_library()
        self._write = driver.cuStreamWriteValue32_v2
        self._wait = driver.cuStreamWaitValue32_v2
        self._pointer = driver.cuMemHostGetDevicePointer_v2
        for call in (self._write, self._wait):
            call.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
            call.restype = ctypes.c_int
        self._pointer.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p, ctypes.c_uint)
        self._pointer.restype = ctypes.c_int
        self._known: dict[int, int] = {}

    def __call__(self, block: SharedMemory) -> None:
        stream, base = torch.cuda.current_stream().cuda_stream, self._on_the_device(block.address)
        _check("cuStreamWriteValue32", self._write(stream, base + REQUEST_BYTE, 1, WRITE_DEFAULT))
        _check("cuStreamWaitValue32", self._wait(stream, base + DONE_BYTE, 1, WAIT_EQUAL))
        _check("cuStreamWriteValue32", self._write(stream, base + DONE_BYTE, 0, WRITE_DEFAULT))

    def _on_the_device(self, address: int) -> int:
        """The device's address of pinned memory, which is the host's own on most hosts and not on all."""
        if address not in self._known:
            found = ctypes.c_uint64()
            _check("cuMemHostGetDevicePointer", self._pointer(ctypes.byref(found), address, 0))
            self._known[address] = found.value
        return self._known[address]


class SpinKernel:
    """Through a kernel of one warp, which keeps a multiprocessor's slot busy while it waits."""

    name = "a spinning kernel"

    def __init__(self) -> None:
        self._loaded = False

    def __call__(self, block: SharedMemory) -> None:
        if not self._loaded:
            self._load()
        self._launch(block)

    def _load(self) -> None:
        """Have the driver load both kernels: it does so no more once a stream is parked, and would wait for itself."""
        ready = SharedMemory(4096, pinned=True)
        ready.tensor.numpy().view("<u4")[DONE_BYTE // 4] = 1
        self._launch(ready)
        torch.cuda.current_stream().synchronize()
        self._loaded = True

    def _launch(self, block: SharedMemory) -> None:
        from engram_remote.vllm_seam.kernels import rearm, request_and_wait

        words = block.words()
        request, done = words[REQUEST_BYTE // 4 :], words[DONE_BYTE // 4 :]
        request_and_wait[(1,)](request, done, num_warps=1)
        rearm[(1,)](done, num_warps=1)


def choose_exchange(device: Any) -> Exchange | None:
    """The exchange that works on this device, tried once; None where there are no streams.  Raises SeamError where
    none works.
    """
    if device.type != "cuda":
        return None
    if hasattr(driver_library(), "cuStreamWriteValue32_v2"):
        operations = MemoryOperations()
        if works(operations):
            return operations
    spinning = SpinKernel()
    if works(spinning):
        return spinning
    raise SeamError("neither stream memory operations nor a spinning kernel hand words over on this device")


def works(exchange: Exchange) -> bool:
    """Whether one hand-over on a stream of its own gets through.  The stream is released in any case.

    Raises SeamError where it stays parked although its word was set: nothing on this device can go on then.
    """
    memory = SharedMemory(4096, pinned=True)
    words = memory.tensor.numpy().view("<u4")
    stream = torch.cuda.Stream()
    try:
        with torch.cuda.stream(stream):
            exchange(memory)
        asked = _until(lambda: words[REQUEST_BYTE // 4] == 1)
    except (SeamError, RuntimeError):
        return False
    finally:
        words[DONE_BYTE // 4] = 1
    if not _until(stream.query):
        raise SeamError(f"a stream that waits through {exchange.name} was not released by its word")
    return bool(asked and words[DONE_BYTE // 4] == 0)


def driver_library() -> Any:
    """libcuda, which torch has loaded.  Raises SeamError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise SeamError(f"the CUDA driver's library could not be loaded: {error}") from error


def _until(condition: Callable[[], Any]) -> bool:
    """Looks until the condition holds or the trial's time is over; nothing here can be waited for otherwise."""
    deadline = time.monotonic() + TRIAL_S
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def _check(call: str, result: int) -> None:
    if result != 0:
        raise SeamError(f"{call} failed with CUDA error {result}")
