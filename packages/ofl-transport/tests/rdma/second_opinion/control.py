"""The control socket: whole frames over a stream socket, each waited for with a limit."""

import select
import socket
import time

from rdma.second_opinion.frames import Frame, FrameJoiner
from rdma.second_opinion.records import Type, require


class EndedError(Exception):
    """The other end is gone, or said that it goes.  text: of its close frame, else empty."""

    def __init__(self, what: str, text: str = "") -> None:
        super().__init__(f"{what}: {text}" if text else what)
        self.text = text


class FrameSocket:
    """One connected stream socket.  sender: what types the other end may send."""

    def __init__(self, connected: socket.socket, sender: set[Type], patience_s: float) -> None:
        self.socket = connected
        self.joiner = FrameJoiner(sender)
        self.patience_s = patience_s
        self.descriptors: list[int] = []
        """That came with the frames; whoever uses them closes them."""
        self._ready: list[Frame] = []
        connected.setblocking(False)

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, *frames: Frame) -> None:
        """Raises EndedError, TimeoutError."""
        self.send_bytes(b"".join(frame.pack() for frame in frames))

    def send_with(self, frame: Frame, descriptors: list[int]) -> None:
        """A frame that passes descriptors, at a time when the socket has room for it."""
        data = frame.pack()
        assert socket.send_fds(self.socket, [data], descriptors) == len(data)

    def send_bytes(self, data: bytes) -> None:
        """Anything, also what is no frame.  What comes in meanwhile is kept: neither end may wait for the other."""
        limit = time.monotonic() + self.patience_s
        rest = memoryview(data)
        while rest:
            _, writable, _ = select.select([self], [self], [], max(0.0, limit - time.monotonic()))
            if writable:
                try:
                    rest = rest[self.socket.send(rest) :]
                except ConnectionError as error:
                    raise EndedError(f"the socket ended: {error}") from error
            elif time.monotonic() >= limit:
                raise TimeoutError(f"{len(rest)} bytes were not sent in {self.patience_s} s")
            else:
                self._ready += self._read()

    def poll(self) -> list[Frame]:
        """The frames that are here.  Raises EndedError once there are none and the socket has ended."""
        frames, self._ready = self._ready, []
        return frames or self._read()

    def receive(self) -> Frame:
        """The next frame.  Raises EndedError, TimeoutError."""
        limit = time.monotonic() + self.patience_s
        while not self._ready:
            readable, _, _ = select.select([self], [], [], max(0.0, limit - time.monotonic()))
            if readable:
                self._ready += self._read()
            elif time.monotonic() >= limit:
                raise TimeoutError(f"no frame came in {self.patience_s} s")
        return self._ready.pop(0)

    def expect(self, kind: Type) -> Frame:
        """The next frame, which must be of this type.  A refusal raises RefusedByPeerError where it is none."""
        frame = self.receive()
        require(frame.type == kind, f"a frame of type {frame.type.name}, not {kind.name}")
        return frame

    def close(self) -> None:
        self.socket.close()

    def _read(self) -> list[Frame]:
        try:
            data = self._receive()
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise EndedError(f"the socket ended: {error}") from error
        if not data:
            raise EndedError("the socket ended")
        return self.joiner.feed(data)

    def _receive(self) -> bytes:
        if self.socket.family != socket.AF_UNIX:
            return self.socket.recv(1 << 16)
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, 4)
        self.descriptors += descriptors
        return data
