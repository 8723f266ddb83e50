"""Whole frames, and what joins them from the bytes of a stream.

What a single frame may hold is judged here; what may come when, is not.
"""

from dataclasses import dataclass

from rdma.second_opinion.records import (
    HEADER_VERSION,
    MAGIC,
    PLACED,
    SLOTS,
    TEXT_BYTES_MAX,
    FrameHeader,
    PlacementRecord,
    Type,
    is_printable,
    require,
)


@dataclass(frozen=True)
class Frame:
    """One frame, whole."""

    type: Type
    sequence: int = 0
    body: bytes = b""
    flags: int = 0

    @property
    def slot(self) -> int:
        return self.sequence % SLOTS

    def pack(self) -> bytes:
        header = FrameHeader(MAGIC, HEADER_VERSION, self.type, self.flags, self.sequence, len(self.body))
        return header.pack() + self.body

    def text(self) -> str:
        """The text of a close frame."""
        return printable(self.body)

    def placement(self) -> tuple[PlacementRecord | None, bytes]:
        """Of a request: where the reply goes, and the service's bytes.  Raises WireFaultError."""
        if not self.flags & PLACED:
            return None, self.body
        size = PlacementRecord.size()
        return PlacementRecord.unpack(self.body[:size]), self.body[size:]


def printable(text: bytes) -> str:
    """Raises WireFaultError: a text of ours is never one that its receiver must repair."""
    require(len(text) <= TEXT_BYTES_MAX and is_printable(text), f"text is {text!r}")
    return text.decode("ascii")


class FrameJoiner:
    """Makes frames of the bytes of a stream, in any pieces.

    sender: what types the other end may send.  body_bytes_max: of the service's bytes, once it is agreed on.
    """

    def __init__(self, sender: set[Type]) -> None:
        self.body_bytes_max = 1 << 12
        self.sender = sender
        self._data = bytearray()

    @property
    def halfway(self) -> bool:
        return bool(self._data)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.  Raises WireFaultError."""
        self._data += data
        made = []
        while (frame := self._next()) is not None:
            made.append(frame)
        return made

    def feed_piece(self, data: bytes, what: str) -> list[Frame]:
        """The same for a wire whose pieces hold bytes of one frame only, its header in the first."""
        if not self.halfway:
            require(len(data) >= FrameHeader.size(), f"{what} begins with a part of a header")
        frames = self.feed(data)
        require(len(frames) <= 1 and not (frames and self.halfway), f"{what} has two frames")
        return frames

    def header(self) -> FrameHeader | None:
        """Of the frame that is under way, once it is here.  Raises WireFaultError."""
        if len(self._data) < FrameHeader.size():
            return None
        header = FrameHeader.unpack(bytes(self._data[: FrameHeader.size()]))
        require(header.type in self.sender, f"a frame of type {header.type} comes from the wrong end")
        extra = PlacementRecord.size() if header.flags & PLACED else 0
        require(
            extra <= header.body_bytes <= self.body_bytes_max + extra,
            f"body_bytes is {header.body_bytes} on a frame of type {header.type}",
        )
        return header

    def _next(self) -> Frame | None:
        header = self.header()
        if header is None or len(self._data) < FrameHeader.size() + header.body_bytes:
            return None
        end = FrameHeader.size() + header.body_bytes
        body = bytes(self._data[FrameHeader.size() : end])
        del self._data[:end]
        return Frame(Type(header.type), header.sequence, body, header.flags)
