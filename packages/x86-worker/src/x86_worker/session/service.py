"""The one entry point of the session core: requests in, answers out, events told.

Must never raise for what a peer sends.  RemoteError and ContractError become a refusal here and nowhere else.
The caller owns socket, clock and thread; it passes `now` and sends what `encode` returns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ofl.contract.dspark_v1 import (
    Envelope,
    Goodbye,
    GoodbyeReply,
    Hello,
    Kind,
    Op,
    Ping,
    PingReply,
    Refused,
    Reply,
    Request,
    Shape,
    StatsReply,
    Status,
    Step,
    StepReply,
    decode_request,
    encode_reply,
    peek,
    salvage,
)
from ofl.contract.dspark_v1.messages import Parts
from ofl.contract.records import Buffer, ContractError

from x86_worker.drafters.base import Drafter
from x86_worker.session.directory import Session, SessionDirectory, context_bytes
from x86_worker.session.errors import LocalError, RemoteError
from x86_worker.session.events import EntryFailed, Event, Refusal, SessionClosed, SessionOpened
from x86_worker.session.hello import Greeter
from x86_worker.session.limits import Limits
from x86_worker.session.statistics import Statistics
from x86_worker.session.step import run_step

_U32_MAX = (1 << 32) - 1


@dataclass(frozen=True)
class Answer:
    """What to send back, once `DrafterService.encode` has made it bytes, and what happened on the way."""

    envelope: Envelope
    request: Request | None
    shape: Shape | None
    reply: Reply
    events: tuple[Event, ...]
    started_ns: int


class DrafterService:
    """Serves one drafter to any number of engines.  One thread uses it."""

    def __init__(
        self,
        drafter: Drafter,
        *,
        worker_name: str,
        boot_nonce: int,
        now_ns: int,
        limits: Limits | None = None,
        any_policy: bool = False,
        transport_counters: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._drafter = drafter
        self._limits = limits or Limits()
        self._greeter = Greeter(drafter.facts, self._limits, worker_name, boot_nonce, any_policy)
        self._directory = SessionDirectory(self._limits)
        self._statistics = Statistics(now_ns)
        self._transport_counters = transport_counters
        self._connections: set[int] = set()
        self._drain_ns: int | None = None

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those open now."""
        return self._directory.sessions

    # --- connections ------------------------------------------------------------------------------------

    def connected(self, connection: int) -> None:
        """A client passed the transport's negotiation."""
        if connection in self._connections:
            raise LocalError(f"connection {connection} is connected already")
        self._connections.add(connection)

    def disconnected(self, connection: int, reason: str) -> tuple[Event, ...]:
        """A connection ended; its session goes with all its windows."""
        if connection not in self._connections:
            raise LocalError(f"connection {connection} is not connected")
        self._connections.remove(connection)
        session = self._directory.disconnected(connection)
        return () if session is None else (self._closed(session, reason),)

    def drain(self, now_ns: int) -> None:
        """From now on: no new session, and no STEP that arrives after now.  What arrived before is served."""
        if self._drain_ns is None:
            self._drain_ns = now_ns

    # --- messages ---------------------------------------------------------------------------------------

    def receive(self, connection: int, body: Buffer, *, received_ns: int, now_ns: int) -> Answer:
        """Handle one request.  received_ns: when it arrived; now_ns: when this call begins."""
        if connection not in self._connections:
            raise LocalError(f"connection {connection} is not connected")
        call = _Call(connection, salvage(body), received_ns, now_ns)
        try:
            call.envelope = peek(body, Kind.REQUEST)
            session = self._session(call)
            if session is not None:
                call.shape = session.shape
            _, call.request = decode_request(body, call.shape)
            self._check_draining(call)
            reply = self._reply(call, session)
            self._statistics.served(call.envelope.op)
        except RemoteError as error:
            reply = self._refuse(call, error)
        except ContractError as error:
            status = Status.VERSION if error.field == "header.version" else Status.BAD_MESSAGE
            reply = self._refuse(call, RemoteError(status, error.field, error.detail))
        return Answer(call.envelope, call.request, call.shape, reply, tuple(call.events), now_ns)

    def encode(self, answer: Answer, *, finished_ns: int) -> Parts:
        """The bytes of an answer; a STEP's reply says how long it took until finished_ns."""
        reply = answer.reply
        if isinstance(reply, StepReply):
            reply = replace(reply, draft_us=_microseconds(answer.started_ns, finished_ns))
            if any(entry.drafts for entry in reply.entries):
                self._statistics.drafted(reply.queue_us, reply.draft_us)
        return encode_reply(answer.envelope, reply, answer.request, answer.shape)

    def statistics(self, now_ns: int) -> str:
        """What STATS answers."""
        return self._statistics.as_json(
            now_ns=now_ns,
            worker_name=self._greeter.worker_name,
            boot_nonce=self._greeter.boot_nonce,
            draining=self._drain_ns is not None,
            drafter=self._drafter,
            limits=self._limits,
            sessions=self._directory.sessions,
            transport=self._transport_counters(),
        )

    # --- one per operation ------------------------------------------------------------------------------

    def _reply(self, call: "_Call", session: Session | None) -> Reply:
        request = call.request
        if isinstance(request, Step):
            assert session is not None, "a STEP was decoded with its session's shape"
            return self._step(call, session, request)
        if isinstance(request, Goodbye):
            assert session is not None, "a GOODBYE's session was looked up before"
            return self._goodbye(call, session, request)
        if isinstance(request, Hello):
            return self._hello(call, request)
        if isinstance(request, Ping):
            return PingReply(request.payload, self._greeter.boot_nonce)
        return StatsReply(self.statistics(call.now_ns))

    def _step(self, call: "_Call", session: Session, step: Step) -> Reply:
        outcome = run_step(session, step, self._drafter)
        for entry in outcome.entries:
            self._statistics.entry(entry)
        for slot, reason in outcome.failures:
            call.events.append(EntryFailed(session.connection, session.name, slot, reason))
        # draft_us is set by `encode`, which knows when the work was done.
        return StepReply(_microseconds(call.received_ns, call.now_ns), 0, outcome.entries)

    def _hello(self, call: "_Call", hello: Hello) -> Reply:
        reply = self._greeter.answer(hello)
        epoch, reserved = call.envelope.epoch, context_bytes(hello.shape, self._drafter.facts)
        session = Session(
            hello.engine_id, epoch, call.connection, hello.policy, hello.shape, reserved, call.now_ns
        )
        old = self._directory.open(session)
        if old is not None:
            call.events.append(self._closed(old, f"its engine opened epoch {epoch}"))
        self._statistics.session("opened")
        call.events.append(SessionOpened(call.connection, session.name, epoch, hello.policy))
        return reply

    def _goodbye(self, call: "_Call", session: Session, request: Goodbye) -> Reply:
        if request.engine_id != session.engine_id:
            detail = f"{request.engine_id.hex()} where this connection carries engine {session.name}"
            raise RemoteError(Status.NO_SESSION, "goodbye.engine_id", detail)
        self._directory.close(session)
        call.events.append(self._closed(session, "goodbye"))
        return GoodbyeReply()

    # --- helpers ----------------------------------------------------------------------------------------

    def _session(self, call: "_Call") -> Session | None:
        if call.envelope.op in (Op.STEP, Op.GOODBYE):
            return self._directory.of(call.connection, call.envelope.epoch)
        return None

    def _check_draining(self, call: "_Call") -> None:
        if self._drain_ns is None:
            return
        late_step = isinstance(call.request, Step) and call.received_ns >= self._drain_ns
        if late_step or isinstance(call.request, Hello):
            raise RemoteError(Status.DRAINING, "header.op", "this worker is shutting down")

    def _refuse(self, call: "_Call", error: RemoteError) -> Reply:
        op = call.envelope.op
        call.envelope = replace(call.envelope, status=error.status)
        self._statistics.refused(error.status)
        policy = call.request.policy if isinstance(call.request, Hello) else None
        call.events.append(Refusal(call.connection, op, error.status, error.field, error.detail, policy))
        return Refused(op, error.status, error.field, error.detail, error.hello)

    def _closed(self, session: Session, reason: str) -> SessionClosed:
        self._statistics.session("closed")
        return SessionClosed(session.connection, session.name, session.epoch, reason)


@dataclass
class _Call:
    """One request on its way through; filled in as far as it gets."""

    connection: int
    envelope: Envelope
    received_ns: int
    now_ns: int
    request: Request | None = None
    shape: Shape | None = None
    events: list[Event] = field(default_factory=list)


def _microseconds(start_ns: int, end_ns: int) -> int:
    return min(max(0, end_ns - start_ns) // 1000, _U32_MAX)
