"""Memory that is shared with the library lives as long as anything can reach it, and no longer."""

import array
import ctypes
import gc
import mmap
import re
import weakref
from pathlib import Path

import pytest
from ofl import abi, buffers, native
from ofl.bench import figures
from ofl.errors import ClosedError, TransportError
from ofl.memory import Buffer, Handle, Range
from transport_harness import Harness, take
from transport_times import soon

HEADER = Path(__file__).parents[1] / "cpp" / "include" / "ofl.h"


def handle_of(buffer: Buffer) -> "weakref.ref[Handle]":
    return weakref.ref(buffer.handle)


def mapped_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmSize:"))


@pytest.mark.parametrize("bounce", [False, True])
def test_a_buffer_is_writable_zeroed_memory_of_its_size(bounce: bool) -> None:
    with Buffer(10_000, bounce=bounce) as buffer:
        assert (buffer.nbytes, buffer.bounce) == (10_000, bounce)
        assert buffer.view.format == "B"
        assert buffer.view == bytes(10_000)
        buffer.view[9_999] = 7
        part = buffer.range(9_990)
        assert (part.offset, part.nbytes) == (9_990, 10)
        assert part.view == bytes(9) + b"\x07"


def test_a_closed_buffer_gives_nothing_more() -> None:
    buffer = Buffer(100)
    part = buffer.range()
    buffer.close()
    buffer.close()
    for use in (lambda: buffer.view, lambda: buffer.handle, lambda: part.view):
        with pytest.raises(ClosedError, match="the buffer was closed"):
            use()


def test_the_memory_goes_with_the_buffer() -> None:
    size = 256 << 20
    before = mapped_kib()
    buffer = Buffer(size)
    assert mapped_kib() - before >= size >> 10
    buffer.close()
    assert mapped_kib() - before < size >> 11


def test_a_view_keeps_the_memory_of_a_closed_buffer() -> None:
    buffer = Buffer(1 << 20)
    handle, view = handle_of(buffer), buffer.view
    view[:5] = b"still"
    buffer.close()
    part = view[:5]
    del view
    gc.collect()
    assert handle() is not None
    assert bytes(part) == b"still"
    del part
    assert handle() is None


@pytest.mark.parametrize(
    "memory",
    [
        bytearray(64),
        array.array("d", range(8)),
        mmap.mmap(-1, 64),
        memoryview(bytearray(80))[8:72],
        (ctypes.c_uint32 * 16)(),
    ],
    ids=["bytearray", "array", "mmap", "slice", "ctypes"],
)
def test_memory_of_the_callers_is_shared_and_not_copied(memory: bytearray) -> None:
    with Buffer.of(memory) as buffer:
        assert buffer.nbytes == 64
        buffer.view[63] = 0xEE
        seen = memoryview(memory).cast("B")
        assert seen[63] == 0xEE
        seen.release()


def test_memory_of_the_callers_cannot_be_resized_while_the_buffer_is_open() -> None:
    memory = bytearray(64)
    buffer = Buffer.of(memory)
    with pytest.raises(BufferError):
        memory.append(1)
    buffer.close()
    gc.collect()
    memory.append(1)


@pytest.mark.parametrize(
    ("memory", "error"),
    [
        (b"read-only", TypeError),
        ("text", TypeError),
        (memoryview(bytearray(64))[::2], TypeError),
        (memoryview(bytearray(64))[::-1], TypeError),
        (bytearray(), ValueError),
    ],
)
def test_memory_that_cannot_be_shared_is_refused(memory: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        Buffer.of(memory)


@pytest.mark.parametrize("size", [0, -1, 1 << 63, 1 << 70])
def test_a_size_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        Buffer(size)


def test_more_than_there_is_memory_for_is_said(harness: Harness) -> None:
    with pytest.raises(TransportError, match="cannot allocate a buffer of 4611686018427387904 bytes"):
        Buffer(1 << 62)


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 5), (0, 0), (0, 101), (100, 1), (60, 41), (101, None)])
def test_a_range_outside_of_its_buffer_is_refused(offset: int, nbytes: int | None) -> None:
    with Buffer(100) as buffer, pytest.raises(ValueError, match="do not lie in a buffer of 100"):
        buffer.range(offset, nbytes)


@pytest.mark.parametrize("bounce", [False, True])
def test_the_library_takes_no_range_past_the_size_that_was_asked_for(harness: Harness, bounce: bool) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    buffer = Buffer(100, bounce=bounce)  # on a page of its own, whose rest is nobody's
    client.register(buffer)
    for offset, nbytes in ((0, 101), (99, 2), (100, 1), (0, 4096)):
        with pytest.raises(ValueError, match="the range is not inside it"):
            client.submit([b"x"], deadline_ns=soon(), into=Range(buffer, offset, nbytes))
    sequence = client.submit([b"x"], deadline_ns=soon(), into=Range(buffer, 0, 100))
    assert take(server).max_reply_bytes == 100
    client.cancel(sequence)


def test_a_call_keeps_its_memory_though_the_buffer_was_closed(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    memory = bytearray(5_000)
    buffer = Buffer.of(memory)
    handle = handle_of(buffer)
    client.register(buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(1_000))
    buffer.close()
    del buffer
    gc.collect()
    with pytest.raises(BufferError):
        memory.append(1)
    request = take(server)
    assert request.max_reply_bytes == 4_000
    assert server.reply(request.connection, request.sequence, [b"r" * 4_000])
    reply = client.wait(sequence, deadline_ns=soon())
    assert isinstance(reply, memoryview)
    assert reply == memory[1_000:] == b"r" * 4_000
    assert handle() is None


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_call_that_ended_gives_its_memory_back(harness: Harness, end: str) -> None:
    _, endpoint = harness.listening()
    client = harness.client(endpoint)
    buffer = Buffer(1_000)
    handle = handle_of(buffer)
    client.register(buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    buffer.close()
    assert handle() is not None
    if end == "cancel":
        assert client.cancel(sequence) or client.settled(sequence, deadline_ns=soon())
    else:
        client.close()
        assert client.settled(sequence, deadline_ns=0)
    assert handle() is None


class Interrupted:
    """The library of a client whose submit is interrupted once it has sent all, over a wire that quarantines."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def ofl_client_submit(self, *arguments: object) -> int:
        assert self._library.ofl_client_submit(*arguments) == native.OK
        raise KeyboardInterrupt

    def ofl_client_cancel(self, *arguments: object) -> int:
        assert self._library.ofl_client_cancel(*arguments) == native.OK
        return native.QUARANTINED


def test_an_interrupt_right_after_a_submit_leaves_its_memory_where_the_peer_may_write(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, endpoint = harness.listening()
    client = harness.client(endpoint)
    memory = bytearray(1000)
    with Buffer.of(memory) as buffer:
        client.register(buffer)
        with monkeypatch.context() as patched:
            patched.setattr(client, "_library", Interrupted(native.loaded()))
            with pytest.raises(KeyboardInterrupt):
                client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    with pytest.raises(BufferError):
        memory.append(0)
    assert client.settled(1, deadline_ns=soon())
    memory.append(0)


class Late:
    """The library of a client whose wire quarantines and whose peer answers a cancel once a later one is under way."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._cancelled: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def ofl_client_cancel(self, handle: ctypes.c_void_p, sequence: int) -> int:
        assert self._library.ofl_client_cancel(handle, sequence) == native.OK
        self._cancelled.append(sequence)
        return native.QUARANTINED

    def ofl_client_settled(self, handle: ctypes.c_void_p, sequence: int, deadline_ns: int) -> int:
        return native.DEADLINE if sequence == self._cancelled[-1] else native.OK


def test_cancelled_calls_that_nobody_asks_about_again_keep_little_memory(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, endpoint = harness.listening()
    client = harness.client(endpoint)
    monkeypatch.setattr(client, "_library", Late(native.loaded()))
    monkeypatch.setattr(client, "max_calls", 4)
    handles = []
    for _ in range(100):
        buffer = Buffer(100)
        handles.append(handle_of(buffer))
        client.register(buffer)
        sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
        buffer.close()
        assert not client.cancel(sequence)
        assert handles[-1]() is not None
    assert sum(handle() is not None for handle in handles) <= 2 * 4


def test_a_call_that_is_open_is_not_settled_and_one_without_memory_is(harness: Harness) -> None:
    _, endpoint = harness.listening()
    client = harness.client(endpoint)
    buffer = Buffer(1_000)
    client.register(buffer)
    placed = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    plain = client.submit([b"x"], deadline_ns=soon())
    with pytest.raises(ValueError, match=f"call {placed} is open"):
        client.settled(placed, deadline_ns=soon())
    assert client.settled(plain, deadline_ns=0)
    assert client.cancel(plain)


def test_a_server_keeps_what_was_lent_until_it_is_idle_or_closed(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    kept, forgotten = Buffer(100_000), Buffer(100_000)
    handles = handle_of(kept), handle_of(forgotten)
    for buffer in (kept, forgotten):
        server.register(buffer)
        buffer.view[:] = b"l" * 100_000
        sequence = client.submit([b"x"], deadline_ns=soon())
        request = take(server)
        assert server.reply(request.connection, request.sequence, [buffer.view], lent=buffer)
        assert client.wait(sequence, deadline_ns=soon()) == b"l" * 100_000
    assert server.idle(kept, deadline_ns=soon())
    kept.close()
    forgotten.close()
    gc.collect()
    assert [handle() is not None for handle in handles] == [False, True]
    server.close()
    assert handles[1]() is None


def test_small_parts_are_joined_and_large_ones_are_pinned_in_place() -> None:
    assert buffers.joined([b"a", bytearray(b"b"), memoryview(b"c")]) == b"abc"
    large = bytearray(5_000)
    assert buffers.joined([large]) is None
    with buffers.Parts([b"whole", large]) as parts:
        assert parts.count == 2
        with pytest.raises(BufferError):
            large.append(1)
    large.append(1)


def test_ten_thousand_placed_calls_leave_nothing_behind(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    with Buffer(4_096) as buffer:
        client.register(buffer)
        for number in range(10_000):
            body = number.to_bytes(8, "little")
            sequence = client.submit([body], deadline_ns=soon(), into=buffer.range(8 * (number % 512), 8))
            if number % 3 == 0:
                client.cancel(sequence)
                assert client.settled(sequence, deadline_ns=soon())
            else:
                assert client.wait(sequence, deadline_ns=soon()) == body
        assert client._memory == {}


# --- the declarations ---


def structs() -> dict[str, list[str]]:
    """Fields of every struct of the header that has a body, in order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    found = re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\d+\])?;", body) for name, body in found}


MIRRORS = {
    "ofl_part": abi.Part,
    "ofl_capabilities": abi.Capabilities,
    "ofl_client_options": abi.ClientOptions,
    "ofl_peer": abi.PeerRecord,
    "ofl_call_options": abi.CallOptions,
    "ofl_server_options": abi.ServerOptions,
    "ofl_event": abi.EventRecord,
}


def test_every_struct_of_the_header_has_its_mirror() -> None:
    assert structs().keys() == MIRRORS.keys()


@pytest.mark.parametrize("name", MIRRORS)
def test_a_mirror_has_the_fields_of_its_struct_without_holes(name: str) -> None:
    mirror = MIRRORS[name]
    assert [field[0] for field in mirror._fields_] == structs()[name]
    assert sum(getattr(mirror, field[0]).size for field in mirror._fields_) == ctypes.sizeof(mirror)


def test_every_function_of_the_header_is_declared_with_as_many_arguments() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    found = re.findall(r"OFL_EXPORT [\w *]+?\b(ofl_\w+)\(([^)]*)\)", text)
    counts = {
        name: 0 if arguments.strip() == "void" else arguments.count(",") + 1 for name, arguments in found
    }
    assert counts.pop("ofl_abi_version") == 0
    assert {name: len(arguments) for name, (_, arguments) in abi.SIGNATURES.items()} == counts


def test_the_constants_of_the_header_are_ours() -> None:
    text = HEADER.read_text()
    assert f"#define OFL_ABI_VERSION {abi.ABI_VERSION}u" in text
    assert f"OFL_COUNTERS = {abi.COUNTERS} " in text
    assert f"OFL_BUFFER_BOUNCE = {abi.BUFFER_BOUNCE} " in text
    for name, value in re.findall(r"OFL_(TCP|RDMA|SHM) = (\d)", text):
        assert abi.Transport[name] == int(value)
    block = re.search(r"typedef enum ofl_status \{(.*?)\} ofl_status;", text, re.DOTALL)
    assert block is not None
    for name, value in re.findall(r"OFL_(\w+) = (\d+)", block[1]):
        assert getattr(native, name) == int(value)


def test_the_modes_of_a_measurement_are_the_headers() -> None:
    block = re.search(r"typedef enum ofl_bench_mode \{(.*?)\} ofl_bench_mode;", HEADER.read_text(), re.DOTALL)
    assert block is not None
    ours = {mode.name: int(mode) for mode in figures.Mode} | {"CPU_TIME": figures.CPU_TIME}
    assert {name: int(value) for name, value in re.findall(r"OFL_BENCH_(\w+) = (\d+)", block[1])} == ours
