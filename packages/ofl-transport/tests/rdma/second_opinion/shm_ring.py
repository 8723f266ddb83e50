"""One ring of records: its writer and its reader.

Pure but for the memory that they are given: whoever uses them wakes and sleeps.
"""

from rdma.second_opinion.records import require

LINE = 64
MARK_BYTES = 8
RECORD_BYTES_MAX = 32768
"""A writer's own choice: how much a reader need not wait for."""


def lines(nbytes: int) -> int:
    """What a record of so many bytes takes of the ring."""
    return -(-(MARK_BYTES + nbytes) // LINE) * LINE


class RingWriter:
    def __init__(self, ring: memoryview) -> None:
        self.bytes, self.words = ring, ring.cast("Q")
        self.position = 0
        self.taken = 0
        """The reader's, as it was last looked at."""

    def saw_taken(self, taken: int) -> None:
        """Raises WireFaultError."""
        require(
            self.taken <= taken <= self.position, f"taken is {taken}, after {self.taken} of {self.position}"
        )
        self.taken = taken

    def write(self, data: memoryview) -> int:
        """Publish one record of the beginning of data, as much as there is room for.  Returns its bytes, or 0."""
        size, place = len(self.bytes), self.position % len(self.bytes)
        free = size - (self.position - self.taken) - LINE  # a line for the next mark
        count = min(len(data), RECORD_BYTES_MAX, size - place - MARK_BYTES, free // LINE * LINE - MARK_BYTES)
        if count <= 0:
            return 0
        start = place + MARK_BYTES
        self.bytes[start : start + count] = data[:count]
        after = self.position + lines(count)
        self.words[after % size // 8] = 0
        self.words[place // 8] = self.mark(count)
        self.position = after
        return count

    def mark(self, count: int) -> int:
        """Of a record of so many bytes here."""
        return self.position // LINE % (1 << 32) << 32 | count

    def close(self) -> None:
        self.words.release()
        self.bytes.release()


class RingReader:
    def __init__(self, ring: memoryview) -> None:
        self.bytes, self.words = ring, ring.cast("Q")
        self.position = 0

    @property
    def ready(self) -> bool:
        return self.words[self.position % len(self.bytes) // 8] != 0

    def read(self) -> bytes:
        """The next record, which is there.  Raises WireFaultError."""
        place = self.position % len(self.bytes)
        number, count = divmod(self.words[place // 8], 1 << 32)
        expected = self.position // LINE % (1 << 32)
        require(number == expected, f"the mark at {self.position} names line {number}, not {expected}")
        require(
            0 < count <= len(self.bytes) - place - MARK_BYTES,
            f"the mark at {self.position} tells of {count} bytes",
        )
        start = place + MARK_BYTES
        data = bytes(self.bytes[start : start + count])
        self.position += lines(count)
        return data

    def close(self) -> None:
        self.words.release()
        self.bytes.release()
