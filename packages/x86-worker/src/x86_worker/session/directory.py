"""Who holds a session: engines by id, sessions by connection.

Rules
1. A session belongs to one engine id and one connection, and dies with either.
2. The epoch of an engine rises with every connection: a newer one takes the session over, an older or equal
   one is refused.  A connection whose session was taken over stays marked until it ends.
3. A connection carries one engine only.
4. What sessions may need at their longest is reserved when they open, so that memory runs out at HELLO and
   never in a round.
"""

from dataclasses import dataclass, field

from ofl.contract.dspark_v1 import Policy, Shape, Status

from x86_worker.drafters.base import DrafterFacts
from x86_worker.session.errors import LocalError, RemoteError
from x86_worker.session.limits import Limits
from x86_worker.session.slot import Slot


@dataclass
class Session:
    """One engine's session: its shape, its slots by number (made when first used), and its counts."""

    engine_id: bytes
    epoch: int
    connection: int
    policy: Policy
    shape: Shape
    reserved_bytes: int
    opened_ns: int
    slots: dict[int, Slot] = field(default_factory=dict)
    steps: int = 0
    drafts: int = 0
    rows_taken: int = 0

    @property
    def name(self) -> str:
        """The engine's id as 32 hex digits."""
        return self.engine_id.hex()


class SessionDirectory:
    """All sessions of this process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_engine: dict[bytes, Session] = {}
        self._by_connection: dict[int, Session] = {}
        self._superseded: dict[int, int] = {}  # connection -> the epoch that took its session over

    def __len__(self) -> int:
        return len(self._by_engine)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those open now, oldest first."""
        return tuple(self._by_engine.values())

    @property
    def reserved_bytes(self) -> int:
        """Memory that the open sessions may need for contexts."""
        return sum(session.reserved_bytes for session in self._by_engine.values())

    def of(self, connection: int, epoch: int) -> Session:
        """The session that a message of this connection and epoch belongs to.  Raises RemoteError."""
        session = self._by_connection.get(connection)
        if session is not None and session.epoch == epoch:
            return session
        newer = self._superseded.get(connection) if session is None else session.epoch
        if newer is not None and epoch < newer:
            detail = f"{epoch} where the engine's session is of epoch {newer}"
            raise RemoteError(Status.STALE_EPOCH, "header.epoch", detail)
        raise RemoteError(
            Status.NO_SESSION, "header.epoch", f"no session of epoch {epoch} on this connection"
        )

    def check_room(self, session: Session) -> None:
        """Raises RemoteError unless this session may open now; changes nothing."""
        here = self._by_connection.get(session.connection)
        if here is not None and here.engine_id != session.engine_id:
            detail = f"this connection carries engine {here.name} already"
            raise RemoteError(Status.BAD_MESSAGE, "hello.engine_id", detail)
        old = self._by_engine.get(session.engine_id)
        if old is not None and session.epoch <= old.epoch:
            detail = f"{session.epoch} where this engine's session is of epoch {old.epoch}"
            raise RemoteError(Status.STALE_EPOCH, "header.epoch", detail)
        if old is None and len(self) >= self._limits.max_sessions:
            detail = f"all {self._limits.max_sessions} sessions of this worker are taken"
            raise RemoteError(Status.BUSY, "hello.engine_id", detail)
        free = self._limits.context_bytes_max - self.reserved_bytes + (old.reserved_bytes if old else 0)
        if session.reserved_bytes > free:
            need = f"{session.shape.max_slots} slots may need {_mib(session.reserved_bytes)} of contexts"
            detail = f"{need}, {_mib(free)} are free"
            raise RemoteError(Status.BUSY, "hello.max_slots", detail)

    def open(self, session: Session) -> Session | None:
        """Adds a session that `check_room` let pass; returns the one that it takes over, if any."""
        self.check_room(session)
        old = self._by_engine.pop(session.engine_id, None)
        if old is not None:
            del self._by_connection[old.connection]
            if old.connection != session.connection:
                self._superseded[old.connection] = session.epoch
        self._superseded.pop(session.connection, None)
        self._by_engine[session.engine_id] = session
        self._by_connection[session.connection] = session
        return old

    def close(self, session: Session) -> None:
        """Removes a session that is open."""
        if self._by_engine.get(session.engine_id) is not session:
            raise LocalError(f"the session of engine {session.name} is not open")
        del self._by_engine[session.engine_id]
        del self._by_connection[session.connection]

    def disconnected(self, connection: int) -> Session | None:
        """Removes what a connection held; returns its session, if it had one."""
        self._superseded.pop(connection, None)
        session = self._by_connection.get(connection)
        if session is not None:
            self.close(session)
        return session


def context_bytes(shape: Shape, facts: DrafterFacts) -> int:
    """Memory that the slots of a session may need at their longest."""
    rows = shape.max_positions
    if shape.window:
        rows = min(rows, shape.window + shape.block_length + 1)
    return shape.max_slots * rows * facts.context_row_bytes


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
