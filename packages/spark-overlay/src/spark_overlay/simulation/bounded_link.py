"""A simulated link of a bounded rate, in simulated time: messages queue up behind each other, and stay queued.

A message whose reply nobody waits for any more still takes its time on the link, as on a real one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ofl.contract.records import Buffer
from ofl.errors import DeadlineError

from spark_overlay.simulation.transport import Answer, SimulatedTransport, SimulatedWire


@dataclass
class BoundedLink:
    """What connections one after the other share: the clock and the pace.

    bytes_per_us: of what the engine sends; replies take no time.  buffer_bytes: that may wait to be sent.
    stalled_until_ns: nothing moves before; to be set while nothing is queued.
    """

    bytes_per_us: int
    buffer_bytes: int
    now_ns: int = 0
    stalled_until_ns: int = 0
    connections: list["BoundedTransport"] = field(default_factory=list)

    def transfer_ns(self, n_bytes: int) -> int:
        """How long so many bytes take."""
        return n_bytes * 1000 // self.bytes_per_us

    def wait_until(self, due_ns: int, deadline_ns: int, what: str) -> None:
        """Let time pass until then.  Raises DeadlineError, at the deadline, where that comes first."""
        if due_ns > max(deadline_ns, self.now_ns):
            self.now_ns = max(self.now_ns, deadline_ns)
            raise DeadlineError(f"{what} before the deadline")
        self.now_ns = max(self.now_ns, due_ns)


class BoundedTransport(SimulatedTransport):
    """One connection over the link."""

    def __init__(self, link: BoundedLink, endpoint: str, answer: Answer, max_frame_bytes: int) -> None:
        super().__init__(endpoint, answer, max_frame_bytes)
        self._link = link
        self._idle_ns = 0
        self._due_ns: dict[int, int] = {}

    @property
    def queued_ns(self) -> int:
        """How long the link, once it moves, will still be busy with what was submitted."""
        return max(0, self._idle_ns - self._moves_ns)

    @property
    def _moves_ns(self) -> int:
        return max(self._link.now_ns, self._link.stalled_until_ns)

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        link, n_bytes = self._link, sum(len(part) for part in parts)
        over_ns = self.queued_ns + link.transfer_ns(n_bytes) - link.transfer_ns(link.buffer_bytes)
        if over_ns > 0:
            try:
                link.wait_until(self._moves_ns + over_ns, deadline_ns, "no room in the buffer")
            except DeadlineError:
                if n_bytes > link.buffer_bytes:
                    self.kill()  # A part of it has left.
                raise
        sequence = super().submit(parts, deadline_ns=deadline_ns)
        self._idle_ns = self._due_ns[sequence] = self._moves_ns + self.queued_ns + link.transfer_ns(n_bytes)
        return sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        self._link.wait_until(self._due_ns.get(sequence, 0), deadline_ns, f"no reply to call {sequence}")
        return super().wait(sequence, deadline_ns=deadline_ns)


class BoundedWire(SimulatedWire):
    """Makes connections over one link to one answering function.  Connecting takes no time."""

    def __init__(self, link: BoundedLink, answer: Answer) -> None:
        super().__init__(answer)
        self._link = link

    def make(self, endpoint: str, max_frame_bytes: int) -> BoundedTransport:
        """The connection itself; the link keeps it too."""
        made = BoundedTransport(self._link, endpoint, self.answer, max_frame_bytes)
        self._link.connections.append(made)
        return made
