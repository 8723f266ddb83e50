"""The connection as rank 0's drafter uses it: each STEP message and what came of it.

Owns calls that their caller gave up: their replies are watched for, at most LATE_MAX of them, and never handed on.
Must never change what the drafter is told.  One thread uses a connection, except `close`.

A record is written once its outcome is known: with the reply, or when the connection is over.  So that of an
append-only message, or of one whose reply was late, may stand behind records of later steps; its `step` is the one that
sent it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ofl.calls import Calls
from ofl.contract.dspark_v1 import EntryFlag, StepEntry
from ofl.contract.observation_v1 import NO_TAG, Exchanged, ExchangedSlot
from ofl.contract.observation_v1.records import BlindTag
from ofl.contract.records import Buffer
from ofl.errors import DeadlineError, TransportError
from ofl.interface import ClientTransport, Connect, Peer

from spark_overlay.observe.messages import Echo, Message, Reader, Reply, read_reply
from spark_overlay.observe.watch import Watch

LATE_MAX = 64
"""Given-up calls of a connection that are watched for; a transport allows 256 open ones."""
NO_WAIT_NS = 0
"""A deadline in the past: take what is there."""


@dataclass(frozen=True)
class Sent:
    """A STEP that left.  rows: tags, entry by entry."""

    step: int
    message: Message
    requests: tuple[str, ...]
    rows: tuple[BlindTag, ...]


@dataclass
class Exchanges:
    """All connections of one drafter.

    replied: by slot, the entry of this step's awaited message and its reply's, where one came in time.
    """

    watch: Watch
    replied: dict[int, tuple[StepEntry, Echo]] = field(default_factory=dict)
    _open: "list[ObservedTransport]" = field(default_factory=list)

    def observed(self, connect: Connect) -> Connect:
        """connect, observed."""

        def observed_connect(
            endpoint: str,
            *,
            service: str,
            version_min: int,
            version_max: int,
            max_frame_bytes: int,
            deadline_ns: int,
        ) -> ClientTransport:
            made = ObservedTransport(
                connect(
                    endpoint,
                    service=service,
                    version_min=version_min,
                    version_max=version_max,
                    max_frame_bytes=max_frame_bytes,
                    deadline_ns=deadline_ns,
                ),
                self,
            )
            self._open.append(made)
            return made

        return observed_connect

    def begin_step(self) -> None:
        """Take late replies that have come; the engine's thread, before its step."""
        self.replied.clear()
        for transport in list(self._open):
            transport.take_late()
            if transport.over:
                self._open.remove(transport)

    def close(self) -> None:
        """The drafter is closed: what has no reply gets none."""
        for transport in self._open:
            transport.settle_all()
        self._open.clear()

    def sent(self, message: Message) -> Sent:
        """A STEP is about to leave; its rows are still there."""
        tags = self.watch.tags
        names = tuple(self.watch.name(entry.slot) for entry in message.step.entries)
        return Sent(
            self.watch.step,
            Message(message.envelope, message.step, message.shape, ()),
            names,
            tuple(tags.rows(part) for part in message.rows),
        )

    def settle(self, sent: Sent, how: str, body: Buffer | None) -> None:
        """What came of a STEP.  how: "in time", "late" or "none"."""
        reply = read_reply(sent.message, body) if body is not None else None
        if how == "in time" and reply is not None:
            how = reply.verdict or how
            if sent.message.awaited and sent.step == self.watch.step and not reply.verdict:
                pairs = zip(sent.message.step.entries, reply.entries, strict=True)
                self.replied.update((entry.slot, (entry, echo)) for entry, echo in pairs if echo is not None)
        self.watch.sink.write(self._record(sent, how, reply))

    def _record(self, sent: Sent, how: str, reply: Reply | None) -> Exchanged:
        message = sent.message
        echoes = reply.entries if reply is not None else (None,) * len(message.step.entries)
        parts = zip(message.step.entries, sent.requests, sent.rows, echoes, strict=True)
        return Exchanged(
            step=sent.step,
            epoch=message.envelope.epoch,
            round=message.envelope.round,
            epoch_echoed=-1 if reply is None else reply.epoch,
            round_echoed=-1 if reply is None else reply.round,
            awaited=message.awaited,
            reply=how,
            slots=tuple(self._slot(*part) for part in parts),
        )

    def _slot(self, entry: StepEntry, request: str, rows: BlindTag, echo: Echo | None) -> ExchangedSlot:
        return ExchangedSlot(
            request=request,
            slot=entry.slot,
            generation=entry.generation,
            generation_echoed=-1 if echo is None else echo.generation,
            first_position=entry.first_position,
            n_rows=entry.n_rows,
            rows=rows,
            need_draft=entry.needs_draft,
            reset=bool(entry.flags & EntryFlag.RESET),
            partial_window=bool(entry.flags & EntryFlag.PARTIAL_WINDOW),
            n_out=entry.n_out,
            held_from=-1 if echo is None else echo.window_start,
            status="" if echo is None else echo.status,
            drafts=NO_TAG if echo is None else self.watch.tags.drafts(echo.drafts),
        )


class ObservedTransport(Calls):
    """One connection.  over: nothing of it is waited for any more, and nothing can come."""

    def __init__(self, inner: ClientTransport, exchanges: Exchanges) -> None:
        self._inner, self._exchanges = inner, exchanges
        self._reader = Reader()
        self._sent: dict[int, Sent] = {}
        self._late: dict[int, Sent] = {}

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._inner.peer

    @property
    def alive(self) -> bool:
        """See `ClientTransport`."""
        return self._inner.alive

    @property
    def over(self) -> bool:
        """Whether it is done for good."""
        return not self._inner.alive and not self._sent and not self._late

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """See `ClientTransport`."""
        sent = self._read(parts)
        try:
            sequence = self._inner.submit(parts, deadline_ns=deadline_ns)
        except TransportError:
            # Of a message that can be sent again nothing is known but that it did not leave.
            if sent is not None and not self._inner.alive:
                self._settle(sent, "none", None)
            raise
        if sent is not None:
            self._sent[sequence] = sent
        return sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """See `ClientTransport`."""
        body = self._inner.wait(sequence, deadline_ns=deadline_ns)
        sent = self._sent.pop(sequence, None)
        if sent is not None:
            self._settle(sent, "in time", body)
        return body

    def cancel(self, sequence: int) -> bool | None:
        """See `ClientTransport`; the call beneath stays open, so that a late reply is seen."""
        sent = self._sent.pop(sequence, None)
        if sent is None:
            return self._inner.cancel(sequence)
        self._late[sequence] = sent
        if len(self._late) > LATE_MAX:
            oldest = next(iter(self._late))
            self._settle(self._late.pop(oldest), "none", None)
            return self._inner.cancel(oldest)
        return None

    def close(self) -> None:
        """Close the connection beneath."""
        self._inner.close()

    def take_late(self) -> None:
        """Replies to calls that were given up, as far as they are here; never waits."""
        if not self._inner.alive:
            self.settle_all()
            return
        for sequence in list(self._late):
            try:
                body = self._inner.wait(sequence, deadline_ns=NO_WAIT_NS)
            except DeadlineError:
                continue
            except TransportError:
                self._settle(self._late.pop(sequence), "none", None)
                continue
            self._settle(self._late.pop(sequence), "late", body)

    def settle_all(self) -> None:
        """Nothing more comes."""
        for pending in (self._late, self._sent):
            while pending:
                self._settle(pending.pop(next(iter(pending))), "none", None)

    def _read(self, parts: Sequence[Buffer]) -> Sent | None:
        try:
            message = self._reader.read(parts)
            return None if message is None else self._exchanges.sent(message)
        except Exception as error:
            # Not narrower: the drafter's message leaves, whatever is wrong with a hook.
            self._exchanges.watch.sink.defect(error)
            return None

    def _settle(self, sent: Sent, how: str, body: Buffer | None) -> None:
        try:
            self._exchanges.settle(sent, how, body)
        except Exception as error:
            # Not narrower, as above.
            self._exchanges.watch.sink.defect(error)
